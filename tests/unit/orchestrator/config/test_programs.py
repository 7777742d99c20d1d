"""A user's script is checked before anything is built, and gets what torchrun would give it."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.orchestrator.config.config import resolve
from testbed.orchestrator.config.programs import program_of


@pytest.fixture
def script(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    path = tmp_path / "train.py"
    path.write_text("")
    path.chmod(0o644)
    return path


def faults(*overrides: str) -> tuple[str, ...]:
    return resolve(overrides).faults


def test_a_script_gets_what_torchrun_would_give_it(script: Path) -> None:
    spec = resolve(["workload=script", f"workload.script={script}", "workload.args=[--epochs,2]", "workers=3"]).spec
    program = program_of(spec)
    assert program.command()[-3:] == [str(script), "--epochs", "2"]
    environment = program.environment(2, "10.64.0.1", "eth0")
    assert environment["RANK"] == "2"
    assert environment["WORLD_SIZE"] == "3"
    assert environment["MASTER_ADDR"] == "10.64.0.1"
    assert program.working_directory() == script.parent
    assert (spec.workload.name, spec.strategy.name, spec.steps) == ("script", "script", None)


def test_a_script_that_cannot_be_run_is_refused(script: Path, tmp_path: Path) -> None:
    assert faults("workload=script") == ("workload.script: must be given, such as workload.script=train.py",)
    (fault,) = faults("workload=script", f"workload.script={tmp_path}/none.py")
    assert fault.endswith("no such file")
    script.chmod(0o600)
    (fault,) = faults("workload=script", f"workload.script={script}")
    assert "chmod o+r" in fault


def test_a_strategy_of_ours_beside_a_script_is_refused(script: Path) -> None:
    (fault,) = faults("workload=script", f"workload.script={script}", "strategy=ddp")
    assert fault == "strategy: workload=script brings its own; leave it out"


@pytest.mark.parametrize(
    "override",
    ["target=0.9", "steps=10", "epochs=2", "batch_size=8", "evaluate_every=5", "timeout_s=60", "max_wall_s=60"]
    + ["device=paced", "device.step_s=0.1"],
)
def test_a_key_that_a_script_does_not_read_is_refused(script: Path, override: str) -> None:
    fault = f"{override}: a run with workload=script does not read {override.split('=')[0].split('.')[0]}; leave it out"
    assert fault in faults("workload=script", f"workload.script={script}", override)


def test_a_session_reads_no_compressor(script: Path) -> None:
    assert faults("workload=hand", "compressor=topk", "seed=3", "target=null") == (
        "compressor=topk: a run with workload=hand does not read compressor; leave it out",
    )


def test_a_script_keeps_the_compressor_for_its_hook(script: Path) -> None:
    spec = resolve(["workload=script", f"workload.script={script}", "compressor=topk"]).spec
    assert spec.compressor.name == "topk"


@pytest.mark.parametrize(
    ("overrides", "word"),
    [
        (["dilation=0.5"], "must be at least 1"),
        (["dilation=80"], "5.36 s of wall time"),
    ],
)
def test_a_dilation_that_tcp_would_not_bear_is_refused(overrides: list[str], word: str) -> None:
    assert any(word in fault for fault in faults("topo=wan1g", *overrides))


def test_a_cap_of_flows_needs_a_congestion_control_that_paces() -> None:
    asked = ["topo=star", "topo.flow_cap=5 Gbit/s"]
    assert any("topo.flow_cap: tcp=reno" in fault for fault in faults(*asked, "tcp=reno"))
    assert resolve([*asked, "tcp=stock"]).spec.topology.flow_cap_bit_s == 5e9


def test_a_dilation_that_tcp_bears_is_taken() -> None:
    assert resolve(["topo=wan1g", "dilation=8"]).spec.dilation == 8
    assert resolve(["topo=wan1g", "dilation=2", "tcp=stock"]).spec.dilation == 2
