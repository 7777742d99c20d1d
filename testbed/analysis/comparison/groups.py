"""Runs of one configuration, which differ by the seed alone, taken together: what every comparison's rows are.

The code is part of the configuration, the user's too: a mean over two versions of a compressor is of neither.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from testbed.analysis.comparison.intervals import Estimate, estimate
from testbed.analysis.record.identity import (
    code_of,
    kind_of,
    script_compressor,
    seed_of,
    user_code_of,
    verdict_of,
)
from testbed.analysis.record.record import Record, is_finite
from testbed.analysis.record.run_settings import NETWORK, asked, differing, spoken
from testbed.core.record.run_row import COLUMNS
from testbed.core.spec.run_spec import RunSpec

BELIEVED = ("valid", "suspect")


@dataclass(frozen=True)
class Measure:
    """One value of a run's summary that is averaged over seeds."""

    key: str
    """Name with the base unit, as in JSON and CSV."""
    heading: str
    kind: str
    """Kind of its unit: "time", "size", or "" for plain numbers."""
    path: tuple[str, ...]
    """Where the summary has it."""

    def of(self, record: Record) -> float | None:
        """Return the run's value; None if it has none."""
        found: Any = record.summary or {}
        for key in self.path:
            found = (found or {}).get(key)
        return float(found) if is_finite(found) and not isinstance(found, bool) else None


_PATHS = {column.name: column.path for column in COLUMNS if column.kind in ("count", "number")}


def _measure(key: str, heading: str, kind: str = "") -> Measure:
    return Measure(key, heading, kind, _PATHS[key])


MEASURES = (
    _measure("metric_best", "best"),
    _measure("metric_last", "last"),
    _measure("time_to_target_s", "to target", "time"),
    _measure("time_s", "time", "time"),
    _measure("step_p50_s", "median step", "time"),
    _measure("exchange_p50_s", "median exchange", "time"),
    _measure("payload_bytes", "payload", "size"),
    _measure("wan_bytes", "WAN bytes", "size"),
    _measure("compression_ratio", "ratio"),
)
"""Columns of tables."""
_KNOWN = {measure.key for measure in MEASURES}
EXPORTED = (*MEASURES, *(_measure(key, key) for key in _PATHS if key not in {*_KNOWN, "workers", "seed"}))
"""Fields of JSON and CSV."""
_OF_METHODS = ("compressor.", "strategy.", "code", "user_code", "hook")
"""By which rows of one method alone are told apart: another method has other parameters, and files of its own."""
PROPERTIES = ("topo", "workload", "strategy", "compressor", "workers", "kind")
SETTING = ("topo", "workload", "workers", "kind")
"""What runs must share to be drawn into one figure, beside the network."""


@dataclass(frozen=True)
class Group:
    """One row: runs of one configuration."""

    records: tuple[Record, ...]
    taken: tuple[Record, ...]
    """Those whose values count."""
    method: str
    differs: str = ""
    """From others of this setting on the same page: "steps=20", and from those of its method "density=0.01"; "" where
    there is no other."""
    network: str = ""
    """What sets its network apart from others of this setting: "topo.rtt=10 ms"; unlike ones share no figure."""
    css_class: str = "row-0"
    """Its class on a page, which says nothing of its record."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings that set it apart, by key: what `differs` says."""

    @property
    def label(self) -> str:
        """Strategy, compressor and what sets the row apart."""
        return f"{self.strategy} {self.compressor} {self.differs}".rstrip()

    @property
    def strategy(self) -> str:
        """Name of the strategy; the run's id if nothing tells it."""
        return str(self.properties()["strategy"] or self.records[0].run_id)

    @property
    def compressor(self) -> str:
        """Name of the compressor, or which one a user's script chose; a dash if nothing tells it."""
        return str(self.properties()["compressor"] or "-")

    @property
    def setting(self) -> tuple[str, ...]:
        found = self.properties()
        return tuple("-" if found[key] is None else str(found[key]) for key in SETTING)

    @property
    def metric_name(self) -> str | None:
        names = (((record.summary or {}).get("metric") or {}).get("name") for record in self.records)
        return next((str(name) for name in names if name), None)

    def properties(self) -> dict[str, Any]:
        """`PROPERTIES` of all its runs; of runs without a readable spec what the summary says."""
        summary, spec = self.records[0].summary or {}, self.records[0].spec
        found = {key: summary.get(key) for key in PROPERTIES}
        if spec is not None:
            names = {"workload": spec.workload.name, "strategy": spec.strategy.name, "compressor": spec.compressor.name}
            found |= {"topo": spec.topo, **names, "workers": spec.workers}
        found |= {"compressor": script_compressor(self.records[0]) or found["compressor"]}
        return found | {"kind": kind_of(self.records[0])}

    def every_setting(self) -> dict[str, str]:
        """Return what was asked, by key, and the code; nothing if the spec cannot be read."""
        record = self.records[0]
        if record.spec is None:
            return {}
        versions = {"code": code_of(record)[:6], "user_code": (user_code_of(record) or "-")[:6]}
        return {**asked(record.spec), **versions}

    def seeds(self) -> list[int]:
        return sorted({seed_of(record) for record in self.taken})

    def verdicts(self) -> dict[str, int]:
        """How many runs have which, those that are left out too."""
        return dict(sorted(Counter(verdict_of(record) for record in self.records).items()))

    def values(self, measures: Sequence[Measure] = MEASURES) -> dict[str, Estimate | None]:
        """Return the means over seeds by the measure's key."""
        return {measure.key: self.value(measure) for measure in measures}

    def value(self, measure: Measure) -> Estimate | None:
        by_seed: dict[int, list[float]] = defaultdict(list)
        for record in self.taken:
            if (found := measure.of(record)) is not None:
                by_seed[seed_of(record)].append(found)
        return estimate(by_seed)


def grouped(records: Sequence[Record], *, take_all: bool = False) -> list[Group]:
    """Those of which a run is taken, in an order that does not depend on that of `records`.

    Args:
        take_all: also what is invalid or unfinished.
    """
    together: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    for record in sorted(records, key=lambda record: record.run_id):
        together[_configuration(record)].append(record)
    groups = [group for found in together.values() if (group := group_of(found, take_all=take_all)).taken]
    groups.sort(key=_order)
    return _told_apart(groups)


def _configuration(record: Record) -> tuple[str, ...]:
    """All that decides the result but for the seed; what cannot be read is like nothing else."""
    asked_for = dataclasses.replace(record.spec, seed=0).hash if record.spec else record.run_id
    return asked_for, code_of(record), user_code_of(record) or "", script_compressor(record) or "", kind_of(record)


def _order(group: Group) -> tuple[Any, ...]:
    workers = group.properties()["workers"]
    topo, workload, _, kind = group.setting
    parts = (group.strategy != "ddp", group.strategy, group.compressor != "none", group.compressor, group.method)
    return topo, workload, workers if isinstance(workers, int) else 0, kind, *parts


def method_of(spec: RunSpec) -> str:
    """Return the compressor's name for `ddp`, the strategy's where nothing is compressed, both otherwise."""
    strategy, compressor = spec.strategy.name, spec.compressor.name
    if strategy == "ddp":
        return compressor
    return strategy if compressor == "none" else f"{strategy} {compressor}"


def group_of(records: Sequence[Record], *, take_all: bool = False) -> Group:
    """All of them as one, which is the caller's to know; there is at least one."""
    taken = tuple(record for record in records if take_all or verdict_of(record) in BELIEVED)
    spec = records[0].spec
    method = method_of(spec) if spec else records[0].run_id
    if by_script := script_compressor(records[0]):
        method = f"{method} {by_script.replace('by the script: ', '')}" if spec else by_script
    return Group(tuple(records), taken, method)


def _told_apart(groups: Sequence[Group]) -> list[Group]:
    """With what sets each apart in its setting, its look and its place."""
    by_setting: dict[tuple[str, ...], dict[str, list[Group]]] = defaultdict(lambda: defaultdict(list))
    for group in groups:
        by_setting[group.setting][group.method].append(group)
    told: list[Group] = []
    for by_method in by_setting.values():
        settings = {id(group): group.every_setting() for found in by_method.values() for group in found}
        of_all = [key for key in differing(settings.values()) if not key.startswith(_OF_METHODS)]
        network = [key for key in of_all if key in NETWORK]
        for found in by_method.values():
            of_method = differing(settings[id(group)] for group in found)
            keys = [*of_method, *(key for key in of_all if key not in of_method)]
            for group in found:
                mine = settings[id(group)]
                settings_apart = {key: mine[key] for key in keys if key in mine}
                apart = dataclasses.replace(
                    group, differs=spoken(mine, keys), network=spoken(mine, network), settings=settings_apart
                )
                told.append(dataclasses.replace(apart, css_class=f"row-{len(told)}"))
    return told


def shown_settings(groups: Sequence[Group]) -> tuple[list[str], list[dict[str, str]]]:
    """Return the keys that set some row apart, and the values of every row that has them."""
    keys = list(dict.fromkeys(key for group in groups for key in group.settings))
    rows = [group.every_setting() if keys else {} for group in groups]
    return keys, [{key: row[key] for key in keys if key in row} for row in rows]
