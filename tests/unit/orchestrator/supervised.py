"""`supervise` itself, with nothing built, measured or analysed: what a test puts in takes the place of these."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.core.record import run_directory
from testbed.core.record.run_directory import RunDir, write_json
from testbed.core.record.summary import empty_summary, summary_faults
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.executors import executor
from testbed.orchestrator.machine.lock import MachineLock
from testbed.orchestrator.run import supervisor
from testbed.orchestrator.run.dilation import restart


def nothing(*_: object) -> None:
    return None


def stand_ins(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *,
    measuring: Callable[[RunSpec], None] = nothing,
    sealing: Callable[[RunDir], None] = nothing,
    verdict: str = "valid",
) -> None:
    """
    Args:
        measuring, sealing: are called where a run would be; all runs complete.
        verdict: on all of them.
    """

    def calibrate(spec: RunSpec, *_: object) -> tuple[RunSpec, None]:
        measuring(spec)
        return spec, None

    def seal(run: RunDir, status: str, *_: object, **__: object) -> dict[str, Any]:
        sealing(run)
        told = {"run_id": run.run_id, "status": status, "verdict": verdict, "kind": "emulated"}
        summary = empty_summary() | told
        assert not summary_faults(summary)
        write_json(run.summary, summary)
        return summary

    monkeypatch.setattr(run_directory, "RUNTIME_ROOT", tmp_path / "run")
    (tmp_path / "run").mkdir()
    monkeypatch.setattr(supervisor, "calibrate", calibrate)
    monkeypatch.setattr(supervisor, "seal", seal)
    monkeypatch.setattr(supervisor, "_watched", lambda run: contextlib.nullcontext())
    monkeypatch.setattr(supervisor, "_perform", lambda *_, **__: ("completed", []))
    monkeypatch.setattr(restart, "slowed", nothing)
    monkeypatch.setattr(restart, "remove_leftovers", lambda run_id: [])
    monkeypatch.setattr(executor, "machine_lock", lambda share: contextlib.nullcontext(shared_machine()))


def shared_machine() -> MachineLock:
    """Shared, so that nobody looks whether it is."""
    return MachineLock(io.StringIO(), share=True)
