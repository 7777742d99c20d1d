"""`longhaul budget` as a user calls it; what computing takes is made up, and so are the runs that check a point."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.analysis.__main__ import main as analysis
from testbed.core.device.codecs.work import CodecTimes
from testbed.core.device.profile import Collective, LayerTimes, Profile
from testbed.core.errors import EXIT_INPUT, MachineError
from testbed.core.record import run_directory
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.cli.main import main
from testbed.orchestrator.executors import registry
from testbed.orchestrator.run.dilation.calibration import Calibration
from testbed.orchestrator.search.budget import fixed_point, pairs
from testbed.orchestrator.search.plan import analysis_client
from testbed.orchestrator.search.sweep import retry, specs
from testbed.orchestrator.search.sweep.estimates import UNKNOWN, Estimate
from tests.unit.orchestrator.made_runs import Place

ELEMENTS = 250_000
EPOCH_STEPS = 50
GIVEN = ("target_step_s=0.4", "workers=2", "topo.rtt=50 ms,100 ms", "strategy=ddp")
COMPUTE_S = {"none": 0.01, "topk": 0.02}


def made_up(spec: RunSpec, times: int, *_: object) -> list[Calibration]:
    """topk sends a tenth."""
    return sending(spec, times, 0.1 if spec.compressor.name == "topk" else 1.0)


def sending(spec: RunSpec, times: int, part: float) -> list[Calibration]:
    profile = Profile(
        workload="w",
        compressor=spec.compressor.name,
        batch_size=1,
        layers=(LayerTimes(name="a", parameters=ELEMENTS, forward_s=0.0, backward_s=0.0),),
        forward_s=COMPUTE_S[spec.compressor.name],
        backward_s=0.0,
        optimizer_s=0.0,
        codec=(CodecTimes(elements=ELEMENTS, rounds=(("compress", 0.0), ("decompress", 0.0))),),
        buckets=(ELEMENTS,),
        collectives=(Collective(kind="all_reduce", size_bytes=round(4 * ELEMENTS * part)),),
    )
    return [Calibration(profile, profile)] * times


@pytest.fixture
def without_measuring(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def checked(asked: list[RunSpec]) -> list[dict[str, Any]]:
        refused = {"int8": ["compressor=int8: for a reason"]}
        answer = {"computes": True, "epoch_steps": EPOCH_STEPS}
        return [{"faults": refused.get(spec.compressor.name, []), **answer} for spec in asked]

    monkeypatch.setattr(run_directory, "RUNTIME_ROOT", tmp_path / "run")
    monkeypatch.setattr(fixed_point, "repeated", made_up)
    monkeypatch.setattr(pairs, "check_all", checked)
    monkeypatch.setattr(specs, "check_all", checked)
    monkeypatch.setattr(specs, "machine_checks", lambda resolved, runs_root: [])
    monkeypatch.setattr(retry, "estimates", lambda asked, *_: {one.spec.hash: Estimate(None, UNKNOWN) for one in asked})


@pytest.fixture
def analysis_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer questions to the analysis here: for tests that ask dozens, where others ask a process of its own."""

    def answered(command: Sequence[str], *, input: str, **_: object) -> subprocess.CompletedProcess[str]:
        assert list(command[:3]) == [sys.executable, "-m", "testbed.analysis"]
        said, told = io.StringIO(), io.StringIO()
        with monkeypatch.context() as here, contextlib.redirect_stdout(said), contextlib.redirect_stderr(told):
            here.setattr(sys, "stdin", io.StringIO(input))
            status = analysis(list(command[3:]))
        return subprocess.CompletedProcess(command, status, said.getvalue(), told.getvalue())

    stand_in = SimpleNamespace(run=answered, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr(analysis_client, "subprocess", stand_in)


def budget(runs: Path, capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> dict[str, Any]:
    assert main(["budget", "--json", "--runs", str(runs), *GIVEN, *words]) == status
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.usefixtures("without_measuring")
def test_rates_bytes_and_cost_of_each_pair(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = budget(runs, capsys, "compressor=none,topk", "price_per_gb=0.05")
    topk, none = found["pairs"]
    assert (topk["compressor"], none["compressor"]) == ("topk", "none"), "by what is sent"
    for row in (topk, none):
        near, far = (point["rate_bit_s"]["estimate"] for point in row["points"])
        assert [point["rtt_s"] for point in row["points"]] == [0.05, 0.1] and near < far
        assert row["compute_s"]["estimate"] == COMPUTE_S[row["compressor"]]
        assert (row["per"], row["steps"]) == ("epoch", EPOCH_STEPS)
        for end in ("low", "estimate", "high"):
            assert row["gb"][end] == pytest.approx(row["points"][0]["wan_bytes_step"][end] * EPOCH_STEPS / 1e9)
            assert row["cost"][end] == pytest.approx(0.05 * row["gb"][end])
    assert topk["points"][0]["rate_bit_s"]["estimate"] < none["points"][0]["rate_bit_s"]["estimate"] / 5
    assert found["kind"] == "simulated" and found["validation"]["configurations"] > 0
    assert list(runs.iterdir()) == []


@pytest.mark.tier("all")
@pytest.mark.usefixtures("without_measuring", "analysis_in_process")
@pytest.mark.parametrize(
    ("slow", "fast", "changing_bit_s", "least"),
    [
        (0.1, 0.5, 8e6, "slow"),  # the other would do above what it needs, too, but that is more
        (0.1, 0.5, 1e6, "fast"),  # that route is not taken any more where it would do
        (0.5, 0.1, 9e6, "change"),  # too much is sent below, and would do above, where it is not sent
        (2000.0, 0.1, 2e9, "change"),  # by the one no rate does
        (0.1, 2000.0, 1e6, "none"),
    ],
)
def test_what_is_sent_is_that_over_the_links_that_are_found(
    runs: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    slow: float,
    fast: float,
    changing_bit_s: float,
    least: str,
) -> None:
    def part_over(rate_bit_s: float) -> float:
        return slow if rate_bit_s < changing_bit_s else fast

    def over(spec: RunSpec, times: int, *_: object) -> list[Calibration]:
        return sending(spec, times, part_over(spec.topology.wan_links[0].forward.rate_bit_s))

    monkeypatch.setattr(fixed_point, "repeated", over)
    alone = {}
    for part in (slow, fast):
        monkeypatch.setattr(fixed_point, "repeated", lambda spec, times, *_, part=part: sending(spec, times, part))
        (row,) = budget(runs, capsys, "compressor=topk", "topo.lan_rate=30 Gbit/s")["pairs"]
        alone[part] = row["points"][0]["rate_bit_s"]["estimate"], row["points"][0]["wan_bytes_step"]["estimate"]
    monkeypatch.setattr(fixed_point, "repeated", over)
    (row,) = budget(runs, capsys, "compressor=topk", "topo.lan_rate=30 Gbit/s")["pairs"]
    point = row["points"][0]
    found = point["rate_bit_s"]["estimate"]
    if least == "none":
        assert found is None
        return
    if least == "change":
        assert 1 <= found / changing_bit_s <= 1.05
    else:
        assert found == alone[{"slow": slow, "fast": fast}[least]][0]
    assert point["wan_bytes_step"]["estimate"] == alone[part_over(found)][1]
    assert point["step_s"]["estimate"] <= 0.4


@pytest.mark.usefixtures("without_measuring")
def test_pairs_that_cannot_be_are_named_with_the_reason(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["budget", "--runs", str(runs), *GIVEN[:3], "strategy=ddp,diloco", "compressor=none,int8"]) == 0
    out = capsys.readouterr().out
    assert "refused: ddp+int8, diloco+int8: compressor=int8: for a reason" in out
    assert "refused: diloco+none: strategy=diloco: cannot be simulated; known: ddp" in out
    assert "50 ms" in out and "epoch of 50 steps" in out and "cost" not in out
    none_can = ["budget", "--runs", str(runs), *GIVEN[:3], "strategy=diloco,gossip", "compressor=none"]
    assert main(none_can) == EXIT_INPUT
    assert "No pair could be looked at." in capsys.readouterr().out
    assert main([*none_can, "--check", "1"]) == EXIT_INPUT, "nothing to check makes nothing well"
    assert "nothing to check" in capsys.readouterr().err
    assert main(["budget", "--runs", str(runs), *GIVEN, "compressor=int8"]) == 2
    assert capsys.readouterr().err.splitlines() == ["longhaul: compressor=int8: for a reason"]


@pytest.mark.usefixtures("without_measuring")
def test_what_has_no_epochs_is_counted_by_a_thousand_steps(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "check_all", lambda asked: [{"faults": [], "epoch_steps": None} for _ in asked])
    (row,) = budget(runs, capsys, "compressor=none")["pairs"]
    assert (row["per"], row["steps"], row["cost"]) == ("1000 steps", 1000, None)
    assert row["gb"]["estimate"] == pytest.approx(row["points"][0]["wan_bytes_step"]["estimate"] / 1e6)


def test_all_faults_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["price_per_gb=cheap", "topo.rate=1 Gbit/s", "topo.rtt=fast,20 s", "workers=2,4"]
    assert main(["budget", *words]) == 2
    said = capsys.readouterr().err
    for line in (
        "target_step_s: must be given",
        "price_per_gb=cheap: must be a number from 0",
        "topo.rate=1 Gbit/s: is what is looked for",
        "topo.rtt: time 'fast'",
        "topo.rtt=20 s: must be above 0",
        "workers=2,4: takes one value",
    ):
        assert line in said
    assert main(["budget", "target_step_s=0", "--check", "-1", "--repeats", "0"]) == 2
    said = capsys.readouterr().err
    assert "--check -1: must be at least 0" in said and "--repeats 0: must be at least 1" in said


def test_where_each_pair_has_another_fault_all_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["workload=digits", "target_step_s=0.3", "topo.rtt=20 ms", "strategy=ddpp,deer", "compressor=none"]
    assert main(["budget", *words]) == EXIT_INPUT
    said = capsys.readouterr().err
    assert "strategy=ddpp: unknown" in said and "strategy=deer: unknown" in said


@pytest.mark.tier("all")
@pytest.mark.usefixtures("without_measuring", "analysis_in_process")
@pytest.mark.parametrize(("end", "status"), [({}, 0), ({"verdict": "invalid"}, 5), ({"status": "failed"}, 4)])
def test_points_are_emulated_as_runs_and_compared(
    runs: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    end: dict[str, Any],
    status: int,
) -> None:
    step_s = {"mean": 0.39, "p50": 0.39, "p95": 0.5, "exchange_p50": 0.39}
    sent = {"payload": 1, "wire_total": 1, "wire_wan": 8_000_000, "dense": 1}
    values = {"step_time_s": step_s, "bytes": sent, "steps": 4}
    place = Place(runs, lambda number, spec: {**values, **end})
    monkeypatch.setattr(registry, "executor", lambda *_, **__: place)
    found = budget(runs, capsys, "compressor=none,topk", "--check", "2", "steps=4", status=status)
    first, last = found["checks"]
    assert (first["compressor"], last["compressor"]) == ("topk", "none")
    for check, spec in zip((first, last), place.begun, strict=False):
        (link,) = spec.topology.wan_links
        assert link.forward.rate_bit_s == pytest.approx(check["rate_bit_s"])
        assert link.rtt_s == pytest.approx(check["rtt_s"])
        assert (spec.compressor.name, spec.workers, spec.auto_dilation) == (check["compressor"], 2, True)
    assert len(place.begun) == (2 if status == 0 else 4), "what fails is made once more"
    if status:
        assert first["why_not"] and first["measured_step_s"] is None
        return
    assert first["measured_step_s"] == 0.39 and first["measured_wan_bytes_step"] == 2_000_000
    assert first["error"] == pytest.approx(first["step_s"]["estimate"] / 0.39 - 1) and first["meets_target"]
    assert main(["budget", "--runs", str(runs), *GIVEN, "compressor=none,topk", "steps=4", "--check", "2"]) == 0
    out = capsys.readouterr().out
    assert len(place.begun) == 2, "a run that is there is not made again"
    assert (
        "checked by emulation" in out
        and first["run_id"] in out
        and "measured (ms)" in out
        and " 390 " in out
        and "met" in out
    )


@pytest.mark.usefixtures("without_measuring")
def test_what_was_computed_is_told_also_where_nothing_can_be_checked(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(runs, lambda number, spec: MachineError("no port is free"))
    monkeypatch.setattr(registry, "executor", lambda *_, **__: place)
    found = budget(runs, capsys, "compressor=none,topk", "--check", "2", "steps=4", status=3)
    assert len(found["pairs"]) == 2 and "checks" not in found and len(place.begun) == 1
