"""What is searched: settings with several values or an interval, in Hydra's syntax, and those that all trials have.

    compressor=none,topk                        one of these
    compressor.rank=range(1,9)                  one of 1 to 8, in an order that means something
    compressor.density=interval(0.001,0.1)      any number between; tag(log,interval(...)): evenly by its logarithm

A parameter of a strategy, a compressor or a transform is only given where the one that is chosen names it in its file.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, RangeSweep, Sweep
from hydra.errors import HydraException
from omegaconf import OmegaConf

from testbed.core.errors import InputError, raise_input_faults
from testbed.orchestrator.config.config import names
from testbed.orchestrator.config.grammar.overrides import path_given, read_override, unknown, unread
from testbed.orchestrator.config.part_files import read_part_file
from testbed.orchestrator.config.user_files.yaml_reader import is_path
from testbed.orchestrator.machine.clone import CONF_DIR
from testbed.orchestrator.search.sweep.axes import Axis, Value, read_axes
from testbed.orchestrator.search.sweep.grid import SEED, Point

DEFAULTS = (
    "compressor=none,fp16,int8,topk,powersgd",
    "compressor.density=tag(log,interval(0.001,0.1))",
    "compressor.rank=range(1,9)",
    "strategy=ddp,local_sgd,diloco",
    "strategy.sync_every=tag(log,range(2,65))",
)
"""What is searched where nothing is said."""
SEARCHED = ("strategy", "compressor", "transform")
"""Groups of which names and parameters may be searched; of a workload its parameters."""
_LOG = "log"
_DIGITS = 3
"""Of a number from an interval: finer, no run would tell."""


class Asker(Protocol):
    """A trial of Optuna's, as far as it is asked here."""

    def suggest_categorical(self, name: str, choices: Sequence[str]) -> Any: ...

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int: ...

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float: ...


@dataclass(frozen=True)
class Choice:
    """One of these, without an order."""

    key: str
    values: tuple[Value, ...]

    def ask(self, trial: Asker) -> Value:
        chosen = trial.suggest_categorical(self.key, [value.plain for value in self.values])
        return next(value for value in self.values if value.plain == chosen)


@dataclass(frozen=True)
class Ordered:
    """One of these, each nearer to its neighbours than to others. Optuna is asked for the number itself where all are
    whole ones, else for its place."""

    key: str
    values: tuple[Value, ...]
    log: bool = False

    def ask(self, trial: Asker) -> Value:
        whole = self.whole
        if whole is None:
            return self.values[trial.suggest_int(f"{self.key} (place)", 0, len(self.values) - 1)]
        low, high = min(whole), max(whole)
        step = 1 if len(whole) == 1 else abs(whole[1] - whole[0])
        return self.values[whole.index(trial.suggest_int(self.key, low, high, step=step, log=self.log))]

    @property
    def whole(self) -> list[int] | None:
        try:
            return [int(value.plain) for value in self.values]
        except ValueError:
            return None


@dataclass(frozen=True)
class Between:
    """Any number between two, the ends among them."""

    key: str
    low: float
    high: float
    log: bool

    def ask(self, trial: Asker) -> Value:
        rounded = float(f"{trial.suggest_float(self.key, self.low, self.high, log=self.log):.{_DIGITS}g}")
        text = repr(min(max(rounded, self.low), self.high))
        return Value(text, text)


Dimension = Choice | Ordered | Between


@dataclass(frozen=True)
class Space:
    name: str
    """Of the folder that takes what came of it."""
    fixed: Mapping[str, Value]
    """What all trials have, but parameters of what is chosen, which only those have that name them."""
    searched: tuple[Dimension, ...]
    """Names before their parameters."""
    seeds: tuple[Value, ...]
    """Each trial has a run of each."""

    @property
    def keys(self) -> tuple[str, ...]:
        return (*(one.key for one in self.searched), *([SEED] if len(self.seeds) > 1 else []))

    def points(self, trial: Asker) -> list[Point]:
        """The runs of a trial, one for each seed."""
        values = dict(self.fixed)
        for one in self.searched:
            if one.key in SEARCHED or _is_named(one.key, values):
                values[one.key] = one.ask(trial)
        values = {key: value for key, value in values.items() if _is_given(key, values, self.searched)}
        return [Point({**values, SEED: seed}, self.keys) for seed in self.seeds]


def read(words: Sequence[str]) -> Space:
    """
    Raises:
        InputError: with every fault at once.
    """
    given = _read(words)
    dimensions, axes = [*given[0]], given[1]
    if not dimensions:
        given_values = {axis.key: axis.values[0] for axis in axes}
        usual = [one for one in _read(DEFAULTS)[0] if one.key not in given_values]
        dimensions = [one for one in usual if _group(one.key) not in given_values or _is_named(one.key, given_values)]
    raise_input_faults(_faults(dimensions, axes))
    dimensions.sort(key=lambda one: one.key not in SEARCHED)
    fixed = {axis.key: axis.values[0] for axis in axes if axis.key != SEED}
    seeds = next((axis.values for axis in axes if axis.key == SEED), (Value("0", "0"),))
    name = hashlib.sha256("\0".join(sorted(words)).encode()).hexdigest()[:8]
    return Space(f"tune-{name}", fixed, tuple(dimensions), seeds)


def _read(words: Sequence[str]) -> tuple[list[Dimension], list[Axis]]:
    """What is searched, and what is not: one value, or the seeds."""
    dimensions: list[Dimension] = []
    axes: list[Axis] = []
    faults: list[str] = []
    for text in words:
        try:
            found = _read_one(text)
        except InputError as error:
            faults += error.faults
        except HydraException as error:
            faults.append(unread(text, error))
        except ValueError as error:
            faults.append(f"{text}: {error}")
        else:
            (axes if isinstance(found, Axis) else dimensions).append(found)  # type: ignore[arg-type]
    raise_input_faults(faults)
    return dimensions, axes


def _read_one(text: str) -> Dimension | Axis:
    if path_given(text, must_exist=True) is not None:
        return read_axes([text])[0]
    parsed = read_override(text, OverridesParser.create())
    swept: Any = parsed.value()
    tags = set(swept.tags) if isinstance(swept, Sweep) else set()
    if others := sorted(tags - {_LOG}):
        raise ValueError(f"tag {', '.join(others)}: unknown; known: {_LOG}")
    if isinstance(swept, IntervalSweep):
        return _between(parsed.key_or_group, swept)
    (axis,) = read_axes([text])
    if len(axis.values) == 1 or axis.key == SEED:
        return axis
    if not isinstance(swept, RangeSweep):
        if tags:
            raise ValueError(f"tag {_LOG}: is for interval(low,high) and for range(low,end) of whole numbers")
        return Choice(axis.key, axis.values)
    ordered = Ordered(axis.key, axis.values, log=_LOG in tags)
    if ordered.log and (ordered.whole is None or min(ordered.whole) < 1 or swept.step != 1):
        raise ValueError(f"tag {_LOG}: a range needs whole numbers from 1, one after another")
    return ordered


def _between(key: str, swept: IntervalSweep) -> Between:
    low, high, log = swept.start, swept.end, _LOG in swept.tags
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError("an interval needs two finite ends, the lower one first")
    if log and low <= 0:
        raise ValueError("by its logarithm, an interval begins above 0")
    return Between(key, low, high, log)


def _faults(dimensions: Sequence[Dimension], axes: Sequence[Axis]) -> Iterator[str]:
    keys = [one.key for one in (*dimensions, *axes)]
    for key in sorted({key for key in keys if keys.count(key) > 1}):
        yield f"{key}: given {keys.count(key)} times; give it once"
    chosen = {group: _names(group, dimensions, axes) for group in SEARCHED}
    for group, found in chosen.items():
        known = names(group)
        yield from (
            unknown(f"{group}={name}", name, known, group) for name in found if name not in known and not is_path(name)
        )
    for one in dimensions:
        group, _, parameter = one.key.partition(".")
        if one.key in SEARCHED or (group == "workload" and parameter):
            continue
        if group not in SEARCHED:
            yield f"{one.key}: is not searched; give one value (searched: {', '.join(SEARCHED)}, and workload.*)"
        elif not any(parameter.split(".")[0] in _parameters(group, name) for name in chosen[group]):
            named = {key for name in chosen[group] for key in _parameters(group, name)}
            yield unknown(one.key, parameter, named, f"parameter of {', '.join(chosen[group])}")


def _names(group: str, dimensions: Sequence[Dimension], axes: Sequence[Axis]) -> list[str]:
    """Of the group, that a trial may have."""
    for one in (*dimensions, *axes):
        if one.key == group and not isinstance(one, Between):
            return [value.plain for value in one.values]
    return [_default(group)]


def _default(group: str) -> str:
    entries = OmegaConf.load(CONF_DIR / "config.yaml").defaults
    return next(str(entry[group]) for entry in entries if not isinstance(entry, str) and group in entry)


def _parameters(group: str, name: str) -> set[str]:
    if is_path(name):
        return set(read_part_file(group, Path(name), {})) - {"_target_", "run"}
    path = Path(CONF_DIR / group / f"{name}.yaml")
    return {str(key) for key in OmegaConf.load(path)} - {"_target_", "run"} if path.exists() else set()


def _group(key: str) -> str:
    return key.partition(".")[0] if "." in key else ""


def _is_named(key: str, values: Mapping[str, Value]) -> bool:
    """Whether what was chosen has this parameter; of a workload, that is for itself to refuse."""
    group = _group(key)
    if group not in SEARCHED:
        return True
    name = values[group].plain if group in values else _default(group)
    return key.split(".")[1] in _parameters(group, name)


def _is_given(key: str, values: Mapping[str, Value], searched: Sequence[Dimension]) -> bool:
    """A parameter that all trials have is kept from those that do not know it, where there are others."""
    group = _group(key)
    return not any(one.key == group for one in searched) or _is_named(key, values)
