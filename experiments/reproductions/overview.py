"""The table of all systems in docs/reproductions.md, and the map of docs/artifact.md from claims to the commands that
make their figures; both from the recorded results."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.common.benchmark import find_benchmarks
from experiments.common.harness import total_s
from experiments.common.page import between
from experiments.common.papers.declaration import FOLDER, System, find_systems
from experiments.common.tables import number, table
from experiments.reproductions.outcome import MIN_RATIO, SHARE_OF_THE_GAIN
from experiments.reproductions.plan import MAX_S
from testbed.core.errors import InputError
from testbed.core.files import read_object
from testbed.orchestrator.machine.clone import CLONE

PAGE = CLONE / "docs" / "reproductions.md"
ARTIFACT = CLONE / "docs" / "artifact.md"
TABLE_REGION, CLAIMS_REGION, FIGURES_REGION = "reproductions", "claims", "figures"


@dataclass(frozen=True)
class Recorded:
    """A system, and its `result.json`; empty where nothing has been recorded yet."""

    system: System
    result: Mapping[str, Any]

    @property
    def emulated(self) -> float | None:
        return self.result.get("emulated")

    @property
    def verdict(self) -> str:
        return self.result.get("verdict") or "-"


def recorded(systems: Sequence[System], results: Path = FOLDER) -> list[Recorded]:
    """
    Raises:
        InputError: a file that is there cannot be read.
    """
    found, faults = [], []
    for system in systems:
        path = results / system.folder / "result.json"
        try:
            found.append(Recorded(system, read_object(path) if path.exists() else {}))
        except (OSError, ValueError) as error:
            faults.append(f"{path}: {error}")
    if faults:
        raise InputError(*faults)
    return found


def write(results: Path = FOLDER, page: Path = PAGE, artifact: Path = ARTIFACT) -> None:
    """Rewrite the regions of both pages from what is recorded.

    Raises:
        InputError: a page or its region is not there, or a result cannot be read.
    """
    all_of = recorded(find_systems(None), results)
    for path, name, content in (
        (page, TABLE_REGION, systems_table(all_of)),
        (artifact, CLAIMS_REGION, claims_table(all_of)),
        (artifact, FIGURES_REGION, figures_table()),
    ):
        try:
            path.write_text(between(path.read_text(), name, content))
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: the table of all systems cannot be written: {error}") from error


def systems_table(all_of: Sequence[Recorded]) -> str:
    """A row for each system."""
    return table(
        ("system", "the paper's claim", "claimed", "emulated", "verdict", "about, min", "command"),
        [
            (
                f"[{one.system.name}](reproductions/{one.system.name}.md)",
                one.system.claim,
                number(one.system.claimed),
                number(one.emulated),
                one.verdict,
                f"{usual_s(one.system) / 60:.0f}",
                f"`make reproduce SYSTEM={one.system.name}`",
            )
            for one in all_of
        ],
    )


def usual_s(system: System) -> float:
    """Of wall time that a call without FULL and SEEDS takes where no run is there yet, about."""
    return min(sum(trial.seconds for trial in system.trials(False)), MAX_S)


def claims_table(all_of: Sequence[Recorded]) -> str:
    """From a claim to its script, its figure, and how far off the figure may be."""
    return table(
        (
            *("claim", "source", "script", "figure", "what is compared", "reproduced from", "recorded"),
            *("to the next verdict", "runs"),
        ),
        [
            (
                f"{one.system.name}: {one.system.claimed:g} times",
                one.system.source,
                f"[declaration.py](../experiments/reproductions/{one.system.folder}/declaration.py)",
                f"[table](reproductions/{one.system.name}.md#answer)",
                f"{one.system.figure_name} ({'more' if one.system.higher_is_better else 'less'} is better)",
                f"{least(one.system):.2f}",
                f"{number(one.emulated)}, {one.verdict}",
                _room(one),
                str(sum(len(ids) for ids in one.result["runs"].values())) if one.result else "-",
            )
            for one in all_of
        ],
    )


def least(system: System) -> float:
    """The ratio from which the verdict is `reproduced`."""
    return 1 + SHARE_OF_THE_GAIN * (system.claimed - 1)


def _room(one: Recorded) -> str:
    """By how many per cent the recorded ratio would have to move for another verdict."""
    if one.emulated is None:
        return "-"
    nearest = min((least(one.system), MIN_RATIO), key=lambda bound: abs(bound / one.emulated - 1))
    return f"{(nearest / one.emulated - 1) * 100:+.0f} %"


def figures_table() -> str:
    """From a benchmark to the pages with its tables, its figure, and the file both are made from."""
    return table(
        ("command", "table", "figure", "about, min", "keeps its points in"),
        [
            (
                f'`make bench BENCH="--only {name}"`',
                ", ".join(_link(CLONE / page) for page in one.pages),
                _link(CLONE / one.figure.path) if one.figure else "-",
                f"{total_s(one.points()) / 60:.0f}",
                _kept(f"experiments/benchmarks/results/{name}.json"),
            )
            for name, one in find_benchmarks().items()
        ],
    )


def _kept(path: str) -> str:
    return f"`{path}`" if (CLONE / path).exists() else "not measured yet"


def _link(path: Path) -> str:
    return f"[{path.name}]({os.path.relpath(path, ARTIFACT.parent)})"
