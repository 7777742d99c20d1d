"""The profile of a replay at full size, from the tables of models: nothing is built or measured.

Layers take no time until a device says how long. Compression takes none.
"""

from __future__ import annotations

import math

from testbed.core.costs.fusion import RULES, Gradient, cut
from testbed.core.device.codecs.work import CodecTimes
from testbed.core.device.profile import Collective, LayerTimes, Profile, TensorTimes
from testbed.core.models.catalogue import find_model
from testbed.core.spec.run_spec import RunSpec
from testbed.core.units import parse_size_bytes
from testbed.worker.profile.step_times import part_text


def replay_profile(spec: RunSpec) -> Profile:
    """Return the profile of a replay whose strategy sums buckets in float32, uncompressed."""
    table = find_model(spec.workload.params["model"], spec.workload.params.get("tokens"))
    layers = tuple(
        LayerTimes(
            name=f"layers.{index}",
            parameters=layer.numel,
            forward_s=0.0,
            backward_s=0.0,
            forward_flop=spec.batch_size * layer.forward_flop,
            tensors=tuple(TensorTimes(elements=math.prod(shape), shape=shape) for shape in layer.shapes),
        )
        for index, layer in enumerate(table.layers)
    )
    buckets = _buckets(layers, parse_size_bytes(spec.strategy.params["bucket_size"]))
    free = (("compress", 0.0), ("decompress", 0.0))
    return Profile(
        workload=part_text(spec.workload),
        compressor=part_text(spec.compressor),
        batch_size=spec.batch_size,
        layers=layers,
        forward_s=0.0,
        backward_s=0.0,
        optimizer_s=0.0,
        codec=tuple(CodecTimes(elements=elements, rounds=free) for elements in sorted(set(buckets))),
        buckets=tuple(buckets),
        collectives=tuple(Collective(kind="all_reduce", size_bytes=4 * elements) for elements in buckets),
    )


def _buckets(layers: tuple[LayerTimes, ...], size_bytes: int) -> list[int]:
    """Return the elements of each bucket, as strategies cut them by size."""
    gradients = [
        Gradient(4 * tensor.elements, layer.name) for layer in reversed(layers) for tensor in reversed(layer.tensors)
    ]
    rest = iter(gradients)
    return [sum(next(rest).size_bytes for _ in range(count)) // 4 for count in cut(gradients, RULES[0], size_bytes)]
