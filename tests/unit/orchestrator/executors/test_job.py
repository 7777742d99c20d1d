"""A job on the machine that it came to: refused where code, data or what a runtime needs are others."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import socket
from pathlib import Path
from typing import NoReturn

import pytest

from testbed.orchestrator.executors import __main__ as job_process
from testbed.orchestrator.executors.job import REPLY, run_job
from testbed.orchestrator.machine import checks, provenance
from testbed.orchestrator.run import preflight
from testbed.orchestrator.search.sweep.specs import RunRequest


def test_a_job_for_other_code_is_refused_by_both_hashes(asked: list[RunRequest]) -> None:
    reply = run_job({"spec": asked[0].spec.to_json(), "code_hash": "0123456789abcdef", "share": True})
    (line,) = reply["lacks"]
    assert provenance.code_hash() in line and "0123456789abcdef" in line and "one commit" in line
    assert reply["archive"] is None and reply["faults"] == [] and reply["host"] == socket.gethostname()


def test_a_machine_without_what_the_runtime_of_a_run_needs_lacks_something(
    asked: list[RunRequest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*, needed: bool) -> checks.Check:
        return checks.Check("docker", needed, False, "no daemon here", "containers", "start one")

    def nobody_gets_here(*, share: bool) -> NoReturn:
        raise AssertionError("a run would have been begun")

    monkeypatch.setattr(checks, "docker", none)
    monkeypatch.setattr(job_process, "_machine", nobody_gets_here)
    spec = dataclasses.replace(asked[0].spec, runtime="docker")
    request = {"spec": spec.to_json(), "code_hash": provenance.code_hash(), "share": False}
    (tmp_path / "request.json").write_text(json.dumps(request))
    assert job_process.main(tmp_path) == 0
    reply = json.loads((tmp_path / REPLY).read_text())
    assert any("no daemon here" in line for line in reply["lacks"]) and reply["faults"] == []


def test_a_machine_with_other_data_is_one_that_lacks_something(
    asked: list[RunRequest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were it the run's own fault, one such machine would soon have given up all runs of a sweep."""
    monkeypatch.setattr(preflight, "require", lambda *_: None)
    monkeypatch.setattr(job_process, "_machine", lambda *, share: contextlib.nullcontext())
    answer = {"faults": [], "computes": True, "data_hash": "of other fonts"}
    monkeypatch.setattr(job_process, "check_parts", lambda spec: answer)
    request = {"spec": asked[0].spec.to_json(), "code_hash": provenance.code_hash(), "share": False}
    (tmp_path / "request.json").write_text(json.dumps(request))
    assert job_process.main(tmp_path) == 0
    reply = json.loads((tmp_path / REPLY).read_text())
    (line,) = reply["lacks"]
    assert "of other fonts" in line and socket.gethostname() in line and reply["faults"] == []
