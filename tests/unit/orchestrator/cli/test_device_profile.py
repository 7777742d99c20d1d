"""`longhaul profile`: where its file may lie is known before anything is measured."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from testbed.core.errors import EXIT_INPUT
from testbed.orchestrator.cli import device_profile
from testbed.orchestrator.cli.main import main


@pytest.mark.parametrize("output", ["file/p.json", "file/deeper/p.json", "."])
def test_a_place_that_cannot_be_written_is_refused_before_the_measurement(
    output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def measured(*_: object) -> NoReturn:
        raise AssertionError("it was measured")

    monkeypatch.setattr(device_profile, "ask_worker", measured)
    (tmp_path / "file").write_text("a file")
    assert main(["profile", "topo=lan", "-o", str(tmp_path / output)]) == EXIT_INPUT
    assert f"-o {tmp_path / output}: " in capfd.readouterr().err


@pytest.mark.parametrize("rate", ["0", "-1", "nan", "inf", "1e300"])
def test_a_rate_that_no_device_has_is_refused(rate: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "topo=lan", f"--flop-s={rate}", "-o", str(tmp_path / "p.json")]) == EXIT_INPUT
    assert f"--flop-s {float(rate):g}: must be above 0 and at most 1e+18" in capfd.readouterr().err
