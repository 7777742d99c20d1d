"""What becomes of jobs: losses, damage, machines that lack something; the text that Slurm gets; refused options."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import errno
import json
import os
import pickle
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest

from testbed.core.errors import InputError, MachineError
from testbed.core.record.run_directory import RunDir
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.cli import main as cli
from testbed.orchestrator.executors import __main__ as job_process
from testbed.orchestrator.executors import slurm_queue
from testbed.orchestrator.executors.executor import FOLDER
from testbed.orchestrator.executors.job import REPLY, run_job
from testbed.orchestrator.executors.ray_executor import RayNodes
from testbed.orchestrator.executors.remote_executor import MAX_LOSSES, Ended, NoRoomError, RemoteExecutor
from testbed.orchestrator.executors.run_archive import pack
from testbed.orchestrator.executors.slurm_executor import JOBS, SlurmJobs
from testbed.orchestrator.machine import checks, provenance
from testbed.orchestrator.run import preflight
from testbed.orchestrator.run_store.ended import KeptRuns
from testbed.orchestrator.search.sweep.display import Display
from testbed.orchestrator.search.sweep.estimates import UNKNOWN, Estimate
from testbed.orchestrator.search.sweep.scheduler import SweepScheduler
from testbed.orchestrator.search.sweep.specs import RunRequest
from testbed.orchestrator.search.sweep.status import DONE, standing
from tests.distributed.harness import port_of_ones_own
from tests.distributed.ray_cluster import needs
from tests.unit.orchestrator.made_runs import asked_of, grid, make_run

Answer = Callable[[int, Mapping[str, Any]], Mapping[str, Any]]


def reply_of(scratch: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    run = make_run(scratch, RunSpec.from_json(request["spec"]), code_hash=request["code_hash"])
    return {"host": "far", "archive": pack(run), "faults": [], "lacks": [], "ended": None}


class Machines:
    """Two machines without any cluster; `answer` says what comes of the n-th job: fields of `Ended`."""

    name, room = "made-up", "2 at once"

    def __init__(self, answer: Answer, kept_in: Path | None = None) -> None:
        self.kept_in = kept_in
        self.answer = answer
        self.waiting: dict[str, Mapping[str, Any]] = {}
        self.begun = 0
        self.others = 1
        self.ended_early: list[str] = []

    def __enter__(self) -> Machines:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def left_over(self) -> Iterator[Mapping[str, Any]]:
        return iter(())

    def free(self) -> int:
        return 2 - len(self.waiting)

    def begin(self, request: Mapping[str, Any]) -> str:
        self.begun += 1
        self.waiting[str(self.begun)] = request
        return str(self.begun)

    def ended(self, timeout_s: float) -> Sequence[Ended]:
        ticket, request = next(iter(self.waiting.items()))
        return [Ended(ticket, **self.answer(int(ticket), request))]

    def forget(self, ticket: str) -> None:
        del self.waiting[ticket]

    def avoid(self, ticket: str) -> bool:
        self.others -= 1
        return self.others >= 0

    def end(self, tickets: Sequence[str]) -> None:
        self.ended_early += tickets


@pytest.fixture(scope="module")
def asked() -> list[RunRequest]:
    return asked_of(grid("seed=range(3)"))


def follow(asked: list[RunRequest], machines: Machines, runs: Path) -> tuple[SweepScheduler, list[str]]:
    kept = KeptRuns(runs)
    found = [standing(one, kept) for one in asked]
    each = {one.spec.hash: Estimate(None, UNKNOWN) for one in asked}
    with RemoteExecutor(machines, runs, share=False) as place, Display("made", found, on_error_stream=False) as display:
        scheduler = SweepScheduler(kept, each, display)
        scheduler.follow(found, place)
    return scheduler, [standing(one, KeptRuns(runs)).state for one in asked]


def test_what_is_lost_or_damaged_on_the_way_is_said_and_made_again(
    asked: list[RunRequest], runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(number: int, request: Mapping[str, Any]) -> Mapping[str, Any]:
        if number == 1:
            return {"lost": "node 7 died"}
        reply = copy.deepcopy(reply_of(tmp_path / str(number), request))
        if number == 2:
            reply["archive"]["files"]["spec.json"]["zlib"] = b"half"
        return {"reply": reply}

    machines = Machines(answer)
    scheduler, states = follow(asked, machines, runs)
    assert states == [DONE] * 3 and scheduler.error is None and machines.begun == 5
    out = capsys.readouterr().out
    assert "seed=0: lost, to be made again: node 7 died" in out
    assert "seed=1: lost, to be made again: on the way from far: " in out and "spec.json: came back damaged" in out


def test_what_found_no_room_after_all_is_begun_later(asked: list[RunRequest], runs: Path, tmp_path: Path) -> None:
    machines = Machines(lambda number, request: {"reply": reply_of(tmp_path / str(number), request)})
    begin, refused = machines.begin, []

    def begin_later(request: Mapping[str, Any]) -> str:
        if len(refused) < 2:
            refused.append(request)
            raise NoRoomError
        return begin(request)

    machines.begin = begin_later  # type: ignore[method-assign]
    machines.ended = lambda _: [  # type: ignore[method-assign]
        Ended(ticket, **machines.answer(int(ticket), request)) for ticket, request in machines.waiting.items()
    ]
    _, states = follow(asked, machines, runs)
    assert states == [DONE] * 3 and machines.begun == 3 and len(refused) == 2


def test_a_run_that_is_lost_again_and_again_is_a_failed_attempt(asked: list[RunRequest], runs: Path) -> None:
    machines = Machines(lambda number, request: {"lost": "gone"})
    scheduler, _ = follow(asked[:1], machines, runs)
    assert machines.begun == 2 * MAX_LOSSES
    assert scheduler.unrecorded == {asked[0].spec.hash: [f"lost {MAX_LOSSES} times, the last time: gone"] * 2}


def test_a_machine_that_lacks_something_is_left_alone_and_the_last_ends_the_sweep(
    asked: list[RunRequest], runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lacking = {"host": "far", "archive": None, "faults": [], "lacks": ["the code in /x is 1"], "ended": None}

    def first_lacks(number: int, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"reply": lacking if number == 1 else reply_of(tmp_path / str(number), request)}

    _, states = follow(asked, Machines(first_lacks), runs)
    assert states == [DONE] * 3 and "this one is left alone: far: the code in /x is 1" in capsys.readouterr().out
    machines = Machines(lambda number, request: {"reply": lacking})
    scheduler, _ = follow(asked_of(grid("seed=range(7,9)")), machines, runs)
    assert isinstance(scheduler.error, MachineError) and scheduler.error.faults == ("far: the code in /x is 1",)


def full_disk(archive: Mapping[str, Any], runs_root: Path) -> RunDir:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(runs_root / "a file"))


@pytest.mark.parametrize("is_kept", [True, False])
def test_what_cannot_be_written_here_ends_the_sweep_and_is_neither_forgotten_nor_made_again(
    is_kept: bool, asked: list[RunRequest], runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.orchestrator.executors.remote_executor.unpack", full_disk)
    kept_in = tmp_path / "kept" if is_kept else None
    machines = Machines(lambda number, request: {"reply": reply_of(tmp_path / str(number), request)}, kept_in)
    scheduler, _ = follow(asked, machines, runs)
    assert isinstance(scheduler.error, MachineError) and machines.begun == 2
    assert list(machines.waiting) == ["1", "2"] and machines.ended_early == ["2"]
    (line,) = scheduler.error.faults
    assert f"cannot be written to {runs}: " in line and "No space left on device" in line and "a file" in line
    assert line.endswith(f"its reply is kept in {kept_in}" if is_kept else "it is made again then")


def test_one_sweep_at_a_time_has_runs_made_elsewhere(runs: Path) -> None:
    with RemoteExecutor(Machines(lambda *_: {}), runs, share=False), pytest.raises(MachineError, match="another sweep"):
        RemoteExecutor(Machines(lambda *_: {}), runs, share=False).__enter__()


def test_a_job_for_other_code_is_refused_by_both_hashes(asked: list[RunRequest]) -> None:
    reply = run_job({"spec": asked[0].spec.to_json(), "code_hash": "0123456789abcdef", "share": True})
    (line,) = reply["lacks"]
    assert provenance.code_hash() in line and "0123456789abcdef" in line and "one commit" in line
    assert reply["archive"] is None and reply["faults"] == [] and reply["host"] == socket.gethostname()


def test_a_machine_without_what_the_runtime_of_a_run_needs_lacks_something(
    asked: list[RunRequest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*, needed: bool) -> checks.Check:
        return checks.Check("docker", needed, False, "no daemon here", "containers", "start one")

    def nobody_gets_here(*, share: bool) -> NoReturn:
        raise AssertionError("a run would have been begun")

    monkeypatch.setattr(checks, "docker", none)
    monkeypatch.setattr(job_process, "_machine", nobody_gets_here)
    spec = dataclasses.replace(asked[0].spec, runtime="docker")
    request = {"spec": spec.to_json(), "code_hash": provenance.code_hash(), "share": False}
    (tmp_path / "request.json").write_text(json.dumps(request))
    assert job_process.main(tmp_path) == 0
    reply = json.loads((tmp_path / REPLY).read_text())
    assert any("no daemon here" in line for line in reply["lacks"]) and reply["faults"] == []


def test_a_machine_with_other_data_is_one_that_lacks_something(
    asked: list[RunRequest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were it the run's own fault, one such machine would soon have given up all runs of a sweep."""
    monkeypatch.setattr(preflight, "require", lambda *_: None)
    monkeypatch.setattr(job_process, "_machine", lambda *, share: contextlib.nullcontext())
    answer = {"faults": [], "computes": True, "data_hash": "of other fonts"}
    monkeypatch.setattr(job_process, "check_parts", lambda spec: answer)
    request = {"spec": asked[0].spec.to_json(), "code_hash": provenance.code_hash(), "share": False}
    (tmp_path / "request.json").write_text(json.dumps(request))
    assert job_process.main(tmp_path) == 0
    reply = json.loads((tmp_path / REPLY).read_text())
    (line,) = reply["lacks"]
    assert "of other fonts" in line and socket.gethostname() in line and reply["faults"] == []


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
