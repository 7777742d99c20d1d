"""The table of first runs: how many were valid, and each configuration's verdicts."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.common.first_try.command import is_valid, was_restarted
from experiments.common.tables import Found, disturbed, table

_MAX_REASON = 100


def first_try(points: Sequence[Found]) -> str:
    """Return a line of sums, the table of verdicts, and that of the reasons of those that are not valid."""
    quiet = [point for point in points if not point["asked"]["load"]]
    loaded = [point for point in points if point["asked"]["load"]]
    seeds = ", ".join(sorted({str(point["asked"]["seed"]) for point in points}))
    sums = (
        f"Seed {seeds}. Without load {_sums(quiet)}{f'; next to half a busy core {_sums(loaded)}' if loaded else ''}."
        f" Longest training {max((point['result'].get('training_s') or 0 for point in points), default=0):.0f} s."
    )
    return "\n\n".join([sums, "All:", _verdicts(points), _reasons(points)]).rstrip()


def _sums(points: Sequence[Found]) -> str:
    results = [point["result"] for point in points]
    valid = [result for result in results if is_valid(result)]
    again = sum(map(was_restarted, valid))
    left_out = sum(result.get("left_out") or 0 for result in results)
    return f"{len(valid)} of {len(points)} `valid` ({again} of them after a restart; steps left out: {left_out})"


def _verdicts(points: Sequence[Found]) -> str:
    by_run: dict[str, dict[tuple[bool, int], Found]] = {}
    for point in points:
        asked = point["asked"]
        by_run.setdefault(asked["overrides"], {})[asked["load"], asked["repeat"]] = point
    passes = sorted({key for found in by_run.values() for key in found})
    heads = ["configuration", *("loaded" if load else f"quiet {repeat + 1}" for load, repeat in passes)]
    rows = [
        [f"`{overrides}`", *(_cell(found[one]) if one in found else "-" for one in passes)]
        for overrides, found in sorted(by_run.items())
    ]
    return table([f"{head}, k, wall s" if index else head for index, head in enumerate(heads)], rows)


def _cell(point: Found) -> str:
    result = point["result"]
    dilation = result.get("dilation")
    again = ", restarted" if was_restarted(result) else ""
    k = "" if dilation is None else f", {dilation:g}"
    return f"{result['verdict']}{k}, {result['wall_s']:.0f}{again}{disturbed(point)}"


def _reasons(points: Sequence[Found]) -> str:
    """Return the table of those that are not valid, each with its first reason."""
    bad = [point for point in points if not is_valid(point["result"])]
    rows = [
        [f"`{point['asked']['overrides']}`{', loaded' if point['asked']['load'] else ''}", _why(point["result"])]
        for point in bad
    ]
    return f"Not valid:\n\n{table(('configuration', 'first reason'), rows)}" if rows else ""


def _why(result: Found) -> str:
    return f"{result['verdict']}: {(result['reasons'] or ['no reason given'])[0][:_MAX_REASON]}"
