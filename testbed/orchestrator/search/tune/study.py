"""The search itself, by Optuna: which settings are tried next, from what those before came to.

T. Akiba et al., "Optuna: A Next-generation Hyperparameter Optimization Framework", KDD 2019; its tree-structured Parzen
estimator, of one objective or of two, with the target as a constraint, so that it also learns from what falls short.

The sampler's seed is fixed, and so is all that it is told: the runs. So the same call goes the same way again, and
nothing but the folder of runs has to be kept for it to go on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.orchestrator.search.sweep.grid import Point
from testbed.orchestrator.search.tune.space import Space
from testbed.orchestrator.search.tune.trials import Outcome

SEED = 0
RANDOM = 8
"""Trials before the first that follows from others; the same whatever their number, or a longer search could not go on
from a shorter one."""


@dataclass(frozen=True)
class Trial:
    number: int
    points: tuple[Point, ...]
    outcome: Outcome

    @property
    def label(self) -> str:
        """Its settings, without seeds."""
        point = self.points[0]
        keys = [key for key in point.varying if key in point.values and key != "seed"]
        return " ".join(f"{key}={point.values[key].plain}" for key in keys) or "the run"


def search(
    space: Space,
    objectives: Sequence[str],
    count: int,
    journal: Path,
    outcome_of: Callable[[int, Sequence[Point]], Outcome],
) -> Iterator[Trial]:
    """So many trials, each as soon as it is known.

    Args:
        objectives: keys of `Outcome.figures`, which are to be small.
        journal: takes the study as Optuna writes it, in a folder that is there; of a call before, it is replaced.
    """
    # brings NumPy, which nothing else on this side needs
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    journal.unlink(missing_ok=True)
    study = optuna.create_study(
        study_name=space.name,
        storage=JournalStorage(JournalFileBackend(str(journal))),
        sampler=optuna.samplers.TPESampler(seed=SEED, n_startup_trials=RANDOM),
        directions=["minimize"] * len(objectives),
    )
    for number in range(count):
        asked = study.ask()
        points = tuple(space.points(asked))
        outcome = outcome_of(number, points)
        asked.set_user_attr("run_ids", list(outcome.run_ids))
        if outcome.figures is None:
            asked.set_user_attr("why_not", outcome.why_not)
            study.tell(asked, state=optuna.trial.TrialState.FAIL)
        else:
            asked.set_constraint("target", outcome.shortfall)
            study.tell(asked, [outcome.figures[key] for key in objectives])
        yield Trial(number, points, outcome)
