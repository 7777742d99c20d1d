"""From the first rank that comes to the sealed record of a run that `torchrun` has started."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.core.errors import (
    InputError,
    Interrupted,
    LonghaulError,
    RunError,
)
from testbed.core.record.events.run import Fault, Schedule
from testbed.core.record.metric_samples import Totals
from testbed.core.record.run_directory import RunDir, new_run_id, write_json
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.cluster.ranks import Ranks
from testbed.orchestrator.machine import provenance
from testbed.orchestrator.machine.signals import Stop
from testbed.orchestrator.observation.recorder import Recorder
from testbed.orchestrator.observation.verdict.judge import CLUSTER, Judge
from testbed.orchestrator.run.seal import seal
from testbed.orchestrator.run_store.used import used_before

MEET_TIMEOUT_S = 600.0
"""From here to the last rank's connection to all its peers; machines of a cluster start unlike quickly."""
LEAD_S = 0.5
"""Between the word to begin and the beginning: more than a round trip round the world."""


class ClusterOrchestration:
    """One run.

    Args:
        ranks: which come where they were told to.
        tell: is told what is happening.
    """

    def __init__(self, run: RunDir, spec: RunSpec, ranks: Ranks, stop: Stop, tell: Callable[[str], None]) -> None:
        self._run, self._spec, self._ranks, self._stop, self._tell = run, spec, ranks, stop, tell
        self._t0_s: float | None = None
        self._recorder = Recorder(run.events, Judge(spec), Totals(), lambda _: None)

    def perform(self) -> tuple[str, list[str]]:
        """How it ended, and what went wrong."""
        for event in used_before(self._spec):
            self._write(event.to_json())
        self._stage(CLUSTER, f"{self._spec.workers} ranks under torchrun; nothing is emulated")
        try:
            self._follow()
        except LonghaulError as error:
            for fault in error.faults:
                self._write(Fault(rank=None, node=None, message=fault).to_json())
            return ("interrupted" if isinstance(error, Interrupted) else "failed"), list(error.faults)
        finally:
            self._recorder.close()
        return "completed", []

    def _follow(self) -> None:
        with self._stop.noted():
            self._until_warm()
            hosts = [self._ranks.hosts[rank] for rank in range(self._spec.workers)]
            begin_unix_s = time.time() + LEAD_S
            accelerators = [self._ranks.accelerators[rank] for rank in range(self._spec.workers)]
            found = {**provenance.collect(), "hosts": hosts, "accelerators": accelerators}
            write_json(self._run.provenance, {**found, "start_unix_s": begin_unix_s})
            self._t0_s = time.monotonic() + LEAD_S
            self._ranks.go(LEAD_S)
            self._stage("go", f"training on {', '.join(dict.fromkeys(hosts))}")
            while not self._ranks.all_done:
                self._take()
            self._stage("end", "ended")

    def _until_warm(self) -> None:
        warm, deadline_s = 0, time.monotonic() + MEET_TIMEOUT_S
        while warm < self._spec.workers:
            if time.monotonic() > deadline_s:
                missing = ", ".join(map(str, self._ranks.missing)) or "none, but not all reach all others"
                raise RunError(f"after {MEET_TIMEOUT_S:.0f} s ranks are still missing: {missing}")
            message = self._take()
            warm += message is not None and message["event"] == "warm"

    def _take(self) -> dict[str, Any] | None:
        """
        Raises:
            RunError, Interrupted: the end of it.
        """
        message = self._ranks.next_message()
        if message is not None and message["event"] != "warm":
            self._write(message)
        if self._recorder.failure is not None:
            raise self._recorder.failure
        self._stop.heed()
        return message

    def _write(self, event: dict[str, Any]) -> None:
        """A worker's events bear their own time, by its own machine's clock."""
        since_s = -1.0 if self._t0_s is None else time.monotonic() - self._t0_s
        self._recorder.write({**event, "t_s": since_s if event.get("t_s") is None else event["t_s"]})

    def _stage(self, what: str, text: str) -> None:
        self._tell(text)
        self._write(Schedule(what=what, detail=text).to_json())


def new_run(spec: RunSpec, runs_root: Path) -> RunDir:
    """
    Raises:
        InputError: none can be kept there.
    """
    run_id = new_run_id(spec.topo, spec.strategy.name, spec.compressor.name, spec.hash)
    try:
        return RunDir.create(runs_root.resolve(), run_id)
    except OSError as error:
        raise InputError(f"--runs {runs_root}: no run can be kept there: {error}") from error


def conduct(spec: RunSpec, ranks: Ranks, stop: Stop, run: RunDir, tell: Callable[[str], None]) -> dict[str, Any]:
    """Perform the run and seal its record, whatever its end. Returns its summary."""
    began_s = time.monotonic()
    with run.held():
        write_json(run.spec, {**spec.to_json(), "code_hash": provenance.code_hash()})
        tell(f"run {run.run_id}")
        status, faults = ClusterOrchestration(run, spec, ranks, stop, tell).perform()
        if status != "completed":
            ranks.close()  # sealing takes seconds, in which ranks that are started anew would meet this run
        return seal(run, status, faults, wall_s=time.monotonic() - began_s)
