"""Pages with the benchmarks' tables, each between its markers, from the JSON files; what is around them is written by
hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.benchmarks import commits
from experiments.common.benchmark import Benchmark
from experiments.common.harness import Results, code_hash
from experiments.common.page import between, missing_line, not_measured
from experiments.common.tables import Found, extracted, write_csv
from testbed.orchestrator.machine.clone import CLONE


def write(benchmarks: Mapping[str, Benchmark], results: Mapping[str, Results], root: Path = CLONE) -> list[str]:
    """Rewrite the regions of these benchmarks, and their figures; return what pages lack, which they say too.

    Args:
        results: By name.
        root: Pages and figures are in it.

    Raises:
        ValueError: A page does not have a region.
    """
    asked = {name: results[name].of(one.points()) for name, one in benchmarks.items()}
    found = {name: points for name, (points, _) in asked.items()}
    texts = {page: (root / page).read_text() for one in benchmarks.values() for page in one.pages}
    lacks = []
    for name, benchmark in benchmarks.items():
        points, missing = asked[name]
        is_shown = points or benchmark.has_table_without_points
        content = [_shown(benchmark, table_of(benchmark, found), root)] if is_shown else []
        if missing:
            lacks.append(f"{name}: {missing_line(missing, len(points))}")
            content.append(not_measured(missing, len(points)))
        texts[benchmark.page] = between(texts[benchmark.page], name, "\n\n".join(content))
        if short := benchmark.short:
            texts[short.page] = between(texts[short.page], name, short.table(points) if points else "Not measured yet.")
        if benchmark.figure and points:
            (root / benchmark.figure.path).write_text(benchmark.figure.draw(points))
    for page in sorted({one.page for one in benchmarks.values()}):
        here = [(one, found[name]) for name, one in benchmarks.items() if one.page == page]
        texts[page] = between(texts[page], "machine", machines(here))
    for page, text in texts.items():
        (root / page).write_text(text)
    commits.write(found, root)
    return lacks


def _shown(benchmark: Benchmark, table: str, root: Path) -> str:
    if benchmark.extract is None:
        return table
    write_csv(table, benchmark.name, root)
    return extracted(table, benchmark.name, benchmark.page, benchmark.extract)


def table_of(benchmark: Benchmark, found: Mapping[str, Sequence[Found]]) -> str:
    """
    Args:
        found: points by benchmark: its own, and those that its table needs beside them.
    """
    return benchmark.table(found[benchmark.name], *(found.get(name, ()) for name in benchmark.beside))


def machines(found: Sequence[tuple[Benchmark, Sequence[Found]]]) -> str:
    """A paragraph for each machine that has measured some of these points, not for the one that writes."""
    by_machine: dict[str, list[tuple[Benchmark, Found]]] = {}
    for benchmark, points in found:
        for point in points:
            by_machine.setdefault(_machine(point["machine"]), []).append((benchmark, point))
    said = (f"{machine}, {_measured(points)}" for machine, points in sorted(by_machine.items()))
    return "\n\n".join(said) or "Not measured yet."


def _machine(made: Mapping[str, Any]) -> str:
    memory_gib = made["memory_bytes"] / 2**30
    return f"{made['cores']} cores ({made['cpu']}), {memory_gib:.1f} GiB, Linux {made['kernel']}"


def _measured(points: Sequence[tuple[Benchmark, Found]]) -> str:
    """When, and how many of them are to be taken with care."""
    days = sorted(point["measured_at"][:10] for _, point in points)
    disturbed = sum(point["is_disturbed"] for _, point in points)
    stale = sum(point["code_hash"] != code_hash(benchmark, point["asked"]) for benchmark, point in points)
    shapers = sorted({point["result"].get("shaper", "") for _, point in points} - {""})
    shaped = f"shaper {', '.join(shapers)}, " if shapers else ""
    return (
        f"{shaped}{' to '.join(dict.fromkeys((days[0], days[-1])))}: {len(points)} points, {disturbed} disturbed,"
        f" {stale} from older code."
    )
