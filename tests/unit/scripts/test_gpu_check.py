"""scripts/gpu_check.py: a table, one file and status 0, whatever a step does."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where its dataclasses look
    spec.loader.exec_module(module)
    return module


check, kit = loaded("gpu_check"), loaded("gpu_kit")


def never(*_: Any, **__: Any) -> subprocess.CompletedProcess[str]:
    raise subprocess.TimeoutExpired("command", 1)


def test_without_a_device_what_needs_one_is_left_out_and_the_status_is_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Here nothing that is started ever ends."""
    monkeypatch.setattr(check, "ended", never)
    monkeypatch.setattr(check, "devices", lambda room_s: ("left out", "no /dev/nvidia* and no libcuda", None))
    assert check.main([str(tmp_path / "made" / "out.json")]) == 0
    rows = {row["step"]: row for row in json.loads((tmp_path / "made" / "out.json").read_text())["rows"]}
    left_out = {step for step, row in rows.items() if row["outcome"] == "left out"}
    of_device = {"device", "codecs: bytes of the device", "emulated, a device each, NCCL"}
    of_device |= {f"torchrun, {strategy}, compared" for strategy in ("ddp", "diloco")}
    of_device |= {f"emulated, {workers} workers, {what}" for workers in (2, 4) for what in ("device", "compared")}
    assert left_out == of_device
    failed = {step for step, row in rows.items() if row["outcome"] == "failed"}
    assert failed >= {"longhaul check", "torchrun, ddp, processor", "emulated, 4 workers, processor"}
    assert "accelerator: refusals" in failed
    printed = capsys.readouterr().out
    assert all(step in printed for step in rows) and "its limit" in printed


def test_with_a_device_losses_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "launched", lambda words, place, room_s: place)
    monkeypatch.setattr(check, "losses", lambda done, place: [2.0, 1.002 if "diloco-cuda" in place.name else 1.0])
    checks = check.Checks(time.monotonic() + 1000)
    check.torchrun(checks, True, tmp_path)
    found = {row.step: row.outcome for row in checks.rows if row.step.endswith("compared")}
    assert found == {"torchrun, ddp, compared": "ok", "torchrun, diloco, compared": "differs"}


def test_emulated_runs_on_a_device_are_compared_and_nccl_wants_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "ROOT", tmp_path)
    asked: list[str] = []

    def ended(command: list[str], room_s: float) -> subprocess.CompletedProcess[str]:
        asked.append(" ".join(command))
        folder = tmp_path / "runs" / str(len(asked))
        folder.mkdir(parents=True)
        loss = 1.002 if "accelerator=cuda" in command and "workers=4" in command else 1.0
        (folder / "events.jsonl").write_text(json.dumps({"event": "step", "rank": 0, "loss": loss}))
        summary = {"run_id": str(len(asked)), "status": "completed"}
        return subprocess.CompletedProcess(command, 0, json.dumps(summary), "")

    monkeypatch.setattr(check, "ended", ended)
    checks = check.Checks(time.monotonic() + 1000)
    check.emulated(checks, 1)
    found = {row.step: row.outcome for row in checks.rows}
    assert found["emulated, 2 workers, compared"] == "ok" and found["emulated, 4 workers, compared"] == "differs"
    assert found["emulated, a device each, NCCL"] == "left out"
    check.emulated(checks, 2)
    assert "accelerator=cuda_nccl" in asked[-1] and checks.rows[-1].outcome == "ok"


@pytest.mark.parametrize(("devices", "said"), [(0, "no /dev/nvidia0"), (2, "NCCL takes no two ranks on one device")])
def test_what_must_not_begin_is_refused_by_its_reason(devices: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    told = {
        "docker": (2, "nodes of runtime=docker are given no devices\nworkload=hand is given no devices"),
        "": (3, said),
    }

    def ended(command: list[str], room_s: float) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        status, line = told["docker" if "runtime=docker" in command else ""]
        return subprocess.CompletedProcess(command, status, "", line)

    monkeypatch.setattr(check, "ended", ended)
    checks = check.Checks(time.monotonic() + 1000)
    check.refused(checks, devices)
    assert any("accelerator=cuda_nccl" in command and f"workers={max(2, devices + 1)}" in command for command in asked)
    assert any(command[-1] == "accelerator=cuda" for command in asked) == (devices == 0)
    told[""] = (3, "another reason")
    check.refused(checks, devices)
    assert [row.outcome for row in checks.rows] == ["ok", "failed"]
    assert "not so: accelerator=cuda_nccl" in checks.rows[1].found and "docker" not in checks.rows[1].found


def test_a_step_without_time_is_left_out_and_one_that_raises_has_failed() -> None:
    checks = check.Checks(time.monotonic() + 1)
    assert checks.add("late", 60, lambda room_s: ("ok", "", None)) is None
    checks.end_s += 1000
    checks.add("broken", 60, lambda room_s: [][0])
    assert [(row.step, row.outcome) for row in checks.rows] == [("late", "left out"), ("broken", "failed")]
    assert checks.rows[0].found == "no time is left of 300 s"


def test_a_command_ends_at_its_limit() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        check.ended(["sh", "-c", "sleep 1000 & sleep 1000"], 0.3)
    done = check.ended([sys.executable, "-c", "print(7)"], 60)
    assert (done.returncode, done.stdout) == (0, "7\n")


def test_the_kit_has_a_pin_for_all_that_it_wants_and_leaves_torch_to_the_machine() -> None:
    locked, wanted = kit.pins(), kit.wanted()
    assert set(wanted) <= set(locked)
    assert {"hydra-core", "pyroute2", "netfilterqueue", "pysz", "pyyaml", "duckdb", "matplotlib"} <= set(wanted)
    assert not {"torch", "numpy", "ray", "optuna"} & set(wanted)


def test_a_python_of_the_kits_version_that_does_not_answer_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "shims"))
    assert kit.interpreter() is None
    shim, real = tmp_path / "shims" / "python3.12", tmp_path / ".pyenv" / "versions" / "3.12.1" / "bin" / "python3.12"
    for path, status in ((shim, 127), (real, 0)):
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/bin/sh\nexit {status}\n")
        path.chmod(0o755)
    assert kit.interpreter() == real
