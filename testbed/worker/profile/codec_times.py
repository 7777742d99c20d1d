"""How long a compressor's rounds take on a core of this machine, and what they ask to be sent, in its heaviest step.

Steps differ: some compressors warm up, send nothing for a while, or estimate anew now and then. A few steps of the run
are tried: some by the size of their payloads, some spread over the run. What is sent is that of the heaviest one, which
is then measured well; and each round takes as long as in the step in which it takes longest, so that none is late.

A codec is timed alone: what it sends passes for what others send. One that reads payloads that are another rank's and
no other's is timed among all ranks, which take a few steps in this process; that is as many times the work.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from compressors.base.compressor import Layout
from compressors.base.payload import PayloadError
from testbed.core.device.codecs.work import CodecTimes
from testbed.core.device.profile import Collective
from testbed.core.spec.run_spec import RunSpec
from testbed.worker.device.median import repeated
from testbed.worker.profile.codec_rounds import Alone, AmongAll, Timed, planner
from testbed.worker.training.parts import build_parts

_MAX_TOTAL_S = 90.0
"""For what all ranks do in one process, of all buckets."""
_TRY_S, _REPEAT_S = 0.4, 0.8
"""For trying steps with one size of bucket, and for measuring the heaviest; the first is tried in any case, and one is
measured some times at least."""
_STRETCH, _PLAN_S = 128, 0.2
"""Steps in a row that are looked at, at the beginning, in the middle and at the end; and what that may take."""


def codec_times(spec: RunSpec, layouts: Sequence[Layout]) -> tuple[tuple[CodecTimes, ...], list[Collective]]:
    """Of each size of bucket, and all collectives of a step.

    Raises:
        InputError: a codec can be timed among all ranks only, and they do not fit this process, or take too long.
    """
    by_elements: dict[int, Timed] = {}
    end_s = time.monotonic() + _MAX_TOTAL_S
    for layout in layouts:
        if layout.numel not in by_elements:
            by_elements[layout.numel] = _of(spec, layout, end_s)
    codec = tuple(
        CodecTimes(elements=n, rounds=by_elements[n].rounds, work=by_elements[n].work) for n in sorted(by_elements)
    )
    return codec, [collective for layout in layouts for collective in by_elements[layout.numel].collectives]


def _of(spec: RunSpec, layout: Layout, end_s: float) -> Timed:
    steps = _steps(spec, layout)
    try:
        return _heaviest(Alone(spec, layout), steps)
    except PayloadError as error:
        return _heaviest(AmongAll(spec, layout, error, end_s), steps)


def _heaviest(bucket: Alone | AmongAll, steps: Sequence[int]) -> Timed:
    tried: dict[int, Timed] = {}
    end_s = time.monotonic() + _TRY_S
    for step in steps:
        first, again = bucket.once(step), bucket.once(step)
        tried[step] = min(first, again, key=lambda timed: timed.seconds)
        if time.monotonic() > end_s:
            break
    step = max(tried, key=lambda step: tried[step].seconds)
    medians = repeated(lambda: {str(i): s for i, (_, s) in enumerate(bucket.once(step).rounds)}, _REPEAT_S)
    found = tried[step]
    rounds = tuple(
        (
            name,
            max(medians.get(str(i), 0.0), *(other.rounds[i][1] for other in tried.values() if i < len(other.rounds))),
        )
        for i, (name, _) in enumerate(found.rounds)
    )
    return Timed(rounds, found.collectives, bucket.work(step))


def _steps(spec: RunSpec, layout: Layout) -> list[int]:
    """Which to try, the most usual one first: those with the largest and the smallest payloads, and some spread over
    the run. Steps in which nothing is sent are none of them, unless there are no others."""
    count = build_parts(spec).steps(spec)
    reducer = planner(spec)
    sending: dict[int, list[int]] = {}
    idle: list[int] = []
    end_s = time.monotonic() + _PLAN_S
    for step in _looked_at(count):
        size_bytes = reducer.compressor.payload_bytes(layout, reducer.context(layout, step))
        (sending.setdefault(size_bytes, []) if size_bytes else idle).append(step)
        if time.monotonic() > end_s:
            break
    if not sending:
        return [count // 2]
    usual = max(sending.values(), key=len)
    extremes = [sending[size][-1] for size in (max(sending), min(sending)) if len(sending) > 1]
    spread = [step for step in _spread(count) if step not in idle]
    return list(dict.fromkeys([usual[len(usual) // 2], *extremes, *spread]))


def _spread(count: int) -> list[int]:
    return [count // 2, 0, count - 1, count // 4, 3 * count // 4]


def _looked_at(count: int) -> Iterator[int]:
    """`_spread` first, in case time runs out."""
    starts = [max(0, count // 2 - _STRETCH // 2), 0, max(0, count - _STRETCH)]
    stretches = [step for start in starts for step in range(start, min(count, start + _STRETCH))]
    yield from dict.fromkeys([*_spread(count), *stretches])
