"""Executors that are refused: by their options, because they are not installed, because nobody answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.core.errors import InputError, MachineError
from testbed.orchestrator.cli import main as cli
from testbed.orchestrator.executors.ray_executor import RayNodes
from testbed.orchestrator.executors.slurm_executor import SlurmJobs
from tests.distributed.harness import port_of_ones_own
from tests.distributed.ray_cluster import needs


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda runs: RayNodes({"adress": "x"}), ["ray: adress: unknown option; did you mean address?"]),
        (lambda runs: RayNodes({"address": "ray://h:1"}), ["give the cluster's HOST:PORT"]),
        (
            lambda runs: SlurmJobs({"cluster": "moon", "jobs": 0, "time_min": "long", "queue": "a"}, runs),
            ["queue: unknown option", "cluster=moon: unknown", "jobs=0: must be", "time_min=long: must be"],
        ),
    ],
)
def test_options_are_refused_all_at_once(make: Callable[[Path], object], said: list[str], runs: Path) -> None:
    with pytest.raises(InputError) as caught:
        make(runs)
    assert len(caught.value.faults) == len(said)
    assert all(any(one in fault for fault in caught.value.faults) for one in said), caught.value.faults


@pytest.mark.parametrize(
    "name", [pytest.param("ray", marks=needs("ray")), pytest.param("slurm", marks=needs("submitit"))]
)
def test_an_executor_that_is_not_installed_or_finds_nobody_is_named(
    name: str, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(runs))
    with port_of_ones_own() as port:  # at which nobody listens
        machines = RayNodes({"address": f"127.0.0.1:{port}"}) if name == "ray" else SlurmJobs({}, runs)
        with pytest.raises(MachineError, match="no cluster answers at address=" if name == "ray" else "no Slurm"):
            machines.__enter__()
    module = "testbed.orchestrator.executors." + ("ray_executor" if name == "ray" else "slurm_executor")
    monkeypatch.setattr(f"{module}.has_module", lambda _: False)
    with pytest.raises(MachineError, match=r"is not (installed|there): make setup, or pip install 'longhaul-testbed\["):
        machines.__enter__()


def test_faults_of_axes_and_of_options_are_told_together(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--executor", "slurm", "--executor-option", "jobs=none", "--executor-option", "x", "nosuch"]
    assert cli.main(["sweep", *words]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3 and "sweep nosuch: unknown" in lines[0]
    assert "--executor-option x: not of the form key=value" in lines[1] and "slurm: jobs=none" in lines[2]
    assert cli.main(["sweep", "smoke", "--executor-option", "jobs=2"]) == 2
    assert "local: jobs: this executor has no options" in capsys.readouterr().err
