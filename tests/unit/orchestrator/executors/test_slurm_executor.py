"""Jobs of Slurm and of submitit: the text that Slurm gets, replies that came or never will, a silent controller."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import MachineError
from testbed.orchestrator.executors import slurm_queue
from testbed.orchestrator.executors.executor import FOLDER
from testbed.orchestrator.executors.remote_executor import NoRoomError, RemoteExecutor
from testbed.orchestrator.executors.slurm_executor import JOBS, SlurmJobs
from testbed.orchestrator.machine import provenance
from testbed.orchestrator.run_store.ended import KeptRuns
from testbed.orchestrator.search.sweep.specs import RunRequest
from testbed.orchestrator.search.sweep.status import DONE, standing
from tests.distributed.ray_cluster import needs
from tests.unit.orchestrator.executors.made_machines import full_disk, reply_of


@needs("submitit")
def test_debug_jobs_are_carried_out_here_and_a_failed_one_says_why(asked: list[RunRequest], runs: Path) -> None:
    def carry(request: Mapping[str, Any]) -> Mapping[str, Any]:
        if request["n"] == 2:
            raise RuntimeError("no such thing")
        return {"archive": None, "n": request["n"]}

    with SlurmJobs({"cluster": "debug"}, runs, carry) as jobs:
        found = []
        for number in (1, 2):
            ticket = jobs.begin({"n": number})
            found += jobs.ended(1.0)
            jobs.forget(ticket)
    assert found[0].reply == {"archive": None, "n": 1} and found[0].lost is None
    assert found[1].reply is None and "no such thing" in str(found[1].broken or found[1].lost)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commands of a Slurm that carries nothing out: the first job is number 77, each next one has one more."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    count = f"n=$(cat {tmp_path}/n 2>/dev/null || echo 77); echo $((n + 1)) >{tmp_path}/n"
    (binaries / "sbatch").write_text(f'#!/bin/sh\n{count}\ncp "$1" {tmp_path}/sent\necho Submitted batch job $n\n')
    (binaries / "scancel").write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/cancelled\n')
    (binaries / "squeue").write_text(f"#!/bin/sh\ncat {tmp_path}/queue\n")
    (binaries / "srun").write_text("#!/bin/sh\n")
    for path in binaries.iterdir():
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(binaries), prepend=":")
    return tmp_path


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm is asked each time, and what is gone is gone at once."""
    monkeypatch.setattr(slurm_queue, "ASK_EVERY_S", 0.0)
    monkeypatch.setattr(slurm_queue, "SETTLES_S", -1.0)


@needs("submitit")
def test_a_job_that_slurm_has_no_longer_is_lost_unless_its_reply_came(runs: Path, slurm: Path, impatient: None) -> None:
    with SlurmJobs({}, runs) as jobs:
        tickets = [jobs.begin({"n": number}) for number in range(3)]
        (slurm / "queue").write_text("\n".join(tickets))
        assert jobs.free() == 8 - 3 and jobs.ended(0.0) == []
        (slurm / "queue").write_text(tickets[2])
        assert jobs.free() == 8 - 3
        come(runs, tickets[0], {"n": 0})
        (runs.resolve() / FOLDER / JOBS / "slurm" / tickets[1] / f"{tickets[1]}_0_log.err").write_text("CANCELLED\n\n")
        came, gone = jobs.ended(0.0)
        assert came.reply == {"n": 0}
        assert gone.lost == f"job {tickets[1]} is gone and left no reply: CANCELLED"


@needs("submitit")
def test_while_slurms_controller_does_not_answer_nothing_is_begun_and_nothing_lost(
    runs: Path, slurm: Path, impatient: None
) -> None:
    with SlurmJobs({}, runs) as jobs:
        ticket = jobs.begin({"n": 0})
        (slurm / "queue").write_text(ticket)
        assert jobs.free() == 7
        (slurm / "queue").unlink()
        (slurm / "bin" / "sbatch").write_text("#!/bin/sh\nexit 1\n")
        with pytest.raises(NoRoomError):
            jobs.begin({"n": 1})
        assert jobs.free() == 0 and jobs.ended(0.0) == []
        (slurm / "queue").write_text(ticket)
        with pytest.raises(MachineError, match="a job is not taken"):
            jobs.begin({"n": 1})


def come(runs: Path, ticket: str, reply: Mapping[str, Any]) -> Path:
    """As a job leaves its reply."""
    from submitit.core.utils import JobPaths

    path = JobPaths(runs.resolve() / FOLDER / JOBS / "slurm" / "%j", ticket).result_pickle
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(("success", reply)))
    return path


@needs("submitit")
def test_of_jobs_that_are_ended_the_next_call_takes_what_has_come(runs: Path, slurm: Path) -> None:
    with SlurmJobs({}, runs) as jobs:
        tickets = [jobs.begin({"n": number}) for number in range(2)]
        there = come(runs, tickets[0], {"n": 0})
        jobs.end(tickets)
    assert there.exists() and not (there.parent.parent / tickets[1]).exists()
    assert tickets[1] in (slurm / "cancelled").read_text().split()
    with SlurmJobs({}, runs) as jobs:
        assert list(jobs.left_over()) == [{"n": 0}]
        (there.parent.parent / "%j").mkdir()  # as submitit itself does with cluster=local
    assert not there.parent.parent.exists(), "nothing is left behind"


@needs("submitit")
def test_a_reply_that_cannot_be_written_here_stays_until_it_can(
    asked: list[RunRequest], runs: Path, slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = reply_of(slurm / "far", {"spec": asked[0].spec.to_json(), "code_hash": provenance.code_hash()})
    there = come(runs, "5", reply)
    place = RemoteExecutor(SlurmJobs({}, runs), runs, share=False)
    with monkeypatch.context() as full:
        full.setattr("testbed.orchestrator.executors.remote_executor.unpack", full_disk)
        with pytest.raises(MachineError, match=f"its reply is kept in {there.parent.parent}"):
            place.__enter__()
    assert there.exists()
    with place:
        assert standing(asked[0], KeptRuns(runs)).state == DONE
    assert not there.parent.parent.exists(), "nothing is left behind"


@needs("submitit")
def test_slurm_gets_a_node_for_each_job_and_what_was_asked_for(runs: Path, slurm: Path) -> None:
    given = {"partition": "long", "time_min": 90, "cpus": 8, "memory_gb": 16, "account": "wan", "exclude": "n[1-2]"}
    with SlurmJobs(given, runs) as jobs:
        assert jobs.begin({"spec": {}}) == "77"
    lines = (slurm / "sent").read_text().splitlines()
    wanted = {"--partition=long", "--time=90", "--cpus-per-task=8", "--mem=16GB", "--account=wan", "--exclude='n[1-2]'"}
    wanted |= {"--nodes=1", "--ntasks-per-node=1", "--exclusive", "--no-requeue", "--job-name=longhaul"}
    assert {f"#SBATCH {word}" for word in wanted} <= set(lines)
    assert any(line.startswith("export PYTHONPATH=") for line in lines)
    (command,) = [line for line in lines if line.startswith("srun ")]
    assert "--cpu-bind=none" in command and "submitit.core._submit" in command
