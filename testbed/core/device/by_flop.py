"""Times of layers and of a strategy's work by their FLOPs: an assumption, where nothing was measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from testbed.core.device.profile import ASSUMED, LayerTimes, Profile, WorkTimes

FORWARD_SHARE = 1 / 3
"""Forward's share of a training step: backward computes gradients of inputs and of parameters, twice the work."""


def at_flop_rate(cpu: Profile, flop_s: float) -> Profile:
    """Return the profile of a device that does `flop_s` FLOPs a second all the time: the least a real one takes.

    An assumption. The optimizer and the codec, which memory bounds, keep the CPU's times.
    """
    forward_s = [layer.forward_flop / flop_s for layer in cpu.layers]
    ratio = (1 - FORWARD_SHARE) / FORWARD_SHARE
    layers = tuple(
        dataclasses.replace(layer, forward_s=seconds, backward_s=ratio * seconds)
        for layer, seconds in zip(cpu.layers, forward_s, strict=True)
    )
    return dataclasses.replace(
        cpu,
        layers=with_backward_at_parameters(layers),
        forward_s=sum(forward_s),
        backward_s=ratio * sum(forward_s),
        other_s=0.0,
        work=tuple(at_rate(piece, flop_s) for piece in cpu.work),
        assumed=True,
        basis=ASSUMED,
        provenance={"made_by": f"FLOPs over {flop_s:g} FLOP/s", "codec_and_optimizer": cpu.provenance},
    )


def lasting(layer: LayerTimes, seconds: float) -> LayerTimes:
    return dataclasses.replace(layer, forward_s=seconds * FORWARD_SHARE, backward_s=seconds * (1 - FORWARD_SHARE))


def at_rate(piece: WorkTimes, flop_s: float) -> WorkTimes:
    return dataclasses.replace(piece, seconds=piece.flop / flop_s)


def with_backward_at_parameters(layers: tuple[LayerTimes, ...]) -> tuple[LayerTimes, ...]:
    """Return layers in which those without parameters leave their backward time to others.

    The one before with some takes it, whose gradients come after theirs. Before the first such layer there is nothing
    to wait for: that is backward's end.
    """
    return tuple(reversed(list(_moved(reversed(layers)))))


def _moved(backwards: Iterator[LayerTimes]) -> Iterator[LayerTimes]:
    waiting_s = 0.0
    for layer in backwards:
        if layer.parameters:
            yield dataclasses.replace(layer, backward_s=layer.backward_s + waiting_s)
            waiting_s = 0.0
        else:
            waiting_s += layer.backward_s
            yield dataclasses.replace(layer, backward_s=0.0)


def share_left(kind: str, before: Profile, after: Profile) -> float:
    """Return the share of that kind of work that is left, by its FLOPs."""
    flop, flop_then = (sum(piece.flop for piece in one.work if piece.kind == kind) for one in (before, after))
    return flop_then / flop if flop else 1.0
