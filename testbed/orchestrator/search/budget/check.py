"""Some points of a budget emulated, by the way of every run: predicted against measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.core.errors import EXIT_COMPLETED, EXIT_FAILED, EXIT_INVALID
from testbed.core.units import format_rate
from testbed.orchestrator.executors import executor, registry
from testbed.orchestrator.run.seal import seal_killed_or_say
from testbed.orchestrator.run_store.ended import KeptRun, KeptRuns
from testbed.orchestrator.search.budget.pairs import Pair
from testbed.orchestrator.search.budget.request import RATE, RTT, BudgetRequest
from testbed.orchestrator.search.sweep.axes import Value
from testbed.orchestrator.search.sweep.grid import Point
from testbed.orchestrator.search.sweep.retry import Made, RetryingRunner
from testbed.orchestrator.search.sweep.specs import ask_all
from testbed.orchestrator.terminal.terminal import say


def chosen(content: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """So many points at which a rate does, from that which sends least to that which sends most, evenly between."""
    found = [
        {"values": row["values"], "strategy": row["strategy"], "compressor": row["compressor"],
         "gb": row["gb"]["estimate"], **point}
        for row in content["pairs"]
        for point in row.get("points", ())
        if point["rate_bit_s"]["estimate"] is not None
    ]  # fmt: skip
    found.sort(key=lambda one: (one["gb"], one["rate_bit_s"]["estimate"]))
    if count >= len(found):
        return found
    if count == 1:
        return found[:1]
    return [found[round(place * (len(found) - 1) / (count - 1))] for place in range(count)]


def perform(
    asked: BudgetRequest,
    pairs: Sequence[Pair],
    points: Sequence[Mapping[str, Any]],
    runs_root: Path,
    *,
    share: bool,
    on_error_stream: bool,
) -> tuple[list[dict[str, Any]], int]:
    """What came of them, and the exit status.

    Raises:
        InputError, MachineError: they cannot be made here.
        Interrupted: somebody asked for the end.
    """
    if not points:
        say("nothing to check: at no round trip there is a rate that does")
        return [], EXIT_COMPLETED
    runs = [_run(asked, pairs, point) for point in points]
    specs = ask_all(runs, runs_root)
    with registry.executor(executor.LOCAL, runs_root, share=share) as place:
        seal_killed_or_say(runs_root)
        made = RetryingRunner("budget", KeptRuns(runs_root), place, on_error_stream).runs(specs)
    by_run = {id(run): one for one in made for run in one.standing.asked.points}
    found = [by_run[id(run)] for run in runs]
    return [_compared(point, one, asked) for point, one in zip(points, found, strict=True)], _exit_status(found)


def _run(asked: BudgetRequest, pairs: Sequence[Pair], point: Mapping[str, Any]) -> Point:
    pair = next(pair for pair in pairs if pair.point.plain == point["values"])
    rtt = next(one.value for one in asked.round_trips if one.seconds == point["rtt_s"])
    rate = format_rate(point["rate_bit_s"]["estimate"])
    values = {**pair.point.values, RTT: rtt, RATE: Value(f"'{rate}'", rate)}
    return Point(values, ("strategy", "compressor", RTT, RATE))


def _compared(point: Mapping[str, Any], made: Made, asked: BudgetRequest) -> dict[str, Any]:
    kept = made.standing.done
    told = {key: point[key] for key in ("strategy", "compressor", "rtt_s", "step_s", "wan_bytes_step")}
    told |= {"rate_bit_s": point["rate_bit_s"]["estimate"], "run_id": kept and kept.run_id, "why_not": made.why_not}
    if kept is None:
        return {**told, "verdict": None, "measured_step_s": None, "measured_wan_bytes_step": None}
    step_s = float(kept.summary["step_time_s"]["p50"])
    predicted = point["step_s"]
    return {
        **told,
        "verdict": kept.verdict,
        "measured_step_s": step_s,
        "measured_wan_bytes_step": _wan_bytes_step(kept),
        "error": predicted["estimate"] / step_s - 1,
        "is_within": predicted["low"] <= step_s <= predicted["high"],
        "meets_target": step_s <= asked.target_step_s,
    }


def _wan_bytes_step(kept: KeptRun) -> float | None:
    sent, steps = kept.summary["bytes"]["wire_wan"], kept.summary["steps"]
    return sent / steps if sent is not None and steps else None


def _exit_status(found: Sequence[Made]) -> int:
    lacking = [one.standing for one in found if one.why_not is not None]
    if not lacking:
        return EXIT_COMPLETED
    are_invalid = all(one.run is not None and one.run.is_completed for one in lacking)
    return EXIT_INVALID if are_invalid else EXIT_FAILED
