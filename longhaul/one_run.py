"""One run: its spec, its verdict, and its record as DataFrames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from testbed.analysis.record.record import Record, load
from testbed.core.errors import InputError, nearest
from testbed.core.files import read_object
from testbed.core.record.events.base import Event
from testbed.core.record.run_row import read_row, status_word
from testbed.core.record.spoiled_steps import left_out

_STEP = ("step", "rank", "t_s", "loss", "step_s")
_STEP_REST = ("cpu_s", "late_s", "queued_s", "payload_bytes", "samples")
_PHASES = ("forward", "backward", "compress", "communicate", "decompress", "optimizer", "exposed_communication")
_BOTH = (("rate", "rate_bit_s", "bit_s"), ("rtt", "rtt_s", "s"), ("loss", "loss_ratio", "ratio"))
"""Name, key and unit of what links have a target and a measured value of."""


class Run:
    """A run directory.

    >>> run = Run("20261127T201340Z-two_regions-local_sgd-powersgd-49f8e94e", RUNS)
    >>> run.status, run.verdict, run.spec["strategy"]["name"]
    ('completed', 'invalid', 'local_sgd')

    Args:
        run: Id of the run, or the path of its directory.
        root: Folder that holds it, if `run` is an id.

    Raises:
        InputError: It is no run, or one of another schema version.
    """

    def __init__(self, run: str | Path, root: str | Path = "runs") -> None:
        self.path = _found(run, Path(root))
        """Absolute path of the directory."""
        self.record: Record = load(self.path)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @property
    def run_id(self) -> str:
        """Id of the run, which is the name of its directory."""
        return self.path.name

    @property
    def spec(self) -> dict[str, Any]:
        """Content of `spec.json`: everything that was to run. Empty if the run has none."""
        return _object(self.record.run.spec)

    @property
    def summary(self) -> dict[str, Any] | None:
        """Content of `summary.json`: every result. None if the run has not ended."""
        return self.record.summary

    @property
    def status(self) -> str:
        """ "completed", "failed", "interrupted", "killed" or "running"."""
        return status_word(read_row(self.path))

    @property
    def verdict(self) -> str | None:
        """ "valid", "suspect" or "invalid"; None if the run has not ended."""
        return (self.summary or {}).get("verdict")

    @property
    def reasons(self) -> list[str]:
        """Reasons why the verdict is not "valid"."""
        return list((self.summary or {}).get("reasons") or ())

    def steps(self) -> pd.DataFrame:
        """Return one row per step and rank: times in emulated seconds, phases, bytes.

        `left_out` is True for steps that the run's figures leave out.

        >>> run = Run("20261127T201340Z-two_regions-local_sgd-powersgd-49f8e94e", RUNS)
        >>> run.steps()[["step", "rank", "step_s", "payload_bytes"]].head(2)
           step  rank    step_s  payload_bytes
        0     1     0  0.193786              0
        1     1     1  0.239719              0
        """
        names = [*_STEP, *(f"{phase}_s" for phase in _PHASES), *_STEP_REST, "left_out"]
        gone = left_out(self.record.events).steps
        rows = [
            {**event, **{f"{phase}_s": value for phase, value in (event.get("phase_s") or {}).items()}}
            | {"left_out": event.get("step") in gone}
            for event in self.record.of_kind("step")
        ]
        found = _frame(rows, names, counts=("step", "rank", "payload_bytes", "samples"))
        return found.sort_values(["step", "rank"], ignore_index=True, kind="stable")

    def evaluations(self) -> pd.DataFrame:
        """Return one row per evaluation: when, by which rank, the metric's name and its value.

        >>> Run("20261127T201340Z-two_regions-local_sgd-powersgd-49f8e94e", RUNS).evaluations()
                t_s  step  rank metric_name     value
        0  0.838732     3     0    accuracy  0.119444
        1  1.913140     6     0    accuracy  0.183333
        """
        rows = [{**event, "metric_name": event.get("name")} for event in self.record.of_kind("evaluation")]
        return _frame(rows, ("t_s", "step", "rank", "metric_name", "value"), counts=("step", "rank"))

    def links(self) -> pd.DataFrame:
        """Return one row per link and direction: bytes on the wire, target and measured rate, round trip and loss.

        Targets and measurements are of one moment, before the training; `changes` counts the events that changed the
        link later. The counters over time are `events("link")`.

        >>> links = Run("20261127T201340Z-two_regions-local_sgd-powersgd-49f8e94e", RUNS).links()
        >>> links.loc[links.wan, ["from", "to", "wire_bytes", "rate_target_bit_s"]]
               from        to  wire_bytes  rate_target_bit_s
        0    oregon  virginia      228900        100000000.0
        1  virginia    oregon      229050        100000000.0
        """
        rows = []
        for link in (self.summary or {}).get("links") or ():
            row = {key: link.get(key) for key in ("name", "from", "to", "wan", "wire_bytes", "changes")}
            for name, key, unit in _BOTH:
                both = link.get(key) or {}
                row |= {f"{name}_target_{unit}": both.get("asked"), f"{name}_measured_{unit}": both.get("measured")}
            rows.append(row)
        values = [f"{name}_{side}_{unit}" for name, _, unit in _BOTH for side in ("target", "measured")]
        names = ("name", "from", "to", "wan", "wire_bytes", "changes", *values)
        return _frame(rows, names, counts=("wire_bytes", "changes"), numbers=values)

    def events(self, kind: str | None = None) -> pd.DataFrame:
        """Return the lines of `events.jsonl` in order of time, each key a column.

        An object within a line becomes columns such as `phase_s.forward`. All kinds and their fields:
        docs/record-events.md.

        >>> run = Run("20261127T201340Z-two_regions-local_sgd-powersgd-49f8e94e", RUNS)
        >>> run.events("link")[["t_s", "name", "from", "to", "wire_bytes"]].tail(1).to_dict("records")
        [{'t_s': 2.274..., 'name': 'virginia-0-virginia', 'from': 'virginia', 'to': 'virginia-0', 'wire_bytes': 228558}]

        Args:
            kind: Events of this kind alone, without columns of other kinds.

        Raises:
            InputError: No event has this kind.
        """
        events = self.record.events
        if kind is not None:
            known = {*Event.kinds, *(str(event["event"]) for event in events)}
            if kind not in known:
                close = nearest(kind, known)
                meant = f"; did you mean {close}?" if close else ""
                raise InputError(f"events({kind!r}): unknown{meant}; known: {', '.join(sorted(known))}")
            events = self.record.of_kind(kind)
        return pd.json_normalize(events) if events else pd.DataFrame({"t_s": [], "event": []})


def records(runs: pd.DataFrame | Iterable[Run | str | Path] | Run | str | Path) -> list[Record]:
    """Return the records of runs: of a DataFrame as `runs` returns it, of `Run`s, or of paths of run directories.

    Raises:
        InputError: With a line for each that is no run.
    """
    if isinstance(runs, pd.DataFrame):
        if "path" not in runs.columns:
            raise InputError("runs: the DataFrame has no column `path`, by which the runs are found; keep it")
        runs = [str(path) for path in runs["path"]]
    found: list[Record] = []
    faults: list[str] = []
    for one in [runs] if isinstance(runs, Run | str | Path) else runs:
        try:
            found.append(one.record if isinstance(one, Run) else load(Path(one)))
        except InputError as error:
            faults += error.faults
    if faults or not found:
        raise InputError(*(faults or ["runs: there are none; give a DataFrame of runs, or directories"]))
    return found


def _found(run: str | Path, root: Path) -> Path:
    for path in (Path(run), root / run):
        if (path / "spec.json").exists() or (path / "events.jsonl").exists():
            return path.absolute()
    known = [path.name for path in root.iterdir() if path.is_dir()] if root.is_dir() else []
    close = nearest(str(run), known)
    meant = f"; did you mean {close}?" if close else ""
    raise InputError(f"{run}: neither the directory of a run nor a run of {root}{meant}")


def _object(path: Path) -> dict[str, Any]:
    try:
        return read_object(path)
    except (OSError, ValueError):
        return {}


def _frame(
    rows: Sequence[Mapping[str, Any]], names: Sequence[str], counts: Sequence[str], numbers: Sequence[str] = ()
) -> pd.DataFrame:
    found = pd.DataFrame([{name: row.get(name) for name in names} for row in rows], columns=list(names))
    types: dict[str, Any] = dict.fromkeys(counts, "Int64") | dict.fromkeys(numbers, "float64")
    return found.astype(types)
