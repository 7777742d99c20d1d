"""Bounds of one message's tensors, from how tight its schedule wants them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from testbed.worker.methods.parameter_server.bounds.error_bounds import (
    RANGE,
    importance_factors,
    pooled_rms,
    range_bound,
    update_bound,
)
from testbed.worker.methods.parameter_server.messages.coder import Coder, Measured

Bounds = dict[str, float | None]
"""By name; of tensors that may lose something. Those whose update is nothing have None."""


def bounds_of(
    coder: Coder,
    basis: str,
    alpha: float,
    measured: Sequence[Measured],
    parameters: Sequence[Tensor],
    update_rms: Sequence[float] | None = None,
    squares: Sequence[float] | None = None,
) -> Bounds:
    """
    Args:
        basis: what alpha is a share of.
        measured: of what is sent.
        parameters: as they are now, whatever is sent of them; or gradients, where these are.
        update_rms: by item, where it is not that of what is sent: of what the server sends, mean of the last round's
            clients.
        squares: mean squares of gradients, by item; where the plan asks for importance and sends none;
            None: there are none, and nothing is more important.
    """
    if basis == RANGE:
        return _of_ranges(coder, alpha, measured)
    rms = [one.update_rms for one in measured] if update_rms is None else update_rms
    updates = _of_updates(coder, rms, parameters)
    factors = _factors(coder, measured, squares) if coder.plan.importance else [1.0] * len(updates)
    return {
        name: update_bound(factor * alpha, one, value_range)
        for (name, one, value_range), factor in zip(updates, factors, strict=True)
    }


def _factors(coder: Coder, measured: Sequence[Measured], squares: Sequence[float] | None) -> list[float]:
    """By importance: how many times alpha each tensor has that may lose something."""
    if coder.plan.payload == "grad":
        squares = [one.update_rms * one.update_rms for one in measured]  # the update is the gradient
    if squares is None:  # a region's mean: its clients have sent no gradients
        squares = [1.0] * len(measured)
    lossy = [(square, item) for item, square in zip(coder.schema.items, squares, strict=True) if coder.may_lose(item)]
    return importance_factors([square for square, _ in lossy], [item.numel for _, item in lossy])


def _of_ranges(coder: Coder, alpha: float, measured: Sequence[Measured]) -> Bounds:
    return {
        item.name: range_bound(alpha, one.high - one.low)
        for item, one in zip(coder.schema.items, measured, strict=True)
        if coder.may_lose(item)
    }


def _of_updates(
    coder: Coder, update_rms: Sequence[float], parameters: Sequence[Tensor]
) -> list[tuple[str, float, float]]:
    """(name, root mean square of the update, range of values) of each tensor that may lose something. The update is
    that of all of them together; 0 where the tensor's own is."""
    lossy = [
        (item, rms, tensor)
        for item, rms, tensor in zip(coder.schema.items, update_rms, parameters, strict=True)
        if coder.may_lose(item)
    ]
    pooled = pooled_rms([rms for _, rms, _ in lossy], [item.numel for item, _, _ in lossy])
    return [(item.name, pooled if rms else 0.0, _range(tensor)) for item, rms, tensor in lossy]


def _range(tensor: Tensor) -> float:
    low, high = (float(end) for end in tensor.aminmax())
    return high - low
