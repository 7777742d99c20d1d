"""What a benchmark is: a folder of `experiments/benchmarks/` whose `declaration.py` has a BENCHMARK.

experiments/benchmarks/NAME/measure.py        what is measured: `points`, `measure`, and where needed `depends_on`
experiments/benchmarks/NAME/tables.py         what the points come to: a table, perhaps a figure
experiments/benchmarks/NAME/declaration.py    BENCHMARK: which page takes the table, which file the figure

Folders are found, not listed: to add a benchmark is to add its folder, and a region `NAME` to its page.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from experiments.common.tables import Extract
from testbed.orchestrator.machine.clone import CLONE

FOLDER = CLONE / "experiments" / "benchmarks"
RESULTS = FOLDER / "results"
AGAINST = "LONGHAUL_BENCH_AGAINST"
"""Environment variable that tells a point of the clone given by `--against`."""


@dataclass(frozen=True)
class Point:
    """One measurement.

    Args:
        asked: Arguments of `measure`.
        seconds: About how long it takes, in wall time.
    """

    asked: dict[str, Any]
    seconds: float

    @property
    def key(self) -> str:
        return json.dumps(self.asked, sort_keys=True)


@dataclass(frozen=True)
class Figure:
    """A figure of all measured points.

    Args:
        path: SVG file, relative to the clone.
        draw: Returns its text.
    """

    path: str
    draw: Callable[..., str]


@dataclass(frozen=True)
class ShortTable:
    """A shorter table on a second page.

    Args:
        page: Relative to the clone; has a region of the benchmark's name.
        table: Returns its text.
    """

    page: str
    table: Callable[..., str]


@dataclass(frozen=True)
class Benchmark:
    """One benchmark, as its folder declares it.

    Args:
        measure: Module with `points(*, quick)` and `measure(**asked)`. It may have `depends_on(**asked)`, the files
            that its figures depend on in addition to its own (without it: the emulated network's), `prepare()`, called
            once before the first point and outside of namespaces, TIMELESS, true where
            figures are the same however busy the machine is, TABLE_WITHOUT_POINTS, true where its table says something
            before anything was measured, and RUNS_COMMANDS, true where a point is a command as a
            user gives it: outside of namespaces, and it locks the machine itself.
        table: Takes the measured points, and for each name in `beside` the points of that benchmark.
        order: Place among all benchmarks in lists; pages have their regions where they stand.
        page: Relative to the clone; has a region of the benchmark's name, and one called `machine`.
        beside: Names of benchmarks whose points the table needs too.
        extract: Rows and columns that the page shows; None: the whole table. With it, docs/tables/NAME.csv has all.
    """

    measure: ModuleType
    table: Callable[..., str]
    order: int
    page: str = "docs/benchmarks.md"
    figure: Figure | None = None
    short: ShortTable | None = None
    beside: tuple[str, ...] = ()
    extract: Extract | None = None

    @property
    def name(self) -> str:
        """Name of its folder."""
        return self.measure.__name__.split(".")[-2]

    @property
    def pages(self) -> list[str]:
        """Pages with its table, the longer one first."""
        return [self.page, *([self.short.page] if self.short else [])]

    @property
    def is_timeless(self) -> bool:
        return bool(getattr(self.measure, "TIMELESS", False))

    @property
    def has_table_without_points(self) -> bool:
        return bool(getattr(self.measure, "TABLE_WITHOUT_POINTS", False))

    @property
    def runs_commands(self) -> bool:
        """True if its points lock the machine themselves."""
        return bool(getattr(self.measure, "RUNS_COMMANDS", False))

    def points(self, *, quick: bool = False) -> list[Point]:
        found: list[Point] = self.measure.points(quick=quick)
        return found


def find_benchmarks(folder: Path = FOLDER) -> dict[str, Benchmark]:
    """Return all benchmarks by name, in their order."""
    found = [load(path.parent.name) for path in folder.glob("*/declaration.py")]
    return {one.name: one for one in sorted(found, key=lambda one: (one.order, one.name))}


def load(name: str) -> Benchmark:
    """Return the benchmark of the folder `name`."""
    found: Benchmark = importlib.import_module(f"experiments.benchmarks.{name}.declaration").BENCHMARK
    return found
