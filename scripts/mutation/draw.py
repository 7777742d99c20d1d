"""Mutants drawn by a seed: a function of a side, a kind of fault that fits it, and a place."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.mutation.faults import Fault, Source, compiled, faults, functions

SIDES: Mapping[str, Sequence[str]] = {
    "core": ("testbed/core",),
    "orchestrator": ("testbed/orchestrator",),
    "worker": ("testbed/worker",),
    "analysis": ("testbed/analysis",),
    "compressors": ("compressors",),
    "topologies": ("topologies",),
    "dashboards": ("dashboards",),
    "experiments": ("experiments/common", "experiments/reproductions"),
}
"""Folders of each side, in the order in which sides take turns."""
MAX_MISSES = 10_000


class NoPlace(Exception):
    """A side has no function left in which a fault could be planted."""


@dataclass(frozen=True)
class Mutant:
    """One fault in one function of a tree."""

    side: str
    path: str
    line: int
    function: str
    kind: str
    start: int
    end: int
    after: str
    was: str
    """The lines that change, without their indent."""
    becomes: str
    changes: bool
    """False if the bytecode stays the same."""

    def plant(self, text: str) -> str:
        return Fault(self.start, self.end, self.kind, self.after).plant(text)


def draws(root: Path, side: str, seed: str) -> Iterator[Mutant]:
    """Mutants of one side without end, none twice; the same for the same seed and tree.

    Functions are equally likely, then the kinds of fault that fit the function, then the places for that kind.
    """
    draw = random.Random(f"{seed} {side}")
    paths = [path for folder in SIDES[side] for path in sorted((root / folder).rglob("*.py"))]
    candidates = [(path, n) for path in paths for n, _ in enumerate(functions(ast.parse(path.read_text())))]
    seen: set[Mutant] = set()
    misses = 0
    while candidates and misses < MAX_MISSES:
        mutant = _drawn(draw, root, side, *draw.choice(candidates))
        if mutant is None or mutant in seen:
            misses += 1
            continue
        seen.add(mutant)
        yield mutant
    raise NoPlace(f"{side}: no function has a place left for a fault")


def _drawn(draw: random.Random, root: Path, side: str, path: Path, number: int) -> Mutant | None:
    """A mutant of the function of this number in its file; None if the fault that was drawn does not compile."""
    text = path.read_text()
    name, function = list(functions(ast.parse(text)))[number]
    kinds: dict[str, list[Fault]] = {}
    for fault in faults(Source(text), function):
        kinds.setdefault(fault.kind, []).append(fault)
    if not kinds:
        return None
    fault = draw.choice(kinds[draw.choice(sorted(kinds))])
    planted = fault.plant(text)
    meaning = compiled(planted)
    if meaning is None:
        return None
    was, becomes = _lines(text, fault.start, fault.end), _lines(planted, fault.start, fault.start + len(fault.after))
    return Mutant(
        side=side,
        path=path.relative_to(root).as_posix(),
        line=text.count("\n", 0, fault.start) + 1,
        function=name,
        kind=fault.kind,
        start=fault.start,
        end=fault.end,
        after=fault.after,
        was=was,
        becomes=becomes,
        changes=meaning != compiled(text),
    )


def _lines(text: str, start: int, end: int) -> str:
    """The lines that hold a span, as one line."""
    first = text.rfind("\n", 0, start) + 1
    last = text.find("\n", end)
    return " ".join(text[first : last if last >= 0 else None].split())
