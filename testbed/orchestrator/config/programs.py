"""What runs in the nodes: our training, a user's own script, or nothing but what the user types."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from testbed.core.spec.run_spec import PROGRAMS as CORE_PROGRAMS
from testbed.core.spec.run_spec import Part, RunSpec

MASTER_PORT = 29_400


class Program(ABC):
    """One of these for a run."""

    is_told_when_done: ClassVar[bool] = False
    """Whether a worker says so itself; otherwise status 0 is what says it."""
    is_forked: ClassVar[bool] = False
    """Whether its processes are forked from one that has imported what they need."""
    loss_is_fault: ClassVar[bool] = True
    """Whether a worker that an event took away ends the run."""

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

    def command(self) -> list[str]:
        params = self.spec.workload.params
        return [sys.executable, "-m", "testbed.worker.script", params["script"], *map(str, params.get("args") or ())]

    def environment(self, rank: int, master: str, interface: str) -> dict[str, str]:
        return {
            "RANK": str(rank),
            "WORLD_SIZE": str(self.spec.workers),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "GROUP_RANK": str(rank),
            "MASTER_ADDR": master,
            "MASTER_PORT": str(MASTER_PORT),
            "GLOO_SOCKET_IFNAME": interface,
        }

    def working_directory(self) -> Path:
        return Path(self.spec.workload.params["script"]).parent


class Hand(Program):
    """Nothing: the nodes are there for `longhaul exec`, until `longhaul down`."""

    loss_is_fault = False

    def command(self) -> list[str]:
        return ["sleep", "infinity"]


PROGRAMS: dict[str, type[Program]] = {"training": Training, "script": Script, "hand": Hand}


def program_of(spec: RunSpec) -> Program:
    return PROGRAMS[spec.program](spec)


def fit(parts: Mapping[str, Part | None], given: Collection[str]) -> tuple[dict[str, Part | None], list[str]]:
    """The parts as the program needs them, and what is wrong with them.

    Nobody but our own training has a strategy of ours; the compressor stays, for `testbed.worker.ddp_hook`.

    Args:
        given: groups that the user named.
    """
    workload = parts.get("workload")
    program = CORE_PROGRAMS.get(workload.target) if workload else None
    if workload is None or program is None:
        return dict(parts), []
    faults = []
    if "strategy" in given:
        faults.append(f"strategy: workload={workload.name} brings its own; leave it out")
    if "transform" in given:
        faults.append(f"transform: the model of workload={workload.name} is its own; leave it out")
    if program == "script":
        script = workload.params.get("script")
        path = Path(str(script)).absolute() if script else None
        if path is None:
            faults.append("workload.script: must be given, such as workload.script=train.py")
        elif not path.is_file():
            faults.append(f"workload.script={script}: no such file")
        elif path.parent.stat().st_mode & 0o005 != 0o005 or path.stat().st_mode & 0o004 != 0o004:
            said = f"chmod o+rx {path.parent}; chmod o+r {path}"
            faults.append(f"workload.script={script}: workers are nobody and cannot read it there: {said}")
        else:
            workload = replace(workload, params={**workload.params, "script": str(path)})
    return {**parts, "workload": workload, "strategy": Part(program, workload.target)}, faults
