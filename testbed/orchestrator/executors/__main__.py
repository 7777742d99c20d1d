"""`python -m testbed.orchestrator.executors FOLDER`: the run that FOLDER/request.json asks for, made below FOLDER.

FOLDER/reply.json says what came of it: {"run_id", "faults", "lacks", "ended"}. Written last and by rename.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from testbed.core.errors import EXIT_COMPLETED, Interrupted, LonghaulError, MachineError
from testbed.core.record.run_directory import RUNTIME_ROOT, write_json
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.executors.job import REPLY
from testbed.orchestrator.machine import provenance
from testbed.orchestrator.machine.clone import CLONE
from testbed.orchestrator.machine.lock import MachineLock, machine_lock
from testbed.orchestrator.run import preflight
from testbed.orchestrator.run.questions.plugins import check_parts
from testbed.orchestrator.run.questions.replay_needs import memory_faults

LOCK_WAIT_S = 120.0
"""For a run that is just ending here, such as one whose sweep was killed."""
_LOOK_S = 1.0


def main(folder: Path) -> int:
    reply: dict[str, Any] = {"run_id": None, "faults": [], "lacks": [], "ended": None}
    try:
        request = json.loads((folder / "request.json").read_text())
        reply["run_id"] = _make(request, folder)
    except MachineError as error:
        reply["lacks"] = list(error.faults)
    except Interrupted as error:
        reply["ended"] = "; ".join(error.faults)
    except LonghaulError as error:
        reply["faults"] = list(error.faults)
    write_json(folder / REPLY, reply)
    return EXIT_COMPLETED


def _make(request: Mapping[str, Any], folder: Path) -> str:
    """The id of the run, whatever became of it.

    Raises:
        MachineError: none can be made here.
        InputError: this one cannot.
        Interrupted: it was ended from outside.
    """
    if (found := provenance.code_hash()) != request["code_hash"]:
        raise MachineError(
            f"the code in {CLONE} is {found}, that of the sweep {request['code_hash']}: bring both to one commit"
        )
    spec = RunSpec.from_json(request["spec"])
    # whoever has asked for a port meant that of another machine
    spec = dataclasses.replace(spec, metrics_port=0)
    preflight.require(spec, folder)
    with _machine(share=request["share"]) as machine:
        if spec.program == "training":
            _require_same_data(spec)
        from testbed.orchestrator.run.supervisor import supervise  # Mininet and all: only once it is known to be there

        outcome = supervise(spec, runs_root=folder, quiet=True, machine=machine)
    if outcome.summary["status"] == "interrupted":
        raise Interrupted(*outcome.summary["reasons"])
    return outcome.run.run_id


def _require_same_data(spec: RunSpec) -> None:
    """
    Raises:
        MachineError: it has too little memory, or other data: on another machine the run can be made.
        InputError: the plug-ins refuse it.
    """
    answer = check_parts(spec)
    faults = list(memory_faults(spec, answer))
    for key, what in (("data_hash", "data"), ("start_hash", "model to begin with")):
        if answer.get(key) != getattr(spec, key):
            faults.append(
                f"workload={spec.workload.name}: its {what} on {socket.gethostname()} is {answer.get(key)}, that of the"
                f" sweep {getattr(spec, key)}: the run would be another"
            )
    if faults:
        raise MachineError(*faults)


@contextlib.contextmanager
def _machine(*, share: bool) -> Iterator[MachineLock]:
    """This machine alone. Errands wait for each other, however long: two Ray nodes may share a machine.

    Raises:
        MachineError: somebody else keeps it.
    """
    with contextlib.ExitStack() as held:
        if not share:
            RUNTIME_ROOT.mkdir(parents=True, exist_ok=True)
            turn = held.enter_context((RUNTIME_ROOT / "job.lock").open("w"))
            fcntl.flock(turn, fcntl.LOCK_EX)
        deadline_s = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                machine = held.enter_context(machine_lock(share=share))
                break
            except MachineError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(_LOOK_S)
        yield machine


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
