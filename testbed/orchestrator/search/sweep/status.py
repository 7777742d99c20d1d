"""Where a run of a sweep stands: what the folder of runs says of it, and nothing else.

There is no other record of how far a sweep has come, so none can be wrong: whatever ends it, the next call reads the
same folder and goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from testbed.orchestrator.run_store.ended import KeptRun, KeptRuns
from testbed.orchestrator.search.sweep.specs import RunRequest

MAX_ATTEMPTS = 2
"""A run that failed or came out invalid is made once more: what disturbed it may have passed."""
DONE, TO_MAKE, TO_RETRY, GIVEN_UP = "done", "to make", "to retry", "given up"


@dataclass(frozen=True)
class RunStatus:
    asked: RunRequest
    done: KeptRun | None
    """The newest that counts."""
    missed: tuple[KeptRun, ...]
    """Those that failed or came out invalid, oldest first. Who was interrupted or killed has not been tried."""

    @property
    def state(self) -> str:
        if self.done is not None:
            return DONE
        if not self.missed:
            return TO_MAKE
        return TO_RETRY if len(self.missed) < MAX_ATTEMPTS else GIVEN_UP

    @property
    def run(self) -> KeptRun | None:
        """What stands for it: of those that do not count the newest that completed, or else failed."""
        best = sorted(self.missed, key=lambda kept: (kept.is_completed, kept.run_id))
        return self.done or (best[-1] if best else None)

    @property
    def why(self) -> str:
        """Of what was missed: its newest run and the first that it says; its record has the rest."""
        if not self.missed:
            return ""
        last = self.missed[-1]
        first, *others = [str(reason) for reason in last.summary["reasons"] or ("no word why",)]
        more = f" (and {len(others)} more)" if others else ""
        return f"{last.run_id}: {last.verdict if last.is_completed else last.status}: {first}{more}"


def standing(asked: RunRequest, kept: KeptRuns, forgotten: Iterable[str] = ()) -> RunStatus:
    """
    Args:
        forgotten: ids of runs that are not to count as attempts.
    """
    found = list(kept.of(asked.spec))
    # the hash leaves out whether a model is kept, which changes no figure
    done = [one for one in found if one.counts and (one.run.model.exists() or not asked.spec.keeps_model)]
    unheeded = set(forgotten)
    missed = tuple(one for one in found if _is_missed(one) and one.run_id not in unheeded)
    return RunStatus(asked, done[-1] if done else None, missed)


def _is_missed(kept: KeptRun) -> bool:
    return kept.status == "failed" or (kept.is_completed and not kept.counts)


def counts(standings: Sequence[RunStatus]) -> Mapping[str, int]:
    """How many are in which state."""
    return {state: sum(one.state == state for one in standings) for state in (DONE, TO_MAKE, TO_RETRY, GIVEN_UP)}
