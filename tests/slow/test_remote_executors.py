"""Twenty-four real runs of a sweep that `kill -9` ends twice: here, and on two Ray nodes of which one is lost too.

Twelve as jobs of a real Slurm that has one cancelled, a node drained and its controller restarted. The nodes lie on
this machine and take turns.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.orchestrator.machine.clone import environment
from tests.distributed.ray_cluster import Cluster, needs
from tests.emulation.support import host_state
from tests.slow.slurm_cluster import NODES, SlurmCluster
from tests.sweeping import Sweep, counted, found, hash_of, summaries

RUNS, SLURM_RUNS = 24, 12
LIMIT_S = 1800.0


def words(runs: int) -> tuple[str, ...]:
    """Of a sweep of so many."""
    return (
        *("topo=lan", "topo.lan_rate='1 Gbit/s'", "compressor=none,topk", f"seed=range({runs // 2})", "workers=2"),
        *("workload=digits", "steps=4", "batch_size=8", "device=paced", "device.step_s=0.1", "dilation=4"),
    )


@contextlib.contextmanager
def killed_at_last(sweep: Sweep) -> Iterator[Sweep]:
    """One that would begin more and more on a cluster that comes to its end."""
    try:
        yield sweep
    finally:
        sweep.kill()


def has(runs: Path, enough: int) -> Callable[[], bool]:
    return lambda: len(counted(runs)) >= enough


def has_ended(runs: Path, enough: int) -> Callable[[], bool]:
    """Also such as do not count, which a busy machine makes in place of others."""
    return lambda: len(summaries(runs)) >= enough


def only_begun(sweep: Sweep, cluster: SlurmCluster) -> int:
    """Number of a job that began while this waited, and so has its run before it."""
    known = max(cluster.jobs("--states=running"), default=0)
    sweep.wait_until(lambda: max(cluster.jobs("--states=running"), default=0) > known, LIMIT_S)
    return max(cluster.jobs("--states=running"))


def is_under_way(runs: Path) -> bool:
    """A run that has something to lose: of one that has not, nothing is kept."""
    return any(run.spec.exists() and not run.summary.exists() for run in found(runs))


def assert_finished(sweep: Sweep, number: int = RUNS) -> None:
    # a busy machine makes runs invalid, which are then made once more
    assert sweep.wait(LIMIT_S) in (0, 5), sweep.said
    points, those = sweep.points(), counted(sweep.runs)
    assert len({point["hash"] for point in points}) == number
    assert all(point["state"] in ("done", "given up") for point in points), sweep.said
    assert len(those) == len(set(those)), "no run that counts was made again"
    assert set(those) == {point["hash"] for point in points if point["state"] == "done"}
    ended = summaries(sweep.runs)
    for point in points:
        tries = [run.run_id for run in found(sweep.runs) if hash_of(run) == point["hash"] and run.run_id in ended]
        assert tries, "each has come back, also where it does not count"
        print(point["values"], point["state"], *(f"{one}: {ended[one]['verdict']}" for one in tries), sep="  ")
    print(f"{len(those)} of {number} runs count, {len(found(sweep.runs))} were begun")


@pytest.mark.timeout(3600)
def test_a_sweep_that_is_killed_twice_comes_to_its_end(tmp_path: Path) -> None:
    runs, before = tmp_path / "runs", host_state()
    for enough in (6, 14):
        sweep = Sweep(runs, *words(RUNS))
        sweep.wait_until(has(runs, enough), LIMIT_S)
        sweep.wait_until(lambda: is_under_way(runs), LIMIT_S)
        sweep.kill()
    there = set(summaries(runs))
    sweep = Sweep(runs, *words(RUNS))
    assert_finished(sweep)
    assert there <= set(summaries(runs)), "what was there is there"
    assert sorted(one["status"] for one in summaries(runs).values() if one["status"] != "completed") == ["killed"] * 2
    assert host_state() == before


@needs("ray")
@pytest.mark.timeout(3600)
def test_so_it_does_on_ray_nodes_of_which_one_is_lost(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder, before = tmp_path_factory.mktemp("r"), host_state()  # Ray's sockets lie below it: their paths must be short
    runs = folder / "runs"
    with Cluster(folder, {**environment(), "PYTHONWARNINGS": "ignore"}) as cluster:
        asked = ("--executor", "ray", "--executor-option", f"address={cluster.address}", *words(RUNS))
        first = Sweep(runs, *asked)
        first.wait_until(has(runs, 6), LIMIT_S)
        first.kill()
        second = Sweep(runs, *asked)
        second.wait_until(has(runs, 11), LIMIT_S)
        cluster.kill(1)
        second.wait_until(has(runs, 15), LIMIT_S)
        second.kill()
        assert "lost, to be made again: with the Ray node on" in second.said
        assert_finished(Sweep(runs, *asked))
    for run in found(runs):
        there = {path.name for path in run.path.iterdir()}
        assert {"spec.json", "summary.json", "provenance.json", "network.json", "events.jsonl", "logs"} <= there
    ended = summaries(runs).values()
    assert {one["status"] for one in ended} == {"completed"} and all(one["bytes"]["payload"] for one in ended)
    assert host_state() == before


@needs("submitit")
@pytest.mark.slurm
@pytest.mark.timeout(3600)
def test_so_it_does_on_a_real_slurm_with_a_cancelled_job_a_drained_node_and_a_restarted_controller(
    tmp_path: Path,
) -> None:
    runs, before = tmp_path / "runs", host_state()
    (tmp_path / "slurm").mkdir()
    with SlurmCluster(tmp_path / "slurm") as cluster, contextlib.ExitStack() as held:
        asked = ("--executor", "slurm", "--executor-option", "jobs=3", *words(SLURM_RUNS))
        sweep = held.enter_context(killed_at_last(Sweep(runs, *asked, environ=cluster.environ)))
        sweep.wait_until(has_ended(runs, 2), LIMIT_S)
        cancelled = only_begun(sweep, cluster)
        cluster.call("scancel", str(cancelled))
        sweep.wait_until(lambda: "lost, to be made again: " in sweep.said, LIMIT_S)
        sweep.wait_until(lambda: cancelled not in cluster.jobs(), LIMIT_S)

        cluster.call("scontrol", "update", f"NodeName={NODES[0]}", "State=DRAIN", "Reason=test")
        sweep.wait_until(lambda: not cluster.jobs(f"--nodelist={NODES[0]}"), LIMIT_S)
        sweep.wait_until(has_ended(runs, len(summaries(runs)) + 2), LIMIT_S)
        assert not cluster.jobs(f"--nodelist={NODES[0]}"), "a drained node takes nothing more"

        says = runs / ".sweeps" / ".jobs" / "slurm" / "{0}" / "{0}_0_log.out"
        going_on = Path(str(says).format(only_begun(sweep, cluster)))
        sweep.wait_until(lambda: going_on.exists() and going_on.stat().st_size > 0, LIMIT_S)
        there = len(summaries(runs))
        cluster.stop("slurmctld")  # until a job's process is there, its begin needs the controller
        sweep.wait_until(has_ended(runs, there + 1), LIMIT_S)  # what was going on goes on, and comes back
        cluster.start_controller()
        cluster.call("scontrol", "update", f"NodeName={NODES[0]}", "State=RESUME")
        assert_finished(sweep, SLURM_RUNS)
        print(f"{sweep.said.count('lost, to be made again')} were lost and made again")
    assert not list((runs / ".sweeps" / ".jobs").glob("*/[0-9]*")), "no job is left behind"
    assert host_state() == before
