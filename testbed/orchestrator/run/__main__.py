"""The run itself, as the first process of its own namespaces: `python -m testbed.orchestrator.run RUN_DIR OPTIONS`.

Network up, measured, workers started, links measured again beside their warm-up, training, down. Everything that is
known of it goes through the recorder; how it ended is the exit status: 0, 4 (failed, the reasons are `fault` events),
130. When this process ends, by whatever end, the kernel takes its namespaces, devices and processes.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from testbed.core.device.profile import Profile
from testbed.core.errors import (
    EXIT_COMPLETED,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    Interrupted,
    LonghaulError,
)
from testbed.core.record.events.run import Fault, Schedule, Used
from testbed.core.record.metric_samples import Totals
from testbed.core.record.run_directory import RunDir, write_json
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.emulation.kernel.namespaces import own_sysfs
from testbed.orchestrator.machine.limits import raise_limit
from testbed.orchestrator.machine.rights import OF_ROOT, ROOTLESS, Rights
from testbed.orchestrator.machine.signals import SAYS_WHERE, Stop
from testbed.orchestrator.observation.exporter import Exporter
from testbed.orchestrator.observation.recorder import Recorder
from testbed.orchestrator.observation.verdict.judge import Judge
from testbed.orchestrator.run.dilation.calibration import usable_cores
from testbed.orchestrator.run.dilation.first_guess import Load
from testbed.orchestrator.run.orchestration import RunOrchestration
from testbed.orchestrator.run_store.used import as_here, used_before
from testbed.orchestrator.terminal.display import Display

MAX_FAULT_CHARACTERS = 2000


class Run:
    """One run from empty namespaces to the last event."""

    def __init__(
        self,
        run: RunDir,
        spec: RunSpec,
        display: Display,
        metrics: socket.socket,
        stop: Stop,
        *,
        shared: bool,
        rights: Rights = OF_ROOT,
        host_proc: int | None = None,
        restart: str | None = None,
    ) -> None:
        self.run, self.stop = run, stop
        self._restart = restart
        """Why the run was begun again."""
        self._shared, self._rights, self._host_proc = shared, rights, host_proc
        self.spec = spec
        self.display = display
        self.totals = Totals()
        self.recorder = Recorder(run.events, Judge(spec), self.totals, self._show, spec.dilation)
        self.began_unix_s = time.time()
        self._metrics_port = metrics.getsockname()[1]
        code_hash = str(run.read_json(run.spec)["code_hash"])
        self._exporter = Exporter(self.totals, spec, run.run_id, self.recorder.verdict, code_hash)
        self._exporter.serve(metrics)

    def write(self, event: dict[str, Any]) -> None:
        """Record an event; what a worker says of files is checked against this machine's."""
        if event["event"] == "used" and event["rank"] is not None:
            event = as_here(event, self.began_unix_s)
        self.recorder.write(event)

    def _note_files(self, events: Iterable[Used]) -> None:
        for event in events:
            self.write(event.to_json())

    def begin(self, t0_s: float) -> float:
        """From now on there is a beginning to count from; returns it on the wall clock."""
        self._exporter.start_unix_s = start_unix_s = time.time() - (time.monotonic() - t0_s)
        self.recorder.begin(t0_s)
        return start_unix_s

    def _show(self, event: dict[str, Any]) -> None:
        self.display.event(event)
        if event["event"] in ("host", "measurement"):
            self.display.verdict(*self.recorder.verdict())

    def retime(self, spec: RunSpec) -> None:
        """Go on with the dilation of `spec`, which a pilot has found."""
        self.spec = spec
        self.recorder.dilation = spec.dilation
        write_json(self.run.spec, {**self.run.read_json(self.run.spec), **spec.to_json()})

    def progress(self, what: str, done: float, total: float | None = None) -> None:
        """Draw how far a phase is; as `Display.progress`."""
        self.display.progress(what, done, total)

    def show(self, text: str) -> None:
        """Print a line on the terminal and record nothing."""
        self.display.line(text)

    def stage(self, what: str, text: str) -> None:
        self.display.stage(text)
        with contextlib.suppress(OSError):  # the log is a help, the record is what counts
            sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
            sys.stderr.flush()
        self.write(Schedule(what=what, detail=text).to_json())

    def perform(self) -> None:
        """Raises what went wrong, after it is recorded."""
        try:
            self.display.stage(f"run {self.run.run_id}; metrics at http://127.0.0.1:{self._metrics_port}/metrics")
            if self._rights.rootless:
                self.write(Schedule(what=ROOTLESS, detail="; ".join(self._rights.lost())).to_json())
            if self._restart is not None:
                self.stage("restart", self._restart)
            self._note_files(used_before(self.spec))
            orchestration = RunOrchestration(
                *(self.spec, self),
                shared=self._shared,
                tries=self._restart is None,  # a second attempt has the dilation that the first has shown to be needed
                rights=self._rights,
                host_proc=self._host_proc,
            )
            try:
                orchestration.perform()
            finally:
                self._note_files(used_before(self.spec, self.began_unix_s))
            if self.recorder.failure is not None:
                raise self.recorder.failure
            self.stage("end", "ended")
        except BaseException as error:
            for fault in faults_of(error):
                self.write(Fault(rank=None, node=None, message=fault).to_json())
            raise
        finally:
            if not self.recorder.has_begun:
                self.begin(time.monotonic())
            self.recorder.close()
            self._linger()

    def _linger(self) -> None:
        """Whoever scrapes the run gets its last values; whoever stopped it, or does so now, is not kept waiting."""
        if not isinstance(sys.exception(), Interrupted):
            with contextlib.suppress(Interrupted):
                self._exporter.linger()


def main() -> int:
    os.umask(0o022)  # the caller's may hide from the workers what is made for them
    raise_limit()
    stop = Stop(at_once=True)
    stop.watch()
    faulthandler.register(SAYS_WHERE)
    run, options = RunDir(Path(sys.argv[1])), json.loads(sys.argv[2])
    spec = RunSpec.from_json(json.loads(run.spec.read_text()))
    metrics = socket.socket(fileno=options["metrics_fd"])
    try:
        own_sysfs()
        with Display(spec, quiet=options["quiet"], **_expected(spec, run.read_json(run.profiles))) as display:
            rights = Rights(rootless=options["rootless"])
            one = Run(
                *(run, spec, display, metrics, stop),
                shared=options["shared"],
                rights=rights,
                host_proc=options["host_proc_fd"],
                restart=options.get("restart"),
            )
            one.perform()
    except Exception as error:
        if not isinstance(error, LonghaulError):
            traceback.print_exc()  # to the log; what follows is for the summary
        # by a pipe, not by a file: the disk may be what is at fault
        os.write(options["faults_fd"], json.dumps(faults_of(error)).encode())
        return EXIT_INTERRUPTED if isinstance(error, Interrupted) else EXIT_FAILED
    return EXIT_COMPLETED


def _expected(spec: RunSpec, profiles: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return {"steps", "expected_s", "cycle"}: how many steps a run has, about how many seconds they take on the wall,
    and how many go from one exchange to the next.

    Args:
        profiles: As `Calibration.to_json`; None for what is no training of ours.
    """
    if profiles is None:
        return {}
    cpu, device = (Profile.from_json(profiles[name]) for name in ("cpu_profile", "device_profile"))
    steps = spec.steps or cpu.provenance.get("steps")
    step_s = spec.dilation * Load.of(spec, cpu, device, usable_cores()).step_s
    return {"steps": steps, "expected_s": steps and steps * step_s, "cycle": cpu.cycle_steps}


def faults_of(error: BaseException) -> list[str]:
    """One line each, cut to a length that a summary and a pipe can take."""
    faults = error.faults if isinstance(error, LonghaulError) else (f"{type(error).__name__}: {error}",)
    return [fault[:MAX_FAULT_CHARACTERS] for fault in faults]


if __name__ == "__main__":
    sys.exit(main())
