"""Rules of tensor fusion, and the search of a size of buckets against an exhaustive one, before and after a change.

A MobileNetV2's bytes on four workers in two regions, strategy `dear`: at 10 ms, where overlap counts, and at 60 ms,
where every bucket costs round trips. The searching run goes through both.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.common import sources
from experiments.common.benchmark import Point
from experiments.common.whole_run import WholeRun, perform
from testbed.core.models.catalogue import find_model

MODEL, STEP_S, WORKERS = "mobilenet_v2", 0.6, 4
RATE = "200 Mbit/s"
RTTS_S = (0.010, 0.060)
SHARES = ("1", "1.25", "1.5", "2", "3", "4", "8", "16", "64")
"""By how much the size of buckets is smaller than all gradients; 1: one bucket."""
RULES = ("first_small", "layers", "mg_wfbp")
RULED, STARTED = "4", "64"
"""Of `SHARES`: the size that a rule has which needs one, and where the search starts."""
TUNED = "tuned"
DILATION = 1
"""The same for all, so that a message costs each the same."""
CHANGE_S = 110.0
"""When the round trip becomes the second one, long after ten trials at the first."""
_STEPS, _TUNED_STEPS, _AFTER = 8, 190, 3
_SECONDS, _TUNED_SECONDS = 32, 290
_LIMIT_S = 600.0


def points(*, quick: bool) -> list[Point]:
    tuned = Point({"kind": TUNED, "rtt_s": None, "repeat": 0}, _TUNED_SECONDS)
    if quick:
        return [tuned]
    fixed = [(kind, rtt_s) for rtt_s in RTTS_S for kind in (*SHARES, *RULES)]
    return [tuned, *(Point({"kind": kind, "rtt_s": rtt_s, "repeat": 0}, _SECONDS) for kind, rtt_s in fixed)]


def total_bytes() -> int:
    return 4 * sum(layer.numel for layer in find_model(MODEL).layers)


def size_bytes_of(share: str) -> int:
    return int(total_bytes() / float(share))


def depends_on(**_: Any) -> Iterator[Path]:
    return sources.of_whole_runs()


def measure(kind: str, rtt_s: float | None, repeat: int) -> dict[str, Any]:
    """A fixed size or rule; or, where `kind` is "tuned", the search over both round trips."""
    del repeat
    first_s = RTTS_S[0] if rtt_s is None else rtt_s
    size_bytes = size_bytes_of(kind if kind in SHARES else STARTED if kind == TUNED else RULED)
    fusion = "size" if kind in SHARES else kind
    asked = [
        *("topo=wan1g", f"topo.rate='{RATE}'", f"topo.rtt='{first_s * 1e3:g} ms'", f"workers={WORKERS}"),
        *("workload=replay", f"workload.model={MODEL}", "device=paced", f"device.step_s={STEP_S}"),
        *(f"dilation={DILATION}", "evaluate_every=1000", "strategy=dear"),
        *(f"strategy.bucket_size='{size_bytes} B'", f"strategy.fusion={fusion}"),
    ]
    if kind != TUNED:
        run = perform([*asked, f"steps={_STEPS}"])
        return {**run.facts(), "buckets": len(run.model["collectives"])}
    change = f"events=[{{at: {CHANGE_S:g} s, set: all, rtt: {RTTS_S[1] * 1e3:g} ms}}]"
    run = perform([*asked, f"steps={_TUNED_STEPS}", change], limit_s=_LIMIT_S)
    return {**run.facts(), "notes": run.notes, "settled": [_settled(run, is_after) for is_after in (False, True)]}


def _settled(run: WholeRun, is_after: bool) -> dict[str, Any] | None:
    """What the search came to before or after the change, and the steps that it led to; None: it came to nothing."""
    notes = [note for note in run.notes if (note["t_s"] > CHANGE_S) == is_after]
    chosen = [note for note in notes if note["what"] == "chosen"]
    if not chosen:
        return None
    first, end = chosen[-1]["step"] + _AFTER, _TUNED_STEPS
    if not is_after:
        end = max(step for step, ranks in run.by_step.items() if max(e["t_s"] for e in ranks.values()) < CHANGE_S)
    steps_s = [
        statistics.fmean(e["step_s"] for e in ranks.values())
        for step, ranks in run.by_step.items()
        if first < step <= end and step not in run.left_out
    ]
    trials = [note for note in notes if note["what"] == "trial" and note["step"] <= chosen[-1]["step"]]
    return {
        "size_bytes": chosen[-1]["size_bytes"],
        "buckets": chosen[-1]["buckets"],
        "trials": chosen[-1]["trial"],
        "first_s": trials[0]["step_s"],
        "step_s": statistics.median(steps_s) if steps_s else None,
        "steps": len(steps_s),
    }
