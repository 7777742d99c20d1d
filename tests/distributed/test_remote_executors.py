"""Sweeps whose runs are made elsewhere: by two real Ray nodes of which one dies, and by submitit's own processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from testbed.orchestrator.machine.clone import environment
from tests.distributed.fake_jobs import HOLD, RUNS
from tests.distributed.ray_cluster import LIMIT_S, Cluster, needs
from tests.sweeping import Sweep, found, hash_of

Begin = Callable[..., Sweep]


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
        sweeps.append(Sweep(runs, *words, program=("tests.distributed.fake_jobs",), environ=environ))
        return sweeps[-1]

    yield one
    for sweep in sweeps:
        sweep.kill()


def hashes(runs: Path) -> list[str]:
    return [hash_of(run) for run in found(runs)]


def marks(environ: Mapping[str, str], what: str) -> Counter[str]:
    return Counter(path.name.split("-")[1] for path in Path(environ["MADE_UP"]).glob(f"{what}-*"))


def on_their_way(environ: Mapping[str, str]) -> int:
    """Runs that are held, after those that were about to end have."""
    begun, ended = marks(environ, "begun"), marks(environ, "ended")
    return len([one for one in begun if not ended[one]])


def assert_all_there(runs: Path, sweep: Sweep) -> None:
    assert len(hashes(runs)) == RUNS and len(set(hashes(runs))) == RUNS, "none lacks and none is there twice"
    assert [point["state"] for point in sweep.points()] == ["done"] * RUNS
    assert not list(runs.glob(".arriving-*")), sweep.said


@needs("ray")
@pytest.mark.tier("slow")
@pytest.mark.timeout(4 * LIMIT_S)
def test_a_sweep_on_two_ray_nodes_survives_the_end_of_its_process_and_the_loss_of_a_node(
    runs: Path, cluster: Cluster, environ: dict[str, str], begin: Begin
) -> None:
    words = ("--executor", "ray", "--executor-option", f"address={cluster.address}")
    first = begin(*words)
    first.wait_until(lambda: len(hashes(runs)) >= 5, LIMIT_S)
    first.kill()
    at_first, begun_at_first = hashes(runs), marks(environ, "begun")
    second = begin(*words)
    second.wait_until(lambda: len(hashes(runs)) >= RUNS // 2, LIMIT_S)
    assert "2 at once on 2 Ray nodes" in second.said
    hold = Path(environ["MADE_UP"]) / HOLD
    hold.touch()  # however busy the machine is, the node that is lost has one under way
    second.wait_until(lambda: on_their_way(environ) >= 2, LIMIT_S)
    at_loss, begun_at_loss = hashes(runs), marks(environ, "begun")
    cluster.kill(1)
    hold.unlink()
    assert second.wait(LIMIT_S) == 0, second.said
    assert_all_there(runs, second)
    begun = marks(environ, "begun")
    assert all(begun[one] == begun_at_first[one] for one in at_first), "what was there is not begun again"
    assert all(begun[one] == begun_at_loss[one] for one in at_loss), "nor is it when a node is lost"
    lost = second.said.count("lost, to be made again: with the Ray node on")
    assert lost >= 1
    # each loss begins one more
    assert (begun - begun_at_loss).total() <= RUNS - len(at_loss) + lost


@needs("submitit")
@pytest.mark.tier("slow")
@pytest.mark.timeout(4 * LIMIT_S)
def test_a_sweep_of_slurm_jobs_that_is_killed_twice_takes_what_came_meanwhile(
    runs: Path, environ: dict[str, str], begin: Begin
) -> None:
    words = ("--executor", "slurm", "--executor-option", "cluster=local", "--executor-option", "jobs=2")
    for enough in (3, 6):
        sweep = begin(*words)
        sweep.wait_until(lambda enough=enough: len(hashes(runs)) >= enough, LIMIT_S)  # type: ignore[misc]
        sweep.kill()
    there, before = hashes(runs), marks(environ, "begun")
    sweep = begin(*words)
    assert sweep.wait(LIMIT_S) == 0, sweep.said
    assert_all_there(runs, sweep)
    begun = marks(environ, "begun")
    assert all(begun[one] == before[one] for one in there), "what was there is not begun again"
    assert not list((runs / ".sweeps" / ".jobs").glob("*")), "no job is left behind"
