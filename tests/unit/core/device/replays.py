"""Profiles of replays, as calibration measures them on a core of this machine."""

from __future__ import annotations

import json
import math

from testbed.core.device.codecs.work import CodecTimes
from testbed.core.device.profile import LayerTimes, Profile, TensorTimes
from testbed.core.models.catalogue import find_model
from testbed.core.models.scaled import scaled

REPLAY = "testbed.worker.workloads.replay.Replay"


def replay(model: str, batch_size: int, *, scale: float = 1, tokens: int | None = None) -> Profile:
    """Return the profile of a replay whose layers take no time."""
    table = find_model(model, tokens)
    layers = tuple(
        LayerTimes(
            name=f"layers.{index}",
            parameters=sent.numel,
            forward_s=0.0,
            backward_s=0.0,
            forward_flop=batch_size * layer.forward_flop,
            tensors=tuple(
                TensorTimes(elements=math.prod(small), shape=shape)
                for shape, small in zip(layer.shapes, sent.shapes, strict=True)
            ),
        )
        for index, (layer, sent) in enumerate(zip(table.layers, scaled(table, scale), strict=True))
    )
    return Profile(
        workload=f"{REPLAY} {json.dumps({'model': model, 'tokens': tokens})}",
        compressor="c {}",
        batch_size=batch_size,
        layers=layers,
        forward_s=0.0,
        backward_s=0.0,
        optimizer_s=0.0,
        codec=(CodecTimes(elements=1000, rounds=(("compress", 0.01),)),),
        buckets=(1000,),
        cpu_step_s=0.05,
    )
