"""Makes the runs that plans lack, on a machine that is held for all of them."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from experiments.reproductions.runs import TrialRequest, make
from testbed.core.errors import InputError, Interrupted, MachineError, RunError
from testbed.orchestrator.machine import provenance
from testbed.orchestrator.machine.lock import MachineLock, machine_lock
from testbed.orchestrator.run.seal import seal_killed_or_say

GRACE_S = 30.0
"""What the last run may take beyond the time for all."""


@dataclass(frozen=True)
class Runner:
    """
    Args:
        machine: None where nothing is to be emulated.
        tell: is told how each run ended.
    """

    runs_root: Path
    machine: MachineLock | None
    tell: Callable[[str], None]
    code_hash: str = field(default_factory=lambda: provenance.code_hash(simulated=True))
    """When the call began."""

    @classmethod
    @contextlib.contextmanager
    def of(
        cls, lacking: Sequence[TrialRequest], runs_root: Path, tell: Callable[[str], None], *, share: bool
    ) -> Iterator[Runner]:
        """Of these runs. The machine is held until the end: another run that began in between would end them all.

        Raises:
            MachineError: another run has the machine, or emulated runs are asked for without root.
        """
        if not any(one.trial.kind == "emulated" for one in lacking):
            yield cls(runs_root, None, tell)
            return
        if os.geteuid() != 0:
            raise MachineError("emulated runs build networks, which root alone may do: use sudo, or make reproduce")
        with machine_lock(share=share) as machine:
            yield cls(runs_root, machine, tell)

    def all(self, lacking: Sequence[TrialRequest], most_s: float | None) -> list[str]:
        """Return what failed. What failed or came out undecided is made once more, after the others.

        Args:
            most_s: none is begun that would end later; None: as long as it takes.

        Raises:
            MachineError: this machine cannot make them now.
            Interrupted: somebody stopped it.
        """
        seal_killed_or_say(self.runs_root)
        began_s, unwell, left, failures = time.monotonic(), [], [], []
        ends_s = None if most_s is None else began_s + most_s
        for place, one in enumerate(lacking, 1):
            if _is_too_late(one, ends_s):
                left.append(one.trial.label)
            elif (faults := self._one(one, f"{place}/{len(lacking)}", ends_s)) is not None:
                unwell.append((one, faults))
        for one, faults in unwell:
            is_left = _is_too_late(one, ends_s)
            failures += faults if is_left else self._one(one, "again", ends_s) or []
        if left:
            self.tell(f"left for the next call, since {most_s:.0f} s would not do: {', '.join(left)}")
        return failures

    def _one(self, one: TrialRequest, place: str, ends_s: float | None) -> list[str] | None:
        """Return what went wrong; nothing of a run that is there and decides nothing; None: it is well."""
        began_s, label = time.monotonic(), one.trial.label
        try:
            provenance.require_unchanged(self.code_hash, simulated=True)
            most_s = None if ends_s is None else ends_s - began_s + GRACE_S
            run = make(one, self.runs_root, machine=self.machine, most_s=most_s)
        except MachineError as error:
            raise MachineError(*(f"{label}: {fault}" for fault in error.faults)) from error
        except Interrupted:
            raise
        except (InputError, RunError) as error:  # refused once its step was measured, or ended before its end
            self.tell(f"{place} {label}: failed")
            return [f"{label}: {fault}" for fault in error.faults]
        verdict = run.read_json(run.summary)["verdict"]
        self.tell(f"{place} {label}: {time.monotonic() - began_s:.0f} s, {verdict}, {run.run_id}")
        return None if verdict == "valid" or (verdict == "suspect" and one.trial.kind == "simulated") else []


def _is_too_late(one: TrialRequest, ends_s: float | None) -> bool:
    return ends_s is not None and time.monotonic() + one.trial.seconds > ends_s
