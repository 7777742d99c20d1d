"""The page of a reproduction, docs/reproductions/NAME.md: its regions with figures, all from `result.json`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from experiments.common.page import between
from experiments.common.papers.claim import PAPERS
from experiments.common.papers.declaration import System
from experiments.common.tables import Extract, csv_text, extracted, number, table
from experiments.reproductions.ledger import in_words, least
from experiments.reproductions.outcome import interval_words
from testbed.core.errors import InputError

REGIONS = ("claim", "set_up", "reproduction")
Content = Mapping[str, Any]
"""Content of `result.json`."""
_SHOWN = Extract(
    lambda row: "ours" in row and row["kind"] == "emulated",
    ("case", "ours", "best baseline", "ratio of repeats", "verdicts"),
)
"""The emulated cases; what is simulated and each configuration stand in the file of all."""


def write(system: System, content: Content, pages: Path) -> None:
    """Rewrite the regions of the system's page, and the file of its tables beside.

    Raises:
        InputError: there is no such page, or it lacks a region.
    """
    path = pages / f"{system.name}.md"
    made = {"claim": claim_region, "set_up": set_up_region, "reproduction": result_region}
    try:
        text = path.read_text()
        for name in REGIONS:
            text = between(text, name, made[name](system, content))
        path.write_text(text)
        if _has_figures(content):
            (pages.parent / "tables").mkdir(exist_ok=True)
            (pages.parent / "tables" / f"{_name_of_tables(system)}.csv").write_text(csv_text(_tables(system, content)))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: the page of SYSTEM={system.name} cannot be written: {error}") from error


def claim_region(system: System, content: Content) -> str:
    """Return the claim, its source, its class unless it is the paper's, and the ratio from which it counts."""
    kind = "" if content["class"] == PAPERS else f" Class: {content['class']}."
    return (
        f"{system.claim[0].upper()}{system.claim[1:]}.\n\n"
        f"Source: {system.source}.{kind} Reproduced from a ratio of {least(system.claimed):.3g} on."
    )


def set_up_region(system: System, content: Content) -> str:
    """Return the claimed and our own set-up, a line for each part."""
    del system
    paper, ours = content["set_ups"]["paper"], content["set_ups"]["ours"]
    return "\n".join(f"- {name}: {paper[name]}. Here: {ours[name]}" for name in ours)


def result_region(system: System, content: Content) -> str:
    """Return standing, reasons, and the cases that were emulated."""
    file = f"[result.json](../../experiments/reproductions/{system.folder}/result.json)"
    said = [f"**{_headline(content)}**", *_reasons(content)]
    runs = sorted(run for side in content["runs"].values() for run in side)
    if not content["cases"]:
        return "\n".join([*said, "", f"{len(runs)} runs, older than the ledger: {file}."])
    machines = "; ".join(content["machines"]) or "machine not recorded"
    made = f"{machines}; {len(runs)} runs that count: {file}." if runs else f"{file}."
    parts = ["\n".join(said)]
    if _has_figures(content):
        page = f"docs/reproductions/{system.name}.md"
        parts.append(extracted(_tables(system, content), _name_of_tables(system), page, _SHOWN))
    parts.append(made)
    return "\n\n".join(parts)


def _has_figures(content: Content) -> bool:
    return any(arm["figures"] for case in content["cases"] for arm in case["arms"].values())


def _name_of_tables(system: System) -> str:
    return f"{system.name}-cases"


def _tables(system: System, content: Content) -> str:
    """Return all cases, then the configurations of all of them."""
    return f"{cases_table(content)}\n\nConfigurations\n\n{arms_table(system, content)}"


def _headline(content: Content) -> str:
    """Return claimed and emulated ratio, and the verdict or why there is none."""
    emulated = "no ratio counts" if content["emulated"] is None else f"emulated {content['emulated']:.3g}"
    missing = content["repeats"]["missing"]
    said = f"Claimed {content['claimed']:.3g}, {emulated}{interval_words(content)}: {in_words(content['standing'])}"
    return f"{said}, {missing} more needed." if missing else f"{said}."


def _reasons(content: Content) -> list[str]:
    """Return what bounds the verdict, a bullet each, beyond what the headline has."""
    said = []
    if len(content["ratios"]) > 1:
        each = ", ".join(f"{value:.3g} (seed {repeat})" for repeat, value in content["ratios"].items())
        said.append(f"Ratio of each repeat: {each}.")
    if content["reaches"]:
        said.append(f"The interval also reaches: {', '.join(content['reaches'])}.")
    if lacking := [one for one in content["missing"] if not one.endswith(" repeats")]:
        said.append(f"Missing for a verdict: {'; '.join(lacking)}.")
    said += [f"At most partly: {cap}." for cap in content["caps"]]
    if content["above_claim"]:
        said.append(f"More than a fifth above the claim: {content['explanation'] or 'not explained'}.")
    quality = content["quality"]
    if quality and quality["difference"] is not None:
        ends = quality["interval"]
        interval = f" ({ends[0]:+.2f} to {ends[1]:+.2f})" if ends else ""
        said.append(
            f"Quality against the reference: {quality['difference']:+.2f} points{interval};"
            f" {'held' if quality['held'] else 'not held'}, {quality['margin']:g} points are allowed."
        )
    return ["", *(f"- {one}" for one in said)] if said else []


def cases_table(content: Content) -> str:
    """Return a row for each case, emulated ones first."""
    rows = []
    for case in content["cases"]:
        best = case["ratio"]
        ours, theirs = (None, None) if best is None else (best["candidate"], best["baseline"])
        rows.append(
            [
                case["case"],
                case["kind"],
                ", ".join(f"{name} {value}" for name, value in case["facts"].items()) or "-",
                *(_figure(case, arm) for arm in (ours, theirs)),
                "-" if best is None else f"{best['value']:.3f} of {len(best['by_repeat'])}",
                _verdicts(case["arms"].values()),
            ]
        )
    return table(("case", "kind", "conditions", "ours", "best baseline", "ratio of repeats", "verdicts"), rows)


def arms_table(system: System, content: Content) -> str:
    """Return a row for each arm of each case."""
    rows = [
        [
            case["case"],
            case["kind"],
            f"{name} ({arm['role']})",
            _figure(case, name, named=False),
            number(arm["quality"]),
            "-" if not case["dilations"] else " ".join(f"{one:g}" for one in case["dilations"]),
            _verdicts([arm]),
        ]
        for case in content["cases"]
        for name, arm in case["arms"].items()
    ]
    quality = system.quality_name if system.quality is not None else "quality"
    return table(("case", "kind", "arm", system.figure_name, quality, "dilation", "verdicts"), rows)


def _figure(case: Content, arm: str | None, *, named: bool = True) -> str:
    """Return the median over repeats, and the arm."""
    figures = [] if arm is None else list(case["arms"][arm]["figures"].values())
    if not figures:
        return "-"
    return f"{median(figures):.4g} ({arm})" if named else f"{median(figures):.4g}"


def _verdicts(arms: Iterable[Content]) -> str:
    counts: dict[str, int] = {}
    for arm in arms:
        for verdict, count in arm["verdicts"].items():
            counts[verdict] = counts.get(verdict, 0) + count
    return ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
