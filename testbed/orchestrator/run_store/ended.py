"""The runs of a folder that have ended, by what was asked of them and by the code: what need not be made again.

A run is of a spec and of this code if `hash` and `code_hash` of its spec.json say so, and if the files of the user's
that it used are as its summary has them. Nothing else is asked or kept: what is in the folder is all that is known.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.core.files import read_object
from testbed.core.record.run_directory import RUN_ID, RunDir
from testbed.core.record.summary import form_fault, version_fault
from testbed.core.spec.run_spec import Part, RunSpec
from testbed.orchestrator.machine import provenance
from testbed.orchestrator.run_store.used import is_current


@dataclass(frozen=True)
class KeptRun:
    """One that has ended, however it did."""

    run: RunDir
    spec: dict[str, Any]
    """Of spec.json, as it is."""
    summary: dict[str, Any]

    @property
    def run_id(self) -> str:
        return self.run.run_id

    @property
    def status(self) -> str:
        return str(self.summary["status"])

    @property
    def verdict(self) -> str:
        return str(self.summary.get("verdict"))

    @property
    def is_completed(self) -> bool:
        return self.status == "completed"

    @property
    def counts(self) -> bool:
        """Whether it may stand for what was asked."""
        return self.is_completed and self.verdict != "invalid"


def ended_runs(
    runs_root: Path, pattern: str = "*", known: MutableMapping[str, KeptRun] | None = None
) -> Iterator[KeptRun]:
    """Those whose names fit, oldest first; what goes on, was killed and not sealed yet, or cannot be read is none.

    Args:
        known: those that were read before, by their ids; takes what is read now. A sealed record stays as it is.
    """
    known = {} if known is None else known
    for path in sorted(runs_root.glob(pattern)):
        if path.name not in known and (kept := _read(path)) is not None:
            known[path.name] = kept
        if path.name in known:
            yield known[path.name]


def pattern_of(spec: RunSpec) -> str:
    """Return a pattern that the names of a spec's runs fit."""
    return f"*-{spec.strategy.name}-{'' if spec.program == 'script' else f'{spec.compressor.name}-'}*"


def _read(path: Path) -> KeptRun | None:
    if not RUN_ID.fullmatch(path.name):
        return None
    run = RunDir(path)
    try:
        spec, summary = read_object(run.spec), read_object(run.summary)
    except (OSError, ValueError):
        return None
    return None if version_fault(summary) or form_fault(summary) else KeptRun(run, spec, summary)


class KeptRuns:
    """Those of this code."""

    def __init__(self, runs_root: Path) -> None:
        self.runs_root = runs_root
        self._code = {kind: provenance.code_hash(simulated=kind == "simulated") for kind in ("emulated", "simulated")}
        self._known: dict[str, KeptRun] = {}

    def of(self, spec: RunSpec, kind: str = "emulated") -> Iterator[KeptRun]:
        """The ended runs of a spec, oldest first.

        Args:
            spec: without a `data_hash`, which is found when a run begins, that of the newest run of its workload is
                meant. So all that is asked for is of the same data, and what is of older data is not there.
        """
        if spec.data_hash is None:
            spec = dataclasses.replace(spec, data_hash=self._newest_data_hash(spec, kind))
        wanted = self._code[kind], kind, spec.hash
        for kept in ended_runs(self.runs_root, pattern_of(spec), self._known):
            found = kept.spec.get("code_hash"), kept.summary.get("kind"), kept.spec.get("hash")
            if found == wanted and is_current(spec, kept.summary):
                yield kept

    def _newest_data_hash(self, spec: RunSpec, kind: str) -> str | None:
        workload = _workload_of(json.loads(json.dumps(spec.to_json())))
        found = None
        for kept in ended_runs(self.runs_root, known=self._known):
            if kept.summary.get("kind") == kind and _workload_of(kept.spec) == workload:
                found = kept.spec.get("data_hash")
        return found


def _workload_of(spec: Mapping[str, Any]) -> Part | None:
    """As a part, since older records name classes as they were called then; None where there is none to be read."""
    try:
        return Part(**spec["workload"])
    except (AttributeError, KeyError, TypeError):
        return None
