"""Runs of one configuration, which differ by the seed alone, taken together: what every comparison's rows are.

The code is part of the configuration: a mean over two versions of a compressor is of neither.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.analysis.intervals import Estimate, estimate
from testbed.analysis.load import Record, is_finite
from testbed.analysis.looks import Look, look_of, method_of
from testbed.core.spec import RunSpec
from testbed.core.units import format_rate, format_size, format_time

BELIEVED = ("valid", "suspect")


@dataclass(frozen=True)
class Measure:
    key: str
    """With the base unit, as in JSON and CSV."""
    heading: str
    path: tuple[str, ...]
    """Where the summary has it."""
    show: Callable[[float], str]

    def of(self, record: Record) -> float | None:
        found: Any = record.summary or {}
        for key in self.path:
            found = (found or {}).get(key)
        return float(found) if is_finite(found) and not isinstance(found, bool) else None


def show_number(value: float) -> str:
    return f"{value:.4g}"


def show_time(value: float) -> str:
    return "0 s" if value == 0 else format_time(value)


MEASURES = (
    Measure("metric_best", "best", ("metric", "best"), show_number),
    Measure("time_to_target_s", "to target", ("metric", "time_to_target_s"), show_time),
    Measure("time_s", "time", ("time_s",), show_time),
    Measure("step_p50_s", "step p50", ("step_time_s", "p50"), show_time),
    Measure("payload_bytes", "payload", ("bytes", "payload"), format_size),
    Measure("wan_bytes", "WAN bytes", ("bytes", "wire_wan"), format_size),
    Measure("compression_ratio", "ratio", ("compression_ratio",), show_number),
)
PROPERTIES = ("topo", "workload", "strategy", "compressor", "workers", "kind")
SETTING = ("topo", "workload", "workers", "kind")
"""What runs must share to be drawn into one figure."""


@dataclass(frozen=True)
class Group:
    """One row."""

    records: tuple[Record, ...]
    taken: tuple[Record, ...]
    """Those whose values count."""
    method: str
    look: Look
    differs: str = ""
    """From others of this method on the same page: "density=0.01"; "" where there is no other."""

    @property
    def label(self) -> str:
        return f"{self.method} {self.differs}".rstrip()

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
        return found | {"kind": kind_of(self.records[0])}

    def seeds(self) -> list[int]:
        return sorted({seed_of(record) for record in self.taken})

    def verdicts(self) -> dict[str, int]:
        """How many runs have which, those that are left out too."""
        return dict(sorted(Counter(verdict_of(record) for record in self.records).items()))

    def values(self) -> dict[str, Estimate | None]:
        """By the measure's key."""
        return {measure.key: self.value(measure) for measure in MEASURES}

    def value(self, measure: Measure) -> Estimate | None:
        by_seed: dict[int, list[float]] = defaultdict(list)
        for record in self.taken:
            if (found := measure.of(record)) is not None:
                by_seed[seed_of(record)].append(found)
        return estimate(by_seed)


def kind_of(record: Record) -> str:
    return str((record.summary or {}).get("kind") or "emulated")


def code_of(record: Record) -> str:
    return str(record.provenance.get("code_hash") or "unknown")


def verdict_of(record: Record) -> str:
    return str((record.summary or {}).get("verdict") or "unfinished")


def seed_of(record: Record) -> int:
    seed = record.spec.seed if record.spec else (record.summary or {}).get("seed")
    return seed if isinstance(seed, int) else 0


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
    return asked_for, code_of(record), kind_of(record)


def _order(group: Group) -> tuple[Any, ...]:
    workers = group.properties()["workers"]
    topo, workload, _, kind = group.setting
    return topo, workload, workers if isinstance(workers, int) else 0, kind, group.method != "none", group.method


def group_of(records: Sequence[Record], *, take_all: bool = False) -> Group:
    """All of them as one, which is the caller's to know; there is at least one."""
    taken = tuple(record for record in records if take_all or verdict_of(record) in BELIEVED)
    spec = records[0].spec
    method = method_of(spec) if spec else records[0].run_id
    return Group(tuple(records), taken, method, look_of(method))


def _told_apart(groups: Sequence[Group]) -> list[Group]:
    """With `differs` and the look of each, among the groups of one method in one setting."""
    alike: dict[tuple[object, ...], list[Group]] = defaultdict(list)
    for group in groups:
        alike[group.setting, group.method].append(group)
    told = []
    for found in alike.values():
        for number, (group, words) in enumerate(zip(found, _differences(found), strict=True)):
            look = look_of(group.method, number)
            told.append(dataclasses.replace(group, differs=words, look=look))
    return told


def _differences(groups: Sequence[Group]) -> list[str]:
    if len(groups) == 1:
        return [""]
    settings = [{**asked(g.records[0].spec), "code": code_of(g.records[0])[:6]} for g in groups]
    keys = [key for key in dict.fromkeys(k for s in settings for k in s) if len({s.get(key) for s in settings}) > 1]
    if len(keys) > 1:
        keys = [key for key in keys if key != "topology"] or keys  # the rest says what is different about it
    # the compressor's name stands before them
    return [" ".join(f"{k.removeprefix('compressor.')}={found.get(k, '-')}" for k in keys) for found in settings]


_PLAIN = (
    *("steps", "epochs", "batch_size", "evaluate_every", "target", "scale", "runtime", "shaper", "tcp", "capture"),
    *("timeout_s", "data_hash", "start_hash"),
)


def asked(spec: RunSpec | None) -> dict[str, str]:
    """What was asked of a run, as short text, by the names in which a user asks; the seed left out."""
    if spec is None:
        return {}
    found: dict[str, str] = {}
    for part in ("compressor", "strategy", "transform", "workload", "device"):
        found |= {f"{part}.{key}": _short(value) for key, value in getattr(spec, part).params.items()}
    found |= {name: _short(getattr(spec, name)) for name in _PLAIN}
    found |= {"transform": spec.transform.name}
    found |= {"device": spec.device.name, "dilation": "auto" if spec.auto_dilation else f"{spec.dilation:g}"}
    found |= {name: _digest(getattr(spec, name)) for name in ("events", "background", "topology")}
    wan = [profile for link in spec.topology.wan_links for _, _, profile in link.directions()]
    found["topo.rate"] = _all_of(format_rate(profile.rate_bit_s) for profile in wan)
    found["topo.rtt"] = _all_of(show_time(link.rtt_s) for link in spec.topology.wan_links)
    found["topo.loss"] = _all_of(f"{100 * profile.loss_ratio:g}%" for profile in wan)
    return found


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 24 else f"{text[:16]}…{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def _digest(value: Any) -> str:
    if not value:
        return "none"
    data = [dataclasses.asdict(item) for item in value] if isinstance(value, tuple) else dataclasses.asdict(value)
    return hashlib.sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest()[:6]


def _all_of(texts: Iterable[str]) -> str:
    found = list(dict.fromkeys(texts))
    return ", ".join(found) if len(found) <= 3 else f"{found[0]}, … ({len(found)})"
