"""A profile applied to a model: what strategies tell the clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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


def _by_parameter(profile: Profile, model: nn.Module) -> dict[int, float]:
    """A layer's whole time at the last of its parameters that learn, the first that backward reaches: never too
    early."""
    by_layer = {layer.name: layer.backward_s for layer in profile.layers}
    seconds: dict[int, float] = {}
    for name, parameter in reversed(list(model.named_parameters())):
        if not parameter.requires_grad:
            continue
        seconds[id(parameter)] = by_layer.pop(name.rpartition(".")[0], 0.0)
    return seconds
