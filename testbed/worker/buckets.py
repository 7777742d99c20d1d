"""Gradients side by side in few flat tensors, so that one collective carries many of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from compressors.base import Layout


@dataclass(frozen=True)
class Bucket:
    parameters: tuple[nn.Parameter, ...]
    flat: Tensor
    """All gradients; each parameter's `grad` is a view of it."""
    layout: Layout


def assign(parameters: Iterable[nn.Parameter], size_bytes: int) -> list[list[nn.Parameter]]:
    """Parameters in the order in which backward reaches them (the reverse of the model's), cut before `size_bytes`
    would be exceeded. A parameter larger than that has a bucket of its own."""
    groups: list[list[nn.Parameter]] = []
    filled = 0
    for parameter in reversed([p for p in parameters if p.requires_grad]):
        if not groups or filled + parameter.nbytes > size_bytes:
            groups.append([])
            filled = 0
        groups[-1].append(parameter)
        filled += parameter.nbytes
    return groups


class Buckets:
    """Calls `ready` for each bucket once all its gradients are there, always in the same order."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        size_bytes: int,
        ready: Callable[[Bucket], None],
        names: Mapping[nn.Parameter, str] | None = None,
    ) -> None:
        """
        Args:
            names: of the parameters, for layouts; None leaves them out.
        """
        groups = assign(parameters, size_bytes)
        self.buckets = [_fuse(group, index, names) for index, group in enumerate(groups)]
        self._ready = ready
        self._missing: list[int] = []
        self._next = 0
        for index, bucket in enumerate(self.buckets):
            for parameter in bucket.parameters:
                parameter.register_post_accumulate_grad_hook(lambda _, index=index: self._arrived(index))

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

    def _arrived(self, index: int) -> None:
        self._missing[index] -= 1
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
    flat = torch.zeros(layout.numel)
    for parameter, piece in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
        parameter.grad = piece.view(parameter.shape)
    return Bucket(tuple(parameters), flat, layout)
