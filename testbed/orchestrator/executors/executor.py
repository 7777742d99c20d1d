"""Where the runs of a sweep are made: on this machine, or on others."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from testbed.core.errors import InputError, Interrupted, RunError
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.machine import provenance
from testbed.orchestrator.machine.lock import MachineLock, machine_lock

LOCAL, RAY, SLURM = "local", "ray", "slurm"
NAMES = (LOCAL, RAY, SLURM)


class Waiting(Protocol):
    """Runs that are to be made. One that failed comes back, so that what is empty now need not stay so."""

    def __bool__(self) -> bool:
        """Whether some may be left to draw."""

    def draw(self) -> RunSpec | None:
        """The next one, to be begun now; None where none is left.

        Raises:
            Interrupted: somebody asked for the end.
        """

    def look(self) -> None:
        """For who waits for something else than the next one.

        Raises:
            Interrupted: somebody asked for the end.
        """

    def tell(self, spec: RunSpec, text: str) -> None:
        """Of a run that is being made."""


class Executor(Protocol):
    """A place with room for one run or for many; a context manager, inside which that room is held."""

    @property
    def is_here(self) -> bool:
        """Whether runs are made on this machine, so that what it lacks and how fast it is count."""

    @property
    def room(self) -> str | None:
        """Inside the context, where several are made at once: how many, in words."""

    def __enter__(self) -> Executor: ...

    def __exit__(self, *_: object) -> None: ...

    def perform(self, waiting: Waiting) -> Iterator[tuple[RunSpec, str | None]]:
        """Make a run of each spec; draws the next one when there is room for it.

        Yields each when its record is sealed in the folder of runs, with why not where there is none.

        Raises:
            MachineError: no run can be made there.
            Interrupted: somebody asked for the end; what was going on has ended in order.
        """


class Local:
    """This machine, one emulation at a time: two would share its cores."""

    is_here = True
    room = None

    def __init__(self, runs_root: Path, *, share: bool) -> None:
        self._runs_root = runs_root
        self._share = share
        self._held = contextlib.ExitStack()
        self._machine: MachineLock | None = None
        self._code_hash = provenance.code_hash()

    def __enter__(self) -> Local:
        self._machine = self._held.enter_context(machine_lock(share=self._share))
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def perform(self, waiting: Waiting) -> Iterator[tuple[RunSpec, str | None]]:
        from testbed.orchestrator.run.supervisor import supervise  # Mininet and all: only once it is known to be there

        while waiting:
            provenance.require_unchanged(self._code_hash)
            if (spec := waiting.draw()) is None:
                return
            try:
                outcome = supervise(spec, runs_root=self._runs_root, quiet=True, machine=self._machine)
            except Interrupted:
                raise
            except (InputError, RunError) as error:  # refused when its turn came, or measuring it failed
                yield spec, "; ".join(error.faults)
                continue
            if outcome.summary["status"] == "interrupted":
                raise Interrupted(*outcome.summary["reasons"])
            yield spec, None


FOLDER = ".sweeps"
"""In the folder of runs, which holds nothing but runs and what begins with a dot."""
