"""Torch as another kind of device has it: sums in another order, division by reciprocals, other ones of equals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten


class UnlikeDevice(TorchDispatchMode):
    """Inside, operations whose bits are the device's own have others; exact ones and those by IEEE 754 have the same.

    Sums of float are taken in an order drawn anew each time, sorting without `stable` and top-k turn equals about, a
    number divides as its reciprocal, and logarithms and powers are one float further on.
    """

    def __init__(self) -> None:
        super().__init__()
        self._generator = torch.Generator().manual_seed(5)
        self.met: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        packet = func.overloadpacket
        other = _OTHERS.get(packet)
        if other is None or (func is aten.sort.stable and kwargs.get("stable")):
            return func(*args, **kwargs)
        self.met.add(str(packet))
        return other(self, func, args, kwargs)

    def shuffled(self, count: int) -> Tensor:
        return torch.randperm(count, generator=self._generator)


def _sum(mode: UnlikeDevice, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    values = args[0]
    if not values.is_floating_point() or not values.numel():
        return func(*args, **kwargs)
    dims = args[1] if len(args) > 1 and isinstance(args[1], (list, tuple)) else kwargs.get("dim")
    for dim in dims or range(values.dim()):
        values = values.index_select(dim, mode.shuffled(values.shape[dim]))
    return func(values, *args[1:], **kwargs)


def _norm(mode: UnlikeDevice, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    values, dims = args[0], args[2] if len(args) > 2 else kwargs.get("dim")
    for dim in dims or range(values.dim()):
        values = values.index_select(dim, mode.shuffled(values.shape[dim]))
    return func(values, *args[1:], **kwargs)


def _product(mode: UnlikeDevice, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    left, right = args
    order = mode.shuffled(left.shape[-1])
    return func(left.index_select(left.dim() - 1, order), right.index_select(max(right.dim() - 2, 0), order), **kwargs)


def _divide(mode: UnlikeDevice, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    values, divisor = args
    if isinstance(divisor, Tensor) or not values.is_floating_point() or kwargs.get("rounding_mode"):
        return func(*args, **kwargs)
    reciprocal = float(torch.tensor(1.0, dtype=values.dtype) / divisor)
    if func is aten.div_.Tensor:
        return aten.mul_.Tensor(values, reciprocal)
    return aten.mul.out(values, reciprocal, **kwargs) if "out" in kwargs else aten.mul.Tensor(values, reciprocal)


def _turned(mode: UnlikeDevice, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    values = args[0]
    place = {aten.topk: 2, aten.sort: 1}[func.overloadpacket]
    dim = args[place] if len(args) > place else kwargs.get("dim", -1)
    if not values.dim() or "out" in kwargs:
        return func(*args, **kwargs)
    found, places = func(values.flip(dim), *args[1:], **kwargs)
    return found, values.shape[dim] - 1 - places


def _further(mode: UnlikeDevice, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    found = func(*args, **kwargs)
    return found.copy_(found.nextafter(torch.full_like(found, torch.inf))) if found.is_floating_point() else found


_Other = Callable[[UnlikeDevice, Any, tuple[Any, ...], dict[str, Any]], Any]
_OTHERS: dict[Any, _Other] = {
    **dict.fromkeys((aten.sum, aten.mean), _sum),
    aten.linalg_vector_norm: _norm,
    **dict.fromkeys((aten.mm, aten.mv, aten.dot, aten.bmm), _product),
    **dict.fromkeys((aten.div, aten.div_), _divide),
    **dict.fromkeys((aten.topk, aten.sort), _turned),
    **dict.fromkeys((aten.log, aten.log_, aten.exp, aten.exp_, aten.log2, aten.log1p), _further),
}
