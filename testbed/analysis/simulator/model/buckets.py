"""The buckets of a step in order: a profile tells which sizes there are, and which collectives follow each other."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Sequence

from testbed.core.costs.fusion import BY_TIMES, RULES, Gradient, cut
from testbed.core.device.profile import Collective, LayerTimes, Profile
from testbed.core.errors import InputError
from testbed.core.models.catalogue import find_model
from testbed.core.models.scaled import scaled
from testbed.core.spec.run_spec import RunSpec
from testbed.core.units import parse_size_bytes

Bucket = tuple[int, tuple[Collective, ...]]
"""Elements, and what is sent for them, one collective after another."""
Tensor = tuple[str, int]
"""The layer that has it, and its elements."""
_CUTTING = ("bucket_size", "fusion")
"""Parameters of strategies that decide on buckets, whatever strategy it is."""
_OF_TURNS = ("density", "sync_every")
"""Those of SLAMB that decide on what is sent."""
REPLAY = "testbed.worker.workloads.replay.Replay"


def buckets(spec: RunSpec, profile: Profile) -> list[Bucket]:
    """As strategy `ddp` makes them.

    Raises:
        InputError: the profile is of other buckets.
    """
    for sizes in _candidates(spec, profile):
        if found := _with_collectives(sizes, profile):
            return found
    total = sum(layer.parameters for layer in profile.layers)
    raise InputError(
        f"profile of {profile.workload}: its {len(profile.collectives)} collectives and {len(profile.codec)} sizes of"
        f" buckets do not add up to the {total} parameters in buckets of {_size_bytes(spec)} bytes; measure it again"
    )


def torch_buckets(spec: RunSpec, profile: Profile) -> list[Bucket]:
    """torch closes a bucket once it holds as much as was asked for.

    It takes one tensor after another; where only layers are known, those of a layer together.
    """
    sizes = [0]
    for elements in (elements for layer in reversed(profile.layers) for elements in _arriving(layer)):
        if 4 * sizes[-1] >= _size_bytes(spec):
            sizes.append(0)
        sizes[-1] += elements
    return [(size, (Collective(kind="all_reduce", size_bytes=4 * size),)) for size in sizes if size]


def _arriving(layer: LayerTimes) -> list[int]:
    """Return the elements of a layer's gradients in the order of backward."""
    return [tensor.elements for tensor in reversed(layer.tensors)] or [layer.parameters]


def momenta_bucket(spec: RunSpec, profile: Profile) -> tuple[Bucket, Collective]:
    """What SLAMB sends in each step, and the average of all parameters, whose share says how often.

    Raises:
        InputError: the profile is of another strategy, or of other turns.
    """
    if not profile.collectives or len(profile.buckets) != 1 or not _is_of(profile, spec, _OF_TURNS):
        asked = " ".join(f"strategy.{key}={spec.strategy.params.get(key)}" for key in _OF_TURNS)
        raise InputError(
            f"strategy={spec.strategy.name}: the profile of {profile.workload} was not measured with {asked}; measure"
            " it anew"
        )
    *momenta, average = profile.collectives
    return (profile.buckets[0], tuple(momenta)), average


def _cut(tensors: Sequence[Tensor], spec: RunSpec) -> list[int]:
    """Elements of each bucket: `tensors` are in the order of forward."""
    gradients = [Gradient(4 * elements, layer) for layer, elements in reversed(tensors)]
    rest = iter(gradients)
    counts = cut(gradients, _rule(spec), _size_bytes(spec))
    return [sum(next(rest).size_bytes for _ in range(count)) // 4 for count in counts]


def _candidates(spec: RunSpec, profile: Profile) -> Iterator[list[int]]:
    """Layers are known, their tensors in profiles that have them, and of models in our tables. Else, where a bucket is
    cut inside a layer, its size is nearest to that of whole layers."""
    rule = _rule(spec)
    if profile.buckets and _is_of(profile, spec, _CUTTING if rule != BY_TIMES else None):
        yield list(profile.buckets)
    if rule == BY_TIMES:
        return  # whoever measures knows them
    params = spec.workload.params
    if tensors := [(layer.name, tensor.elements) for layer in profile.layers for tensor in layer.tensors]:
        yield _cut(tensors, spec)
    elif spec.workload.target == REPLAY:
        layers = scaled(find_model(params["model"], params.get("tokens")), params.get("scale", 1))
        yield _cut([(layer.name, math.prod(shape)) for layer in layers for shape in layer.shapes], spec)
    whole = _cut([(layer.name, layer.parameters) for layer in profile.layers if layer.parameters], spec)
    known = [bucket.elements for bucket in profile.codec]
    yield [min(known, key=lambda elements: abs(elements - size)) for size in whole] if known else []


def _is_of(profile: Profile, spec: RunSpec, keys: Collection[str] | None) -> bool:
    """Whether it was measured with the strategy of `spec`: with the same values of `keys`, or of all its parameters.
    One that does not say is taken for it."""
    target, _, params = str(profile.provenance.get("strategy", "")).partition(" ")
    if not target:
        return True
    found, asked = json.loads(params), spec.strategy.params
    if keys is None:
        return target == spec.strategy.target and found == asked
    return all(found.get(key) == asked.get(key) for key in keys)


def _with_collectives(sizes: Sequence[int], profile: Profile) -> list[Bucket] | None:
    """None where this is not what the profile is of."""
    needed = {bucket.elements: len(bucket.rounds) - 1 for bucket in profile.codec}
    counts = [needed.get(size, -1) for size in sizes]
    has_all = sum(sizes) == sum(layer.parameters for layer in profile.layers) and set(sizes) <= set(needed)
    others = len(profile.collectives) - sum(counts)
    # those of factors and of what is made of them come after those of buckets
    if not has_all or others < 0 or (others and not profile.factored):
        return None
    found, rest = [], profile.collectives
    for size, count in zip(sizes, counts, strict=True):
        found.append((size, rest[:count]))
        rest = rest[count:]
    return found


def _rule(spec: RunSpec) -> str:
    rule = str(spec.strategy.params.get("fusion", RULES[0]))
    if rule not in RULES:
        raise InputError(f"strategy.fusion={rule}: cannot be simulated; known: {', '.join(RULES)}")
    return rule


def _size_bytes(spec: RunSpec) -> int:
    asked = spec.strategy.params.get("bucket_size", "4 MiB")
    try:
        return parse_size_bytes(asked)
    except ValueError as error:
        raise InputError(f"strategy.bucket_size={asked}: {error}") from error
