"""docs/benchmarks.md and others: the tables between their markers, from the JSON files; what is around them is written
by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.benchmarks import registry as tables
from experiments.benchmarks.break_even import tables as break_even_chart
from experiments.benchmarks.break_even import tables as break_even_tables
from experiments.benchmarks.composed import tables as composed_tables
from experiments.benchmarks.compressors import tables as compression_chart
from experiments.benchmarks.compressors import tables as compression_tables
from experiments.benchmarks.dear import tables as dear_bell
from experiments.benchmarks.dear import tables as dear_tables
from experiments.benchmarks.diloco import tables as diloco_tables
from experiments.benchmarks.freezing import tables as freezing_tables
from experiments.benchmarks.fusion import tables as fusion_tables
from experiments.benchmarks.grace import tables as grace_tables
from experiments.benchmarks.kfac import second_order_tables
from experiments.benchmarks.kfac import tables as kfac_chart
from experiments.benchmarks.kfac import tables as kfac_tables
from experiments.benchmarks.plans import tables as plans_tables
from experiments.benchmarks.real_wan import tables as real_wan_chart
from experiments.benchmarks.real_wan import tables as real_wan_tables
from experiments.benchmarks.secure import tables as secure_tables
from experiments.benchmarks.strategies import tables as strategies_tables
from experiments.benchmarks.study_compressors import tables as study_compressors_tables
from experiments.benchmarks.study_scale import tables as study_scale_tables
from experiments.common.harness import Results, code_hash, points_of
from experiments.common.page import between, missing_line
from testbed.orchestrator.machine.clone import CLONE

PAGE = CLONE / "docs" / "benchmarks.md"
ELSEWHERE = {
    **dict.fromkeys(compression_tables.TABLES, CLONE / "docs" / "compressors.md"),
    **dict.fromkeys([*dear_tables.TABLES, *fusion_tables.TABLES], CLONE / "docs" / "reproductions" / "dear.md"),
    **dict.fromkeys(
        [*kfac_tables.TABLES, *second_order_tables.TABLES], CLONE / "docs" / "reproductions" / "pad-kfac.md"
    ),
    **dict.fromkeys(diloco_tables.TABLES, CLONE / "docs" / "reproductions" / "diloco.md"),
    **dict.fromkeys(grace_tables.TABLES, CLONE / "docs" / "reproductions" / "grace.md"),
    **dict.fromkeys(break_even_tables.TABLES, CLONE / "docs" / "parameter-server.md"),
    **dict.fromkeys([*composed_tables.TABLES, *secure_tables.TABLES], CLONE / "docs" / "federated.md"),
    **dict.fromkeys(plans_tables.TABLES, CLONE / "docs" / "plans.md"),
    **dict.fromkeys(real_wan_tables.TABLES, CLONE / "docs" / "studies" / "real-wan.md"),
    **dict.fromkeys(study_compressors_tables.TABLES, CLONE / "docs" / "studies" / "compressors.md"),
    **dict.fromkeys(study_scale_tables.TABLES, CLONE / "docs" / "studies" / "scale.md"),
    **dict.fromkeys(freezing_tables.TABLES, CLONE / "docs" / "freezing.md"),
    "large_batch": CLONE / "docs" / "reproductions" / "slamb.md",
    "low_rank": CLONE / "docs" / "reproductions" / "pufferfish.md",
}
"""Tables that stand on another page."""
DRAWN: Mapping[str, tuple[Path, Callable[[Sequence[tables.Found]], str]]] = {
    "compression": (CLONE / "docs" / "figures" / "wan100m-compressors.svg", compression_chart.draw),
    "dear": (CLONE / "docs" / "figures" / "dear-bell.svg", dear_bell.draw),
    "kfac": (CLONE / "docs" / "figures" / "kfac-rates.svg", kfac_chart.draw),
    "break_even": (CLONE / "docs" / "figures" / "break-even.svg", break_even_chart.draw),
    "real_wan": (CLONE / "docs" / "figures" / "study-real-wan.svg", real_wan_chart.draw),
    "study_compressors": (CLONE / "docs" / "figures" / "study-compressors.svg", study_compressors_tables.draw),
    "study_scale": (CLONE / "docs" / "figures" / "study-scale.svg", study_scale_tables.draw),
}
"""Figures of a benchmark's points."""
SHORT: dict[str, tuple[Path, Callable[[Sequence[tables.Found]], str]]] = {
    "compression": (CLONE / "README.md", compression_tables.brief),
    "strategies": (CLONE / "docs" / "strategies.md", strategies_tables.brief),
}
"""Tables that stand on a second page too, in a shorter form."""


def write(results: Mapping[str, Results]) -> list[str]:
    """Returns what the page lacks, and says so on it."""
    asked = {name: one.of(points_of(name)) for name, one in results.items()}
    found = {name: points for name, (points, _) in asked.items()}
    pages = {PAGE, *ELSEWHERE.values()}
    texts = {page: page.read_text() for page in {*pages, *(page for page, _ in SHORT.values())}}
    lacks = []
    for name, (points, missing) in asked.items():
        content = [tables.of(name, points, found["accuracy"])] if points else []
        if missing:
            said = missing_line(missing, len(points))
            lacks.append(f"{name}: {said}")
            content.append(f"**Missing**: {said}.")
        page = ELSEWHERE.get(name, PAGE)
        texts[page] = between(texts[page], name, "\n\n".join(content))
    for name, (page, short) in SHORT.items():
        texts[page] = between(texts[page], name, short(found[name]) if found[name] else "Not measured yet.")
        page.write_text(texts[page])
    for page in pages:
        here = {name: points for name, points in found.items() if ELSEWHERE.get(name, PAGE) == page}
        page.write_text(between(texts[page], "machine", machines(here)))
    for name, (path, draw) in DRAWN.items():
        if found.get(name):
            path.write_text(draw(found[name]))
    return lacks


def machines(found: Mapping[str, Sequence[tables.Found]]) -> str:
    """A paragraph for each machine that has measured some of these points, not for the one that writes.

    Args:
        found: by benchmark.
    """
    by_machine: dict[str, list[tuple[str, tables.Found]]] = {}
    for name, points in found.items():
        for point in points:
            by_machine.setdefault(_machine(point["machine"]), []).append((name, point))
    said = (f"{machine}, {_measured(points)}" for machine, points in sorted(by_machine.items()))
    return "\n\n".join(said) or "Not measured yet."


def _machine(made: Mapping[str, Any]) -> str:
    memory_gib = made["memory_bytes"] / 2**30
    return f"{made['cores']} cores ({made['cpu']}), {memory_gib:.1f} GiB, Linux {made['kernel']}"


def _measured(points: Sequence[tuple[str, tables.Found]]) -> str:
    """When, and how many of them are to be taken with care; each with the name of its benchmark."""
    days = sorted(point["measured_at"][:10] for _, point in points)
    disturbed = sum(point["is_disturbed"] for _, point in points)
    stale = sum(point["code_hash"] != code_hash(name, point["asked"]) for name, point in points)
    shapers = sorted({point["result"].get("shaper", "") for _, point in points} - {""})
    return (
        f"shaper {', '.join(shapers) or '-'}; measured {days[0]} to {days[-1]}."
        f" {len(points)} points, {disturbed} of them disturbed by other programs of the machine and marked so,"
        f" {stale} measured with older code than this."
    )
