"""Where the runs of a sweep are made. There is this machine; others are to come as further classes of this form."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from testbed.core.errors import InputError, Interrupted, RunError
from testbed.core.spec import RunSpec
from testbed.orchestrator.machine_lock import MachineLock, machine_lock
from testbed.orchestrator.overrides import unknown

LOCAL = "local"
_PLANNED = ("ray", "slurm")


class Executor(Protocol):
    """A place with room for one run or for many; a context manager, inside which that room is held."""

    def __enter__(self) -> Executor: ...

    def __exit__(self, *_: object) -> None: ...

    def perform(self, specs: Iterator[RunSpec]) -> Iterator[tuple[RunSpec, str | None]]:
        """Make a run of each spec; draws the next one when there is room for it.

        Yields each when its record is sealed in the folder of runs, with why not where there is none.

        Raises:
            InputError, MachineError: no run can be made there.
            Interrupted: somebody asked for the end; what was going on has ended in order.
        """


class Local:
    """This machine, one emulation at a time: two would share its cores."""

    def __init__(self, runs_root: Path, *, share: bool) -> None:
        self._runs_root = runs_root
        self._share = share
        self._held = contextlib.ExitStack()
        self._machine: MachineLock | None = None

    def __enter__(self) -> Local:
        self._machine = self._held.enter_context(machine_lock(share=self._share))
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def perform(self, specs: Iterator[RunSpec]) -> Iterator[tuple[RunSpec, str | None]]:
        from testbed.orchestrator.supervise import supervise  # Mininet and all: only once it is known to be there

        for spec in specs:
            try:
                outcome = supervise(spec, runs_root=self._runs_root, quiet=True, machine=self._machine)
            except Interrupted:
                raise
            except RunError as error:
                yield spec, "; ".join(error.faults)
                continue
            if outcome.summary["status"] == "interrupted":
                raise Interrupted(*outcome.summary["reasons"])
            yield spec, None


_BY_NAME: dict[str, Callable[..., Executor]] = {LOCAL: Local}


def executor(name: str, runs_root: Path, *, share: bool) -> Executor:
    """
    Raises:
        InputError: there is no such executor, or none yet.
    """
    if name in _PLANNED:
        raise InputError(f"executor={name}: is not there; known: {', '.join(_BY_NAME)}")
    if name not in _BY_NAME:
        raise InputError(unknown(f"executor={name}", name, _BY_NAME, "executor"))
    return _BY_NAME[name](runs_root, share=share)
