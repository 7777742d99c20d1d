"""A profile applied to a model: what strategies tell the clock."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

from torch import nn

from testbed.core.device.profile import Profile


class ComputeTimes:
    """Emulated seconds of the phases of one rank's step. Without a profile each is None: as long as it takes here."""

    def __init__(self, profile: Profile | None = None, model: nn.Module | None = None) -> None:
        """
        Args:
            model: the one whose parameters `backward_of` is asked for.
        """
        self._profile = profile
        self._spared_s = 0.0
        self._backward_s: dict[int, float] = {}
        self._work_s = {piece.name: piece.seconds for piece in profile.work} if profile is not None else {}
        self._forward_s = {layer.name: layer.forward_s for layer in profile.layers} if profile is not None else {}
        if profile is not None and model is not None:
            self._backward_s = _by_parameter(profile, model)

    @classmethod
    def known(cls, profile: Profile, model: nn.Module) -> ComputeTimes:
        """Of layers only: phases last as long as they take here."""
        times = cls()
        times._backward_s = _by_parameter(profile, model)
        return times

    @property
    def profile(self) -> Profile | None:
        return self._profile

    def spare(self, shares: Mapping[str, float]) -> None:
        """Have forward take less from now on: of these layers, by name, but the rest of the samples."""
        self._spared_s = sum(share * self.forward_of(layer) for layer, share in shares.items())

    def share(self, samples: int, batch_size: int) -> float:
        """Return what part of a batch's time forward and backward of some of its samples take.

        Below the smallest batch that is known they take what that takes, since there the host or the start of kernels
        counts; above the largest they are in proportion to it. Of one batch alone that cannot be told: all are then.
        """
        known = () if self._profile is None else self._profile.passes
        if len(known) < 2:
            return samples / batch_size
        return _seconds(known, samples) / _seconds(known, batch_size)

    @property
    def forward_s(self) -> float | None:
        return None if self._profile is None else max(0.0, self._profile.forward_s - self._spared_s)

    @property
    def backward_s(self) -> float | None:
        return None if self._profile is None else self._profile.backward_s

    @property
    def optimizer_s(self) -> float | None:
        return None if self._profile is None else self._profile.optimizer_s

    @property
    def other_s(self) -> float | None:
        return None if self._profile is None else self._profile.other_s

    def work_s(self, name: str) -> float | None:
        """Of a piece of the strategy's own work; None also where the profile does not know it."""
        return self._work_s.get(name)

    def forward_of(self, layer: str) -> float:
        """Seconds of one layer's forward, by its name."""
        return self._forward_s.get(layer, 0.0)

    def backward_of(self, parameters: Iterable[nn.Parameter]) -> float:
        """Seconds of backward that lead to these gradients, once those of all later layers are there."""
        return sum(self._backward_s.get(id(parameter), 0.0) for parameter in parameters)

    def codec_s(self, elements: int, round_: int) -> float | None:
        """Of one round of reducing a bucket, counted from 0."""
        return None if self._profile is None else self._profile.codec_s(elements, round_)


def _seconds(known: Sequence[tuple[int, float]], samples: int) -> float:
    """Return the seconds of a batch between batches that are known, ascending."""
    largest, seconds = known[-1]
    if samples >= largest:
        return seconds * samples / largest
    if samples <= known[0][0]:
        return known[0][1]
    (low, low_s), (high, high_s) = next(pair for pair in itertools.pairwise(known) if samples <= pair[1][0])
    return low_s + (samples - low) / (high - low) * (high_s - low_s)


def _by_parameter(profile: Profile, model: nn.Module) -> dict[int, float]:
    """Return the seconds of backward that lead to each parameter's gradient.

    Where only a layer's time is known, all of it is at the last of its parameters that learn, the first that backward
    reaches: never too early.
    """
    by_name = {layer.name: layer for layer in profile.layers}
    own: dict[str, list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            own.setdefault(name.rpartition(".")[0], []).append(parameter)
    seconds: dict[int, float] = {}
    for name, parameters in own.items():
        gradients = list(by_name[name].gradients) if name in by_name else []
        if len(gradients) == len(parameters):
            times = [gradient_s for _, gradient_s in gradients]
        else:  # of the whole layer, or some of its parameters do not learn
            times = [sum(gradient_s for _, gradient_s in gradients), *[0.0] * (len(parameters) - 1)]
        seconds |= {id(p): time_s for p, time_s in zip(reversed(parameters), times, strict=True)}
    return seconds
