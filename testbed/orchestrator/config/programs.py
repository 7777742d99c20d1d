"""What runs in the nodes: our training, a user's own script, or nothing but what the user types."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from testbed.core.record.telemetry import STORE_IN_NODE
from testbed.core.spec.run_spec import PROGRAMS as CORE_PROGRAMS
from testbed.core.spec.run_spec import Part, RunSpec
from testbed.orchestrator.config.caller_environment import module_path, passed_on
from testbed.orchestrator.config.grammar.overrides import Override, unknown
from testbed.orchestrator.config.grammar.script_arguments import ARGUMENTS
from testbed.orchestrator.config.script_parameters import script_part
from testbed.orchestrator.machine.clone import CLONE

MASTER_PORT = 29_400
_OF_TRAINING = (
    *("steps", "epochs", "batch_size", "evaluate_every", "target", "device", "connections", "timeout_s", "max_wall_s"),
)
_UNREAD = {"script": _OF_TRAINING, "hand": (*_OF_TRAINING, "compressor")}
"""Keys that a run of each program does not read."""
_SCRIPT_SIDE = CLONE / "testbed" / "worker" / "script"


class Program(ABC):
    """One of these for a run."""

    is_told_when_done: ClassVar[bool] = False
    """Whether a worker says so itself; otherwise status 0 is what says it."""
    is_forked: ClassVar[bool] = False
    """Whether its processes are forked from one that has imported what they need."""
    loss_is_fault: ClassVar[bool] = True
    """Whether a worker that an event took away ends the run."""
    is_users: ClassVar[bool] = False
    """True for a user's own script: it may write, is shown, and is started by a first process of ours."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec

    @abstractmethod
    def command(self) -> list[str]: ...

    def environment(self, rank: int, master: str, interface: str) -> dict[str, str]:
        """Beside what every container gets."""
        return {}

    def working_directory(self) -> Path | None:
        """None is the clone. It is seen read-only."""
        return None


class Training(Program):
    """Our worker: it says when it is warm, waits for the word to begin, tells of each step."""

    is_told_when_done = True
    is_forked = True

    def command(self) -> list[str]:
        return [sys.executable, "-m", "testbed.worker", "run"]


class Script(Program):
    """A user's own, as torchrun would start it, one process a node."""

    loss_is_fault = False
    is_users = True

    def command(self) -> list[str]:
        """Return the first process of a node, and what it starts."""
        params = self.spec.workload.params
        what = ["-m", params["module"]] if "module" in params else [params["script"]]
        first = [sys.executable, "-I", "-S", str(_SCRIPT_SIDE / "first_process.py")]
        return [*first, sys.executable, *what, *(params.get("args") or ())]

    def environment(self, rank: int, master: str, interface: str) -> dict[str, str]:
        """Return the caller's variables, and all that torchrun sets."""
        workers = str(self.spec.workers)
        asked = self.spec.workload.params.get("environment", {})
        path = [str(_SCRIPT_SIDE / "startup"), *module_path(os.environ, str(CLONE))]
        return {
            **{name: value for name, value in passed_on(os.environ).items() if name in asked},
            "PYTHONPATH": os.pathsep.join(path),
            "RANK": str(rank),
            "WORLD_SIZE": workers,
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "GROUP_RANK": str(rank),
            "GROUP_WORLD_SIZE": workers,
            "ROLE_NAME": "default",
            "ROLE_RANK": str(rank),
            "ROLE_WORLD_SIZE": workers,
            "MASTER_ADDR": master,
            "MASTER_PORT": str(MASTER_PORT),
            "TORCHELASTIC_RUN_ID": self.spec.hash,
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0",
            "TORCHELASTIC_USE_AGENT_STORE": "False",  # there is no agent: rank 0 is to listen itself
            "TORCHELASTIC_ERROR_FILE": "/tmp/torchelastic_error.json",
            "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
            "GLOO_SOCKET_IFNAME": interface,
            "LONGHAUL_MARKS": f"{STORE_IN_NODE}/{marks_name(rank)}",
        }

    def working_directory(self) -> Path:
        params = self.spec.workload.params
        return Path(params["directory"]) if "directory" in params else Path(params["script"]).parent


def marks_name(rank: int) -> str:
    """Return the name of the file, in its node's directory, in which a script's starts and ends are noted."""
    return f"script-{rank}"


class Hand(Program):
    """Nothing: the nodes are there for `longhaul exec`, until `longhaul down`."""

    loss_is_fault = False

    def command(self) -> list[str]:
        return ["sleep", "infinity"]


PROGRAMS: dict[str, type[Program]] = {"training": Training, "script": Script, "hand": Hand}


def program_of(spec: RunSpec) -> Program:
    return PROGRAMS[spec.program](spec)


def fit(
    parts: Mapping[str, Part | None], overrides: Sequence[Override], words: Sequence[str] = ()
) -> tuple[dict[str, Part | None], list[str]]:
    """Return the parts as the program needs them, and what is wrong with them.

    Nobody but our own training has a strategy of ours; the compressor stays, for `testbed.worker.ddp_hook`.

    Args:
        overrides: All that the user gave as key=value.
        words: Command line of a script, behind `--`.
    """
    workload = parts.get("workload")
    program = CORE_PROGRAMS.get(workload.target) if workload else None
    stray = f"-- {' '.join(words)}: only workload=script takes the command line of a script"
    if workload is None or program is None:
        return dict(parts), [stray] if words and workload is not None else []
    faults: list[str] = []
    given = {override.head for override in overrides}
    if "strategy" in given:
        faults.append(f"strategy: workload={workload.name} brings its own; leave it out")
    if "transform" in given:
        faults.append(f"transform: the model of workload={workload.name} is its own; leave it out")
    for one in overrides:
        if one.head in _UNREAD[program] and one.value is not None:
            faults.append(f"{one.text}: a run with workload={workload.name} does not read {one.head}; leave it out")
    if program == "script":
        typed = next((one for one in overrides if one.key == ARGUMENTS), None)
        workload, more = script_part(workload, typed, words, os.environ)
        faults += more
    else:
        faults += [stray] if words else []
        faults += [unknown(f"workload.{key}={workload.params[key]}", key, (), "parameter") for key in workload.params]
    return {**parts, "workload": workload, "strategy": Part(program, workload.target)}, faults
