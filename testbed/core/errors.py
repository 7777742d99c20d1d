"""Every error a user can meet, and the exit status it ends in.

    LonghaulError
    ├── InputError      2  what was asked is not possible; one line a fault, all at once
    ├── MachineError    3  the machine lacks something; the cure is in the line
    └── RunError        4  the run failed
        ├── Interrupted 4  somebody stopped it (Ctrl-C, SIGTERM)
        └── Left        6  one rank ends and the others go on; of a worker alone, never of a run

A run that completes but may not be believed ends with 5 (`EXIT_INVALID`); that is a verdict, not an error.
"""

from __future__ import annotations

from collections.abc import Iterable

EXIT_COMPLETED = 0
EXIT_INPUT = 2
EXIT_MACHINE = 3
EXIT_FAILED = 4
EXIT_INVALID = 5
EXIT_LEFT = 6
"""Between a worker and the orchestrator only."""
EXIT_INTERRUPTED = 130
"""Between a run and its supervisor only; a user sees 4."""


class LonghaulError(Exception):
    """Base of all. `faults` holds one clear line each: what was asked, what was found, what to do."""

    exit_status = EXIT_FAILED

    def __init__(self, *faults: str) -> None:
        self.faults: tuple[str, ...] = faults
        super().__init__("\n".join(faults))


class InputError(LonghaulError):
    """What was asked is not possible. Nothing has been built."""

    exit_status = EXIT_INPUT


class MachineError(LonghaulError):
    """The machine lacks something. Nothing has been built."""

    exit_status = EXIT_MACHINE


class RunError(LonghaulError):
    """The run could not go on. Its directory and logs are kept."""

    exit_status = EXIT_FAILED


class Interrupted(RunError):
    """The run was stopped from outside."""


class Left(RunError):
    """This rank has no part in the run any more, which goes on without it."""

    exit_status = EXIT_LEFT


def raise_input_faults(faults: Iterable[str]) -> None:
    """Raise one `InputError` with all of `faults`, or return if there are none."""
    found = tuple(faults)
    if found:
        raise InputError(*found)
