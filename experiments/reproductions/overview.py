"""The ledger of all systems in README.md and their counts in docs/reproductions.md, from the recorded results, and the
list of benchmarks in docs/artifact.md."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.common.benchmark import Benchmark, find_benchmarks
from experiments.common.harness import total_s
from experiments.common.page import between
from experiments.common.papers.claim import CLASSES, OWN, PAPERS
from experiments.common.papers.declaration import FOLDER, System, find_systems
from experiments.common.tables import number, table
from experiments.reproductions.ledger import VERDICTS, in_words
from experiments.reproductions.outcome import judged_again
from experiments.reproductions.plan import MAX_S
from testbed.core.errors import InputError
from testbed.core.files import read_object
from testbed.orchestrator.machine.clone import CLONE

PAGE = CLONE / "docs" / "reproductions.md"
ARTIFACT = CLONE / "docs" / "artifact.md"
README = CLONE / "README.md"
_SHORT = {PAPERS: "paper", OWN: "own"}
ALL_REGION, FIGURES_REGION, LEDGER_REGION = "reproductions", "figures", "ledger"


@dataclass(frozen=True)
class Recorded:
    """A system and its `result.json`, judged by the ledger; empty where nothing has been recorded yet."""

    system: System
    result: Mapping[str, Any]

    @property
    def emulated(self) -> float | None:
        return self.result.get("emulated")

    @property
    def verdict(self) -> str | None:
        return self.result.get("verdict")

    @property
    def standing(self) -> str:
        """The verdict, and which others its interval reaches; or why there is none."""
        standing = in_words(str(self.result.get("standing", "not measured")))
        reaches = self.result.get("reaches")
        return f"{standing} (interval reaches {', '.join(reaches)})" if reaches else standing

    @property
    def verdict_words(self) -> str:
        """The standing without the number of repeats, which has a column of its own."""
        return "no verdict" if self.standing.endswith("no verdict") else self.standing

    @property
    def interval(self) -> str:
        ends = self.result.get("interval")
        return "-" if ends is None else f"{ends[0]:.2f} to {ends[1]:.2f}"


def recorded(systems: Sequence[System], results: Path = FOLDER) -> list[Recorded]:
    """
    Raises:
        InputError: a file that is there cannot be read.
    """
    found, faults = [], []
    for system in systems:
        path = results / system.folder / "result.json"
        try:
            found.append(Recorded(system, judged_again(system, read_object(path)) if path.exists() else {}))
        except (OSError, ValueError, KeyError, TypeError) as error:
            faults.append(f"{path}: {error!r}; put it back, or remove it")
    if faults:
        raise InputError(*faults)
    return found


def write(results: Path = FOLDER, page: Path = PAGE, artifact: Path = ARTIFACT, readme: Path = README) -> None:
    """Rewrite the regions of the pages from what is recorded.

    Raises:
        InputError: a page or its region is not there, or a result cannot be read.
    """
    all_of = recorded(find_systems(None), results)
    for path, name, content in (
        (readme, LEDGER_REGION, f"{counts_line(all_of)}\n\n{ledger_table(all_of)}"),
        (page, ALL_REGION, f"{counts_line(all_of)}\n\n{minutes_line(all_of)}"),
        (artifact, FIGURES_REGION, benchmarks_list()),
    ):
        try:
            path.write_text(between(path.read_text(), name, content))
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: the region {name} cannot be written: {error}") from error


def counts_line(all_of: Sequence[Recorded]) -> str:
    """Return how many systems of each class have which verdict."""
    parts = []
    for kind in CLASSES:
        counts = Counter(one.verdict or "without a verdict" for one in all_of if one.system.terms.kind == kind)
        said = [f"{counts[name]} {in_words(name)}" for name in (*VERDICTS, "without a verdict") if counts[name]]
        if said:
            parts.append(f"{kind}: {counts.total()} system{'s' * (counts.total() > 1)}, {', '.join(said)}")
    line = "; ".join(parts)
    return f"{line[:1].upper()}{line[1:]}."


def ledger_table(all_of: Sequence[Recorded]) -> str:
    """Return a row for each system, with its page as README.md has it."""
    return table(
        ("system", "class", "claimed", "emulated", "95 % interval", "repeats", "verdict"),
        [
            (
                f"[{one.system.name}](docs/reproductions/{one.system.name}.md)",
                _SHORT[one.system.terms.kind],
                number(one.system.claimed),
                number(one.emulated),
                one.interval,
                str(one.result["repeats"]["counted"]) if one.result else "0",
                one.verdict_words,
            )
            for one in all_of
        ],
    )


def minutes_line(all_of: Sequence[Recorded]) -> str:
    """Return how long a repeat of each system takes."""
    said = ", ".join(f"{one.system.name} {usual_s(one.system) / 60:.0f}" for one in all_of)
    return f"Minutes of one repeat: {said}."


def usual_s(system: System) -> float:
    """Return the seconds of wall time that one repeat takes about."""
    return min(sum(trial.seconds for trial in system.trials(False)), MAX_S)


def benchmarks_list() -> str:
    """Return the benchmarks of each page with the minutes that they take."""
    by_page: dict[str, list[Benchmark]] = {}
    for one in find_benchmarks().values():
        by_page.setdefault(one.page, []).append(one)
    return "\n".join(
        f"- {_link(CLONE / page)}: " + ", ".join(f"`{one.name}` ({total_s(one.points()) / 60:.0f})" for one in several)
        for page, several in by_page.items()
    )


def _link(path: Path) -> str:
    return f"[{path.name}]({os.path.relpath(path, ARTIFACT.parent)})"
