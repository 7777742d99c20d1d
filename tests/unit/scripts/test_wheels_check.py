"""scripts/wheels_check.py: which tests it takes along, for which Pythons, and what it makes of their ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from scripts import make_wheel, wheels_check  # noqa: E402

PACKAGES = {"torch", "numpy", "pytest", "hypothesis", "yaml", "pandas", "plotly", "matplotlib", "duckdb"}
OURS = ("testbed", "compressors", "topologies", "dashboards", "experiments", "scripts")


@pytest.mark.parametrize("check", wheels_check.CHECKS, ids=lambda check: check.wheel)
def test_the_tests_find_all_that_they_import(check: wheels_check.Check) -> None:
    held = set(make_wheel.needed(make_wheel.of(check.wheel)))
    for stage in check.stages:
        beside = {path for name in stage.beside for path in [ROOT / name, *(ROOT / name).rglob("*")]}
        lacking = {
            (test.name, str(found.relative_to(ROOT)))
            for test in wheels_check.tests_of(stage)
            for found in make_wheel.imported(test, OURS)
            if found not in held | beside
        }
        assert lacking == set()


def test_many_tests_go_along() -> None:
    names = {path.name for stage in wheels_check.CHECKS[0].stages for path in wheels_check.tests_of(stage)}
    assert {"test_laws.py", "test_decoders.py", "test_ddp_hook.py", "ddp_script.py", "catalogue.py"} <= names
    assert not names & {"test_every_plugin.py", "test_readers.py"}


def test_a_wheel_is_tried_from_its_least_python_on() -> None:
    minors = (9, 10, 11, 13)
    found = {
        one.wheel: [wheels_check.is_for(one.wheel, f"3.{minor}.1") for minor in minors] for one in wheels_check.CHECKS
    }
    assert found == {"longhaul-compressors": [False, True, True, True], "longhaul": [False, False, True, True]}


@pytest.mark.parametrize(
    ("status", "last", "passed"),
    [(0, "== 7 passed in 1.2s ==", True), (0, "5 passed, 2 skipped in 1s", False), (1, "1 failed, 6 passed", False)],
)
def test_all_tests_must_pass_and_none_be_skipped(
    status: int, last: str, passed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(command: list[Any], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, status, f"...\n{last}\n", "")

    monkeypatch.setattr(subprocess, "run", run)
    (tmp_path / "venv" / "lib" / "python3.13" / "site-packages").mkdir(parents=True)
    said, found = wheels_check.tested(wheels_check.CHECKS[1], tmp_path)
    assert found is passed and last.strip("= ") in said
    assert (tmp_path / "tests-0" / "tests" / "unit" / "longhaul" / "test_api.py").exists()
