"""Errands as jobs of Slurm, through submitit: requests and replies are files that all machines see.

Jobs outlive who asked for them. What an earlier sweep left behind is looked after when the next one begins: replies
that have come are taken, jobs that go on are cancelled.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shlex
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.core.errors import MachineError
from testbed.orchestrator.config.grammar.overrides import first_line
from testbed.orchestrator.executors import options
from testbed.orchestrator.executors.executor import FOLDER
from testbed.orchestrator.executors.job import ENDS_S, run_job
from testbed.orchestrator.executors.remote_executor import Ended, NoRoomError
from testbed.orchestrator.executors.slurm_queue import SlurmQueue
from testbed.orchestrator.machine.checks import has_module
from testbed.orchestrator.machine.clone import environment

SLURM, LOCAL, DEBUG = options.CLUSTERS
JOBS = ".jobs"
"""In the folder of sweeps."""
_POLL_S = 0.1
_LOCAL_ENDS_S = 30.0
_UNREADABLE = (OSError, EOFError, pickle.UnpicklingError, ValueError, AttributeError, ImportError, IndexError)
"""What reading a damaged or foreign reply may raise."""
_DEFAULTS: dict[str, object] = {"cluster": SLURM, "jobs": 8, "time_min": 240}


class SlurmJobs:
    """Of the cluster whose `sbatch` is on this machine; of `cluster=local` and `debug` are this machine's processes."""

    name = "slurm"

    def __init__(
        self,
        given: Mapping[str, object],
        runs_root: Path,
        carry: Callable[[Mapping[str, Any]], Mapping[str, Any]] = run_job,
    ) -> None:
        """
        Raises:
            InputError: there are no such options.
        """
        options.check(self.name, given)
        self._options = {**_DEFAULTS, **given}
        self._cluster = str(self._options["cluster"])
        self._folder = runs_root.resolve() / FOLDER / JOBS / self._cluster
        self._carry = carry
        self._jobs: dict[str, Any] = {}
        self._queue = SlurmQueue()

    @property
    def room(self) -> str:
        return f"{self._most} jobs at once, cluster={self._cluster}"

    @property
    def kept_in(self) -> Path | None:
        """A debug job writes no reply."""
        return None if self._cluster == DEBUG else self._folder

    @property
    def _most(self) -> int:
        """A debug job is carried out in this very process."""
        return 1 if self._cluster == DEBUG else int(str(self._options["jobs"]))

    def __enter__(self) -> SlurmJobs:
        if not has_module("submitit"):
            cure = "make setup, or pip install 'longhaul-testbed[slurm]'"
            raise MachineError(f"executor=slurm: submitit is not there: {cure}")
        import submitit

        try:
            self._executor = submitit.AutoExecutor(self._folder / "%j", cluster=self._cluster)
        except (RuntimeError, OSError) as error:
            raise MachineError(
                f"executor=slurm: no Slurm on this machine: {first_line(error)}; call this where sbatch is, or give"
                " --executor-option cluster=local"
            ) from error
        self._executor.update_parameters(**_parameters(self._options))
        return self

    def __exit__(self, *_: object) -> None:
        if not self._folders():  # in one that is still there is what the next call takes
            shutil.rmtree(self._folder, ignore_errors=True)

    def left_over(self) -> Iterator[Mapping[str, Any]]:
        """Replies to who is gone; what is still going on for them is ended."""
        import submitit

        kind = {SLURM: submitit.SlurmJob, LOCAL: submitit.LocalJob}.get(self._cluster)
        if kind is None:
            return
        for folder in self._folders():
            job: Any = kind(self._folder / "%j", folder.name)
            if not job.paths.result_pickle.exists():
                _cancel(job, folder.name, self._cluster)
            elif (ended := _ended(folder.name, job)).reply is not None:
                yield ended.reply
            shutil.rmtree(folder, ignore_errors=True)

    def _folders(self) -> list[Path]:
        """Of jobs, which are called by their numbers; submitit makes itself another one."""
        return sorted(self._folder.glob("[0-9]*/"))

    def free(self) -> int:
        if self._cluster == SLURM:
            self._queue.look(self._jobs)
        return self._most - len(self._jobs) if self._queue.answers else 0

    def begin(self, request: Mapping[str, Any]) -> str:
        """
        Raises:
            MachineError: Slurm does not take it.
            NoRoomError: it does not answer.
        """
        from submitit.core.utils import FailedJobError

        try:
            job = self._executor.submit(self._carry, request)
        except (FailedJobError, OSError) as error:
            if self._cluster == SLURM:
                self._queue.look(self._jobs, at_once=True)
            if not self._queue.answers:
                raise NoRoomError from error
            raise MachineError(f"executor=slurm: a job is not taken: {_last_line(error)}") from error
        ticket = str(job.job_id)
        self._jobs[ticket] = job
        return ticket

    def ended(self, timeout_s: float) -> Sequence[Ended]:
        deadline_s = time.monotonic() + timeout_s
        while True:
            if self._cluster == SLURM:
                self._queue.look(self._jobs)
            found = [_ended(ticket, job) for ticket, job in self._jobs.items() if self._is_done(ticket, job)]
            if found or time.monotonic() > deadline_s:
                return found
            time.sleep(_POLL_S)

    def _is_done(self, ticket: str, job: Any) -> bool:
        """By its reply, or because there will be none."""
        if self._cluster != SLURM:
            return self._cluster == DEBUG or bool(job.done())
        with contextlib.suppress(OSError):  # has a shared file system look anew at what is in the folder
            job.paths.folder.chmod(job.paths.folder.stat().st_mode)
        return job.paths.result_pickle.exists() or self._queue.is_gone(ticket)

    def forget(self, ticket: str) -> None:
        del self._jobs[ticket]
        shutil.rmtree(self._folder / ticket, ignore_errors=True)

    def avoid(self, ticket: str) -> bool:
        """Slurm chooses machines, so one that lacks something is the user's to exclude."""
        return False

    def end(self, tickets: Sequence[str]) -> None:
        for ticket in tickets:
            _cancel(self._jobs[ticket], ticket, self._cluster)
        deadline_s = time.monotonic() + _LOCAL_ENDS_S
        while self._cluster == LOCAL and time.monotonic() < deadline_s:
            if all(self._jobs[ticket].done() for ticket in tickets):
                break
            time.sleep(_POLL_S)
        for ticket in tickets:
            if not self._jobs[ticket].paths.result_pickle.exists():
                self.forget(ticket)


def _parameters(chosen: Mapping[str, object]) -> dict[str, Any]:
    """As submitit calls them. A node is a run's alone; what is lost is begun again by us, so that it is told."""
    found: dict[str, Any] = {
        "name": "longhaul",
        "timeout_min": chosen["time_min"],
        "nodes": 1,
        "tasks_per_node": 1,
        "slurm_exclusive": True,
        "slurm_signal_delay_s": int(ENDS_S),
        "slurm_srun_args": ["--cpu-bind=none"],  # a step is one task, and would be bound to one core
        "slurm_additional_parameters": {"no-requeue": True},
        "slurm_setup": [f"export PYTHONPATH={shlex.quote(environment()['PYTHONPATH'])}"],
    }
    names = {"cpus": "cpus_per_task", "memory_gb": "mem_gb"}
    names |= {key: f"slurm_{key}" for key in ("partition", "account", "qos", "constraint", "exclude")}
    return found | {name: chosen[key] for key, name in names.items() if key in chosen}


def _ended(ticket: str, job: Any) -> Ended:
    """Of one that is done."""
    import submitit
    from submitit.core.utils import FailedJobError

    if isinstance(job, submitit.SlurmJob) and not job.paths.result_pickle.exists():
        said = [line.strip() for line in (job.stderr() or "").splitlines() if line.strip()]
        return Ended(ticket, lost=": ".join([f"job {ticket} is gone and left no reply", *said[-1:]]))
    try:
        error = job.exception()
        if error is None:
            return Ended(ticket, reply=job.result())
    except _UNREADABLE as damage:
        return Ended(
            ticket, lost=f"the reply of job {ticket} cannot be read: {type(damage).__name__}: {first_line(damage)}"
        )
    if isinstance(error, FailedJobError):
        return Ended(ticket, broken=f"job {ticket} failed: {_last_line(error)}")
    return Ended(ticket, lost=f"job {ticket}: {first_line(error)}")


def _last_line(error: BaseException) -> str:
    """Of what is known of a failure: a traceback ends with it, and submitit's dashes and hints come after."""
    ours = [line.strip() for line in str(error).splitlines() if line.strip().strip("-")]
    told = [line for line in ours if not line.startswith(("You can check full logs", "or at paths", "- /"))]
    return told[-1] if told else type(error).__name__


def _cancel(job: Any, ticket: str, cluster: str) -> None:
    """Its own process is known to who began it; of a local one that is left over the number alone."""
    if cluster == LOCAL and job.get_info().get("jobState") != "RUNNING":
        with contextlib.suppress(OSError, ValueError):
            if b"submitit" in Path(f"/proc/{int(ticket)}/cmdline").read_bytes():
                os.kill(int(ticket), signal.SIGINT)
        return
    job.cancel(check=False)
