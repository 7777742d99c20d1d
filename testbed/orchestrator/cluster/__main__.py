"""`python -m testbed.orchestrator.cluster ADDRESS PORT RANKS JOB RUNS FD ACCELERATOR [--trust=FILE ...] key=value ...`:
the other end of `testbed.worker.process.torchrun`, started by rank 0. Writes a byte to FD and closes it when ranks may
come."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

from testbed.core.errors import InputError, LonghaulError
from testbed.core.spec.run_spec import PROCESSOR, RunSpec
from testbed.orchestrator.cluster.measured_spec import measured_spec
from testbed.orchestrator.cluster.orchestration import conduct, new_run
from testbed.orchestrator.cluster.ranks import Ranks
from testbed.orchestrator.config.trust import trust
from testbed.orchestrator.machine.signals import Stop
from testbed.orchestrator.run.dilation.calibration import calibrate
from testbed.orchestrator.run.seal import exit_status
from testbed.orchestrator.terminal.summary_table import final_table
from testbed.orchestrator.terminal.terminal import say, show

_TRUST = "--trust="


def main(arguments: list[str]) -> int:
    address, port, workers, job, runs, told, accelerator, *overrides = arguments
    stop = Stop(at_once=True)
    stop.watch()
    try:
        trust(Path(one.removeprefix(_TRUST)) for one in overrides if one.startswith(_TRUST))
        overrides = [one for one in overrides if not one.startswith(_TRUST)]
        is_accelerated = accelerator != PROCESSOR
        spec = measured_spec(overrides, int(workers), Path(runs), accelerated=is_accelerated)
        ranks = _listening(spec, address, int(port), job, accelerated=is_accelerated)
        with ranks:
            run = new_run(spec, Path(runs))  # before ranks are told to come: they would wait for who is gone
            os.write(int(told), b"1")
            os.close(int(told))
            summary = conduct(spec, ranks, stop, run, say)
    except LonghaulError as error:
        for fault in error.faults:
            say(fault)
        return error.exit_status
    show(final_table(summary, run.path))
    return exit_status(summary)


def _listening(spec: RunSpec, address: str, port: int, job: str, *, accelerated: bool) -> Ranks:
    try:
        return Ranks(spec, address, port, job, _profile(spec), accelerated=accelerated)
    except OSError as error:
        raise InputError(f"--port {port}: rank 0 cannot listen there: {error}; give another one") from error


def _profile(spec: RunSpec) -> dict[str, object] | None:
    """Of a device that is not the processor itself."""
    if spec.device.name == "native":
        return None
    _, found = calibrate(dataclasses.replace(spec, auto_dilation=False), say)  # real machines keep real time
    return None if found is None else found.device.to_json()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
