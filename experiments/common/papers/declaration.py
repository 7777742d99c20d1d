"""What a reproduction declares, and the systems there are: one folder beside this file each.

experiments/reproductions/NAME/declaration.py   SYSTEM: claim, source, arms, runs (by hand); of a-b in a_b
experiments/reproductions/NAME/claim.py         CLAIM: class, both set-ups, what bounds the verdict (by hand)
experiments/reproductions/NAME/result.json      what came of it (written)
docs/reproductions/NAME.md                      the page, by hand but for the regions `claim` and `reproduction`
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.common.papers.claim import Claim, claim_faults
from experiments.common.whole_run import read
from testbed.core.errors import InputError
from testbed.core.record.run_directory import RunDir
from testbed.orchestrator.machine.clone import CLONE

FOLDER = CLONE / "experiments" / "reproductions"
PAGES = CLONE / "docs" / "reproductions"
KINDS = ("emulated", "simulated")
HEADINGS = ("Claim", "Set-up", "Result", "Differences from the paper", "Run it", "Earlier measurements")
"""Headings of every page, in this order."""


@dataclass(frozen=True)
class Trial:
    """One run that a reproduction asks for."""

    case: str
    """What is compared within: runs of one case differ in nothing but their arm, and chance."""
    arm: str
    kind: str
    """One of `KINDS`."""
    overrides: tuple[str, ...]
    """Of `longhaul run`, or of `longhaul predict`."""
    seconds: float
    """That it takes about, of wall time."""

    @property
    def label(self) -> str:
        return f"{self.kind} {self.case} ({self.arm})"


def seed_of(trial: Trial) -> str:
    """Return the seed of a trial, which tells repeats apart; "0" where it names none."""
    return next((word.removeprefix("seed=") for word in trial.overrides if word.startswith("seed=")), "0")


def with_seed(trial: Trial, seed: int) -> Trial:
    """Return the trial with another seed, in the place of its own if it names one."""
    words = [f"seed={seed}" if word.startswith("seed=") else word for word in trial.overrides]
    if f"seed={seed}" not in words:
        words.append(f"seed={seed}")
    return dataclasses.replace(trial, overrides=tuple(words))


def step_s(run: RunDir) -> float | None:
    """Median over steps but the first, in which connections warm up, and the last, which also ends what was put off (as
    DeAR's second halves are); of a simulated run, of a step once they are alike."""
    summary = run.read_json(run.summary)
    if summary["kind"] == "simulated":
        return float(summary["step_time_s"]["p50"])
    record = read(run)  # without its first step
    inner = dataclasses.replace(record, by_step=dict(list(record.by_step.items())[:-1]))
    return inner.median("step_s") if inner.steps else None


def metric_percent(run: RunDir) -> float | None:
    """The metric of a run's last evaluation, of those that are shares, in per cent."""
    value = run.read_json(run.summary)["metric"]["value"]
    return None if value is None else 100 * float(value)


def _no_facts(case: str, kind: str) -> dict[str, str]:
    del case, kind
    return {}


@dataclass(frozen=True, kw_only=True)
class System:
    """A published claim that one way of doing it is so many times better than the best other."""

    name: str
    """As its folder, whose name has underscores for hyphens."""
    claim: str
    claimed: float
    """The ratio that is claimed, above 1."""
    source: str
    baseline: str
    """What the candidate is compared with, in words."""
    setting: str
    """Under which conditions, in words."""
    candidates: tuple[str, ...]
    """Arms. Where there are several, each case's best counts, and so it is with the baselines."""
    baselines: tuple[str, ...]
    beside: tuple[str, ...] = ()
    """Arms that are shown and decide nothing."""
    trials: Callable[[bool], Sequence[Trial]]
    """Of all that was asked (`FULL=1`), or of what ends within ten minutes. Earlier ones are made first."""
    figure: Callable[[RunDir], float | None] = step_s
    """Of a run, what is compared."""
    figure_name: str = "step, s"
    higher_is_better: bool = False
    quality: Callable[[RunDir], float | None] | None = None
    """Of an emulated run, what its figure may have been bought with, such as accuracy; more is better."""
    quality_name: str = "accuracy, %"
    reference: str | None = None
    """The baseline whose quality an arm must hold for its figure to count; None: qualities are shown alone."""
    margin_points: float = 0.5
    """By how much an arm's mean quality may be below the reference's."""
    claimed_cases: tuple[str, ...] = ()
    """Those that the claim is about, where others are shown beside; empty: all."""
    facts: Callable[[str, str], Mapping[str, str]] = _no_facts
    """More columns of the table, by case and kind."""
    terms: Claim = dataclasses.field(default_factory=Claim)
    """Terms of the verdict; `load` takes them from the folder's claim.py."""

    @property
    def folder(self) -> str:
        return folder_of(self.name)

    @property
    def arms(self) -> tuple[str, ...]:
        return (*self.candidates, *self.baselines, *self.beside)


def folder_of(name: str) -> str:
    return name.replace("-", "_")


def known_systems(folder: Path = FOLDER) -> list[str]:
    """By name."""
    return sorted(path.parent.name.replace("_", "-") for path in folder.glob("*/declaration.py"))


def find_systems(name: str | None, folder: Path = FOLDER) -> list[System]:
    """The system of this name, or all.

    Raises:
        InputError: there is none.
    """
    known = known_systems(folder)
    if name is not None and name not in known:
        raise InputError(f"SYSTEM={name}: unknown; known: {', '.join(known)}")
    return [load(one) for one in ([name] if name is not None else known)]


def load(name: str) -> System:
    """
    Raises:
        InputError: its declaration does not fit its folder.
    """
    package = f"experiments.reproductions.{folder_of(name)}"
    declared: System = importlib.import_module(f"{package}.declaration").SYSTEM
    system = dataclasses.replace(declared, terms=importlib.import_module(f"{package}.claim").CLAIM)
    if faults := list(_faults(system, name)):
        raise InputError(*faults)
    return system


def _faults(system: System, name: str) -> list[str]:
    where = f"experiments/reproductions/{folder_of(name)}/declaration.py"
    faults = [] if system.name == name else [f"{where}: its system is called {system.name!r}"]
    trials = [trial for full in (False, True) for trial in system.trials(full)]
    if system.reference is not None and (system.reference not in system.baselines or system.quality is None):
        faults.append(f"{where}: reference {system.reference!r} is no baseline with a quality")
    if unknown := set(system.claimed_cases) - {trial.case for trial in trials}:
        faults.append(f"{where}: claimed_cases {sorted(unknown)}: no trial is of them")
    for trial in trials:
        if trial.arm not in system.arms:
            faults.append(f"{where}: arm {trial.arm!r} is neither candidate nor baseline nor beside them")
        if trial.kind not in KINDS:
            faults.append(f"{where}: kind {trial.kind!r} is none of {', '.join(KINDS)}")
    simulated = [trial.case for trial in trials if trial.kind == "simulated"]
    terms = f"experiments/reproductions/{folder_of(name)}/claim.py"
    faults += [f"{terms}: {fault}" for fault in claim_faults(system.terms, simulated)]
    return list(dict.fromkeys(faults))
