"""Sweeps whose runs are made elsewhere: by two real Ray nodes of which one dies, and by submitit's own processes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from testbed.core.rundir import RUN_ID
from testbed.orchestrator.clone import CLONE, environment
from tests.distributed.made_up_errands import RUNS
from tests.distributed.ray_cluster import LIMIT_S, Cluster, needs

Begin = Callable[..., "Sweep"]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "made-up").mkdir()
    return {**environment(), "MADE_UP": str(tmp_path / "made-up"), "PYTHONWARNINGS": "ignore"}


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory, environ: dict[str, str]) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("r")  # sockets of Ray lie below it, whose paths have to be short
    with Cluster(folder, environ) as one:
        yield one


@pytest.fixture
def begin(runs: Path, environ: dict[str, str]) -> Iterator[Begin]:
    sweeps: list[Sweep] = []

    def one(*words: str) -> Sweep:
        sweeps.append(Sweep(runs, environ, *words))
        return sweeps[-1]

    yield one
    for sweep in sweeps:
        sweep.kill()


class Sweep:
    def __init__(self, runs: Path, environ: Mapping[str, str], *words: str) -> None:
        self.output = runs.parent / f"output-{time.time_ns()}"
        command = [sys.executable, "-m", "tests.distributed.made_up_errands", "--runs", str(runs), *words]
        with self.output.open("w") as file:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=dict(environ), cwd=CLONE
            )

    def wait_for(self, ready: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + LIMIT_S
        while not ready():
            assert self.process.poll() is None, f"the sweep ended:\n{self.output.read_text()}"
            assert time.monotonic() < deadline_s, self.output.read_text()
            time.sleep(0.05)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def wait(self) -> int:
        return self.process.wait(LIMIT_S)


def hashes(runs: Path) -> list[str]:
    paths = runs.iterdir() if runs.exists() else ()
    return [json.loads((path / "spec.json").read_text())["hash"] for path in paths if RUN_ID.fullmatch(path.name)]


def marks(environ: Mapping[str, str], what: str) -> Counter[str]:
    return Counter(path.name.split("-")[1] for path in Path(environ["MADE_UP"]).glob(f"{what}-*"))


def assert_all_there(runs: Path, sweep: Sweep) -> None:
    found = hashes(runs)
    assert len(found) == RUNS and len(set(found)) == RUNS, "none lacks and none is there twice"
    (folder,) = [path for path in (runs / ".sweeps").iterdir() if (path / "results.json").exists()]
    points = json.loads((folder / "results.json").read_text())["points"]
    assert [point["state"] for point in points] == ["done"] * RUNS
    assert not list(runs.glob(".arriving-*")), sweep.output.read_text()


@needs("ray")
@pytest.mark.timeout(600)
def test_a_sweep_on_two_ray_nodes_survives_the_end_of_its_process_and_the_loss_of_a_node(
    runs: Path, cluster: Cluster, environ: dict[str, str], begin: Begin
) -> None:
    words = ("--executor", "ray", "--executor-option", f"address={cluster.address}")
    first = begin(*words)
    first.wait_for(lambda: len(hashes(runs)) >= 5)
    first.kill()
    at_first, begun_at_first = hashes(runs), marks(environ, "begun")
    second = begin(*words)
    second.wait_for(lambda: len(hashes(runs)) >= RUNS // 2)
    assert "2 at once on 2 Ray nodes" in second.output.read_text()
    at_loss, begun_at_loss = hashes(runs), marks(environ, "begun")
    cluster.kill(1)
    assert second.wait() == 0, second.output.read_text()
    assert_all_there(runs, second)
    begun = marks(environ, "begun")
    assert all(begun[one] == begun_at_first[one] for one in at_first), "what was there is not begun again"
    assert all(begun[one] == begun_at_loss[one] for one in at_loss), "nor is it when a node is lost"
    lost = second.output.read_text().count("lost, to be made again: with the Ray node on")
    assert lost >= 1
    # each loss begins one more
    assert (begun - begun_at_loss).total() <= RUNS - len(at_loss) + lost


@needs("submitit")
@pytest.mark.timeout(600)
def test_a_sweep_of_slurm_jobs_that_is_killed_twice_takes_what_came_meanwhile(
    runs: Path, environ: dict[str, str], begin: Begin
) -> None:
    words = ("--executor", "slurm", "--executor-option", "cluster=local", "--executor-option", "jobs=2")
    for enough in (3, 6):
        sweep = begin(*words)
        sweep.wait_for(lambda enough=enough: len(hashes(runs)) >= enough)  # type: ignore[misc]
        sweep.kill()
    there, before = hashes(runs), marks(environ, "begun")
    sweep = begin(*words)
    assert sweep.wait() == 0, sweep.output.read_text()
    assert_all_there(runs, sweep)
    begun = marks(environ, "begun")
    assert all(begun[one] == before[one] for one in there), "what was there is not begun again"
    assert not list((runs / ".sweeps" / ".jobs").glob("*")), "no job is left behind"
