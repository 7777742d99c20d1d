"""Bounds of one message's tensors, from how tight its schedule wants them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from testbed.core.bound_rounds import BoundSchedule
from testbed.core.error_bounds import RANGE, downlink_bound, range_bound, uplink_bound
from testbed.worker.server.tensors import Coder, Measured

Bounds = dict[str, float | None]
"""By name; of tensors that may lose something. Those whose update is nothing have None."""


def up(coder: Coder, basis: str, alpha: float, measured: Sequence[Measured], parameters: Sequence[Tensor]) -> Bounds:
    """Of what a client sends.

    Args:
        measured: of what is sent.
        parameters: as they are now, whatever is sent of them; or gradients, where these are.
    """
    return {
        item.name: range_bound(alpha, one.high - one.low)
        if basis == RANGE
        else uplink_bound(alpha, one.update_rms, _range(tensor))
        for item, one, tensor in zip(coder.schema.items, measured, parameters, strict=True)
        if coder.may_lose(item)
    }


def down(
    coder: Coder,
    schedule: BoundSchedule,
    measured: Sequence[Measured],
    parameters: Sequence[Tensor],
    update_rms: Sequence[float],
    clients: int,
) -> Bounds:
    """Of what the server sends.

    Args:
        update_rms: mean of the last round's clients, by item.
        clients: that took part in it, whose errors average out.
    """
    return {
        item.name: range_bound(schedule.alpha, one.high - one.low)
        if schedule.basis == RANGE
        else downlink_bound(schedule.alpha, rms, clients, _range(tensor))
        for item, one, tensor, rms in zip(coder.schema.items, measured, parameters, update_rms, strict=True)
        if coder.may_lose(item)
    }


def _range(tensor: Tensor) -> float:
    low, high = (float(end) for end in tensor.aminmax())
    return high - low
