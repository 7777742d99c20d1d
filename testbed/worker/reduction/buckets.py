"""Gradients side by side in few flat tensors, so that one collective carries many of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from compressors.base.compressor import Layout


@dataclass(frozen=True)
class Bucket:
    parameters: tuple[nn.Parameter, ...]
    flat: Tensor
    """All gradients; each parameter's `grad` is a view of it."""
    layout: Layout


class Buckets:
    """Calls `ready` for each bucket once all its gradients are there, always in the same order."""

    def __init__(
        self,
        groups: Sequence[Sequence[nn.Parameter]],
        ready: Callable[[Bucket], None],
        names: Mapping[nn.Parameter, str] | None = None,
        first: int = 0,
    ) -> None:
        """
        Args:
            groups: the parameters of each bucket, in the order in which backward reaches them.
            names: of the parameters, for layouts; None leaves them out.
            first: number of the first bucket, where others have those before it.
        """
        self._ready, self._names, self._first = ready, names, first
        self.buckets: list[Bucket] = []
        self._bucket_of: dict[nn.Parameter, int] = {}
        self._missing: list[int] = []
        self._next = 0
        self.regroup(groups)
        for parameter in self._bucket_of:
            parameter.register_post_accumulate_grad_hook(lambda parameter: self._arrived(parameter))

    def regroup(self, groups: Sequence[Sequence[nn.Parameter]]) -> None:
        """The same parameters in other buckets, between two steps; what gradients hold is gone."""
        for bucket in self.buckets:
            for parameter in bucket.parameters:
                parameter.grad = None
        self.buckets = []  # before there are others, so that both need not fit at once
        self.buckets = [_fuse(list(group), index, self._names) for index, group in enumerate(groups, self._first)]
        self._bucket_of = {p: index for index, bucket in enumerate(self.buckets) for p in bucket.parameters}

    def reset(self) -> None:
        """Zero all gradients; the backward to come is the step's only one, unless `hold` says otherwise."""
        for bucket in self.buckets:
            bucket.flat.zero_()
        self.expect()

    def hold(self) -> None:
        """What arrives until `expect` is only added."""
        self._missing = [0] * len(self.buckets)
        self._next = len(self.buckets)

    def expect(self) -> None:
        """The backward to come is the step's last one."""
        self._missing = [len(bucket.parameters) for bucket in self.buckets]
        self._next = 0

    def flush(self) -> None:
        """Hand on what backward did not reach: parameters that took no part keep a gradient of zero."""
        while self._next < len(self.buckets):
            self._hand_on()

    def _arrived(self, parameter: nn.Parameter) -> None:
        self._missing[self._bucket_of[parameter]] -= 1
        # Ranks must issue collectives in one order, so a bucket that is early waits for the ones before it.
        while self._next < len(self.buckets) and self._missing[self._next] == 0:
            self._hand_on()

    def _hand_on(self) -> None:
        bucket = self.buckets[self._next]
        self._next += 1
        self._ready(bucket)


def _fuse(parameters: list[nn.Parameter], index: int, names: Mapping[nn.Parameter, str] | None) -> Bucket:
    named = () if names is None else tuple(names[p] for p in parameters)
    layout = Layout(tuple(tuple(p.shape) for p in parameters), index, named)
    flat = torch.zeros(layout.numel, device=parameters[0].device)
    for parameter, piece in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
        parameter.grad = piece.view(parameter.shape)
    return Bucket(tuple(parameters), flat, layout)
