"""The axes of a sweep, and the points of its grid: one run each."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from testbed.core.errors import InputError, raise_input_faults
from testbed.orchestrator.config.grammar.offers import Offer
from testbed.orchestrator.config.grammar.overrides import unknown
from testbed.orchestrator.search.sweep.axes import Axis, Condition, Value, read_axes
from testbed.orchestrator.search.sweep.meaning import meaning

MAX_RUNS = 1000
"""Of a sweep; more would take weeks here."""
SEED = "seed"


@dataclass(frozen=True)
class Branch:
    """Axes of those runs alone for which something holds."""

    condition: Condition
    axes: tuple[Axis, ...]


@dataclass(frozen=True, eq=False)
class Point:
    """One run that is asked for; like no other, whatever its values."""

    values: Mapping[str, Value]
    """By key, in the order of the axes."""
    varying: tuple[str, ...]
    """Keys in which the runs of the sweep differ."""

    @property
    def overrides(self) -> list[str]:
        return [f"{key}={value.text}" for key, value in self.values.items()]

    @property
    def label(self) -> str:
        return " ".join(f"{key}={self.values[key].plain}" for key in self.varying if key in self.values) or "the run"

    def with_changes(self, offer: Offer) -> Point:
        """Return the point with the overrides of an offer, as if they had been given."""
        kept = {key: value for key, value in self.values.items() if not offer.replaces(key)}
        return Point({**kept, **{key: Value(text, text) for key, text in offer.changes.items()}}, self.varying)

    @property
    def plain(self) -> dict[str, str]:
        return {key: value.plain for key, value in self.values.items()}


@dataclass(frozen=True)
class Grid:
    name: str
    """Name that messages and tables have."""
    axes: tuple[Axis, ...]
    branches: tuple[Branch, ...] = ()
    exclude: tuple[Condition, ...] = ()
    max_hours: float | None = None
    executors: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Options of executors, by their names."""
    given: frozenset[str] = field(default_factory=frozenset)
    """Keys from the command line, by which conditions of a file may come to hold for no run."""
    place: str = ""
    """End of the folder's name, by which two files of one name have folders of their own."""

    @property
    def folder(self) -> str:
        """Name of the folder that takes the results."""
        return f"{self.name}{self.place}"

    @property
    def keys(self) -> tuple[str, ...]:
        found = [*self.axes, *(axis for branch in self.branches for axis in branch.axes)]
        return tuple(dict.fromkeys(axis.key for axis in found))

    @property
    def most_s(self) -> float | None:
        return None if self.max_hours is None else 3600 * self.max_hours

    def within(self, max_hours: float | None) -> Grid:
        """The same sweep, by its name too, in so much time; in its own where none is given."""
        return self if max_hours is None else dataclasses.replace(self, max_hours=max_hours)

    def points(self) -> list[Point]:
        """Those of the first seed before those of the second, so that what is interrupted compares something.

        Raises:
            InputError: a condition can never hold, two give one key, there are too many points, or none.
        """
        raise_input_faults(self._faults())
        count = math.prod(len(axis.values) for axis in self.axes)
        if count > MAX_RUNS:
            raise InputError(f"{self.name}: {count} runs without those of `when`; {MAX_RUNS} at most")
        choices = itertools.product(*([(axis.key, value) for value in axis.values] for axis in self.axes))
        found = [dict(choice) for choice in choices]
        for branch in self.branches:
            found = list(self._branched(found, branch))
        found = [values for values in found if not any(condition.holds(values) for condition in self.exclude)]
        if not found:
            raise InputError(f"{self.name}: `exclude` leaves no run")
        found = list(_in_one_spelling(found))
        varying = tuple(key for key in self.keys if len({values.get(key) for values in found}) > 1)
        seeds = [value for axis in self.axes if axis.key == SEED for value in axis.values]
        found.sort(key=lambda values: seeds.index(values[SEED]) if seeds else 0)
        return [Point(values, varying) for values in found]

    def _branched(self, points: Sequence[dict[str, Value]], branch: Branch) -> Iterator[dict[str, Value]]:
        count = 0
        for values in points:
            if not branch.condition.holds(values):
                chosen: list[dict[str, Value]] = [values]
            else:
                if twice := [axis.key for axis in branch.axes if axis.key in values]:
                    raise InputError(
                        f"{self.name}: when {branch.condition.text}: {', '.join(twice)} has a value already"
                    )
                choices = itertools.product(*([(axis.key, value) for value in axis.values] for axis in branch.axes))
                chosen = [values | dict(choice) for choice in choices]
            count += len(chosen)
            if count > MAX_RUNS:
                raise InputError(f"{self.name}: more than {MAX_RUNS} runs; that many at most")
            yield from chosen

    def _faults(self) -> Iterator[str]:
        known: dict[str, dict[Hashable, str]] = {key: {} for key in self.keys}
        for axis in [*self.axes, *(axis for branch in self.branches for axis in branch.axes)]:
            known[axis.key] |= axis.meanings
        named = [*(("when", branch.condition) for branch in self.branches), *(("exclude", one) for one in self.exclude)]
        for where, condition in named:
            for key, wanted in condition.wanted.items():
                asked = f"{self.name}: {where} {condition.text}"
                if key not in known:
                    yield unknown(asked, key, known, "axis")
                elif key not in self.given and (never := sorted(wanted[one] for one in wanted.keys() - known[key])):
                    taken = ", ".join(sorted(known[key].values()))
                    yield f"{asked}: {key} is never {', '.join(never)}; it takes {taken}"
        for branch in self.branches:
            if SEED in (axis.key for axis in branch.axes):
                yield f"{self.name}: when {branch.condition.text}: seed is an axis of all runs or of none"


def _in_one_spelling(points: Sequence[Mapping[str, Value]]) -> Iterator[dict[str, Value]]:
    """Yield the values of each point, each in the spelling in which it comes first."""
    first: dict[tuple[str, Hashable], Value] = {}
    for values in points:
        yield {key: first.setdefault((key, meaning(key, value.text)), value) for key, value in values.items()}


def at_path(grid: Grid, path: Path) -> Grid:
    """Return the sweep as that of a file of the user's, whose results no other file of this name replaces."""
    return dataclasses.replace(grid, place=f"-{_digest([str(path.resolve())])}")


def ad_hoc(texts: Sequence[str]) -> Grid:
    """
    Raises:
        InputError: with every fault at once.
    """
    return Grid(name=f"grid-{_digest(texts)}", axes=tuple(read_axes(texts)))


def with_given(grid: Grid, texts: Sequence[str]) -> Grid:
    """What the command line says in place of the file's axes, or beside them; another name, since it is another sweep.

    Raises:
        InputError: with every fault at once.
    """
    if not texts:
        return grid
    given = {axis.key: axis for axis in read_axes(texts)}
    branches = tuple(
        Branch(branch.condition, tuple(given.get(axis.key, axis) for axis in branch.axes)) for branch in grid.branches
    )
    new = [axis for key, axis in given.items() if key not in grid.keys]
    return Grid(
        name=f"{grid.name}-{_digest(texts)}",
        axes=(*(given.get(axis.key, axis) for axis in grid.axes), *new),
        branches=branches,
        exclude=grid.exclude,
        max_hours=grid.max_hours,
        executors=grid.executors,
        given=frozenset(given),
        place=grid.place,
    )


def _digest(texts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:8]
