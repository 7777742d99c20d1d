"""`longhaul predict`: which spec and profiles it hands to the analysis."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.core.device.codecs.work import CodecTimes
from testbed.core.device.profile import Collective, LayerTimes, Profile
from testbed.core.errors import EXIT_COMPLETED, EXIT_INPUT
from testbed.core.record.summary import summary_faults
from testbed.orchestrator.cli.main import main
from testbed.orchestrator.config.config import resolve
from testbed.orchestrator.machine import provenance
from testbed.orchestrator.search.plan import simulated_run

RUN_ID = "20260101T000000Z-wan1g-ddp-none-0a1b2c3d"
ELEMENTS = 1000
REGIONS = f"topo.regions=[{','.join(f'r{index}' for index in range(130))}]"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """One run, whose model is one layer."""
    profile = Profile(
        workload="w",
        compressor="c",
        batch_size=1,
        layers=(LayerTimes(name="a", parameters=ELEMENTS, forward_s=0.1, backward_s=0.2),),
        forward_s=0.1,
        backward_s=0.2,
        optimizer_s=0.0,
        codec=(CodecTimes(elements=ELEMENTS, rounds=(("compress", 0.0), ("decompress", 0.0))),),
        collectives=(Collective(kind="all_reduce", size_bytes=4 * ELEMENTS),),
    ).to_json()
    run = tmp_path / RUN_ID
    run.mkdir()
    (run / "spec.json").write_text(json.dumps(resolve(["topo=wan1g", "workers=2"]).spec.to_json()))
    (run / "provenance.json").write_text(json.dumps({"cpu_profile": profile, "device_profile": profile}))
    return tmp_path


def predicted(capfd: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["predict", *arguments, "--json"]) == EXIT_COMPLETED
    found: dict[str, Any] = json.loads(capfd.readouterr().out)
    return found


def test_a_run_that_was_made_is_predicted_from_its_record(runs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = predicted(capfd, "--run", RUN_ID, "--runs", str(runs))
    assert (found["kind"], found["topology"], found["workers"]) == ("simulated", "wan1g", 2)
    assert found["payload_bytes_step"] == 2 * 4 * ELEMENTS
    assert found["step_s"] > 0.3 + 2 * 0.067


def test_a_timeline_is_asked_for_as_a_device(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.json").write_text('{"format": "longhaul-timeline"}')
    assert main(["predict", "topo=wan1g", "--profile", str(tmp_path / "mine.json")]) == EXIT_INPUT
    assert "device=profile device.file=" in capfd.readouterr().err


@pytest.mark.tier("all")
def test_more_regions_than_can_be_emulated_are_predicted(
    runs: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.orchestrator.search.plan.predict_command.check_parts", lambda spec: {})
    asked = ["topo=ring", REGIONS, "workers=130", "strategy.collective=two_shot"]
    found = predicted(capfd, *asked, "--run", RUN_ID, "--runs", str(runs))
    assert (found["workers"], found["regions"]) == (130, 130)
    assert not found["validation"]["inside"]
    assert resolve(asked).faults  # by a run they are refused


@pytest.mark.tier("all")
def test_faults_end_with_the_status_of_bad_input(runs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for arguments, said in (
        (["--run", "nothing", "--runs", str(runs)], "--run nothing: not the id of a run"),
        (["--run", RUN_ID, "--profile", "p.json"], "give one of the two"),
        (["topo=wan1gg", "workers=2"], "topo=wan1gg"),
        (["workers=2", "accelerator=cuda"], "accelerator=cuda: how long steps take there is known only as they run"),
    ):
        assert main(["predict", *arguments]) == EXIT_INPUT
        assert said in capfd.readouterr().err


def test_a_run_of_another_program_has_no_profile(runs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (runs / RUN_ID / "provenance.json").write_text("{}")
    assert main(["predict", "--run", RUN_ID, "--runs", str(runs)]) == EXIT_INPUT
    assert "only our own training is profiled" in capfd.readouterr().err


def test_a_prediction_is_kept_as_a_simulated_run(runs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = predicted(capfd, "--run", RUN_ID, "--keep", "--runs", str(runs))
    (path,) = (one for one in runs.iterdir() if one.name != RUN_ID)
    assert sorted(one.name for one in path.iterdir()) == [
        *("logs", "metrics.openmetrics", "provenance.json", "report.html", "samples.parquet", "spec.json"),
        "summary.json",
    ]
    summary = json.loads((path / "summary.json").read_text())
    assert summary_faults(summary) == [] and summary["run_id"] == path.name
    assert (summary["kind"], summary["status"], summary["steps"]) == ("simulated", "completed", 1)
    assert summary["step_time_s"] == {
        "mean": found["step_s"],
        "p50": found["step_s"],
        "p95": None,
        "exchange_p50": None,
    }
    assert summary["bytes"]["payload"] == 2 * 4 * ELEMENTS and summary["links"][0]["rate_bit_s"]["measured"] is None
    inside = found["validation"]["inside"]
    assert summary["verdict"] == ("valid" if inside else "suspect") and bool(summary["reasons"]) != inside
    kept, made = json.loads((path / "spec.json").read_text()), json.loads((runs / RUN_ID / "spec.json").read_text())
    assert kept["hash"] == made["hash"] and path.name.endswith(f"-{made['hash'][:8]}")
    assert kept["code_hash"] == provenance.code_hash(simulated=True) != provenance.code_hash()
    assert json.loads((path / "provenance.json").read_text())["prediction"] == found


def test_two_predictions_of_one_second_do_not_meet(runs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    question = {"spec": json.loads((runs / RUN_ID / "spec.json").read_text())}
    made = json.loads((runs / RUN_ID / "provenance.json").read_text())
    question |= {"cpu": made["cpu_profile"], "device": made["device_profile"]}
    found = simulated_run.ask(question)
    names = [simulated_run.keep(question, found, runs, wall_s=1.0).run_id for _ in range(2)]
    assert len(set(names)) == 2
    assert sorted(path.name for path in runs.iterdir()) == sorted([RUN_ID, *names])


def test_a_library_of_real_machines_is_predicted_and_marked(runs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    asked = ("topo=wan1g", "workers=4", "--run", RUN_ID, "--runs", str(runs))
    found = {library: predicted(capfd, *asked, "--library", library) for library in ("nccl", "gloo")}
    assert found["nccl"]["library"] == "nccl" and not found["nccl"]["validation"]["inside"]
    assert found["nccl"]["validation"]["outside_by"][0] == "library nccl (validated: this testbed's gloo)"
    assert found["nccl"]["step_s"] < found["gloo"]["step_s"]
    assert any("unlike links" in one for one in found["nccl"]["unknowns"])
    assert main(["predict", *asked, "--library", "gloo"]) == EXIT_COMPLETED
    assert "simulated with gloo over sockets" in capfd.readouterr().out


def test_what_a_library_is_not_known_to_do_is_refused(runs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for override, said in (
        ("strategy.collective=two_shot", "--library nccl: strategy.collective=two_shot is the testbed's own"),
        ("strategy=dear", "--library nccl: strategy=dear needs more than all-reduces"),
    ):
        asked = ("topo=wan1g", "workers=2", override, "--run", RUN_ID, "--runs", str(runs), "--library", "nccl")
        assert main(["predict", *asked]) == EXIT_INPUT
        assert said in capfd.readouterr().err
