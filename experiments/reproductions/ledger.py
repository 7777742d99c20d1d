"""The ledger: from evidence of a claim to a verdict, its interval and what is missing. One rule for all systems.

The ratio is how many times better the candidate is than the strongest baseline. Each repeat gives one; `emulated` is
their geometric mean. The interval is a 95 % interval of Student's t on the logarithms of the ratios. With the claimed
ratio c, a gain of c - 1:

    reproduced   the mean is at least 1 + 0.9 (c - 1), nine tenths of the claimed gain, and the interval is above 1
    partly       not so, but the mean is above 1.05 and the interval above 1
    not          otherwise, or the quality was not held

There is no verdict before three repeats count, before every run that decides was made, before each declared simulation
of the paper's size was made, and while a result that gains more than a fifth above the claim has no declared
explanation. The verdict is at most `partly` where such a simulation is off the paper's ratio by more than a tenth,
either way, and where the baseline is weaker than the paper's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from testbed.analysis.comparison.intervals import estimate

VERDICTS = ("reproduced", "partly", "not")
NEEDED = 3
"""Seeds or repeats that a verdict needs."""
SHARE_OF_THE_GAIN = 0.9
MIN_RATIO = 1.05
"""Runs of one spec differ by up to 5 %."""
MOST_OF_THE_GAIN = 1.2
"""A larger share of the claimed gain is above the claim, and must be explained."""
MAX_DISAGREEMENT = 0.1
"""Share of the paper's ratio that a simulation of its size may be off."""
_WORDS = ("no", "one", "two")


@dataclass(frozen=True)
class Simulated:
    """Simulation of the paper's size."""

    cases: tuple[str, ...]
    published: float
    ratio: float | None
    """Largest ratio over the cases; None: not made, or not recorded."""

    @property
    def agrees(self) -> bool | None:
        """True if it is within a tenth of the paper's ratio; None: not known."""
        return None if self.ratio is None else abs(self.ratio / self.published - 1) <= MAX_DISAGREEMENT


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything that a verdict depends on."""

    claimed: float
    """Claimed ratio, above 1."""
    ratios: tuple[float, ...] = ()
    """Ratio of each repeat that counts, of the case that decides."""
    unnamed: int = 0
    """Repeats that count and whose ratio is not known, as in records older than the ledger."""
    is_held: bool = True
    """False: the quality of the candidate was not held in these repeats."""
    not_made: int = 0
    """Runs that decide and were never made."""
    simulated: tuple[Simulated, ...] = ()
    weaker_baseline: str | None = None
    why_above: str | None = None

    @property
    def repeats(self) -> int:
        """Number of repeats that count."""
        return len(self.ratios) + self.unnamed


@dataclass(frozen=True)
class Judgement:
    """Verdict on some evidence, with everything that explains it."""

    emulated: float | None
    """Geometric mean over repeats; None: no ratio, or the quality was not held."""
    interval: tuple[float, float] | None
    """Low and high end; None with less than three repeats."""
    verdict: str | None
    """One of `VERDICTS`; None while `missing` names something."""
    reaches: tuple[str, ...]
    """Other verdicts inside of the interval."""
    repeats: int
    missing: tuple[str, ...]
    """Needs of a verdict that are not met, in words."""
    caps: tuple[str, ...]
    """Reasons for which the verdict is at most `partly`."""
    is_above: bool
    """True if the result gains more than a fifth above the claim."""

    @property
    def missing_repeats(self) -> int:
        return max(NEEDED - self.repeats, 0)

    @property
    def standing(self) -> str:
        """The verdict, or why there is none: "one repeat, no verdict"."""
        if self.verdict is not None:
            return self.verdict
        if self.missing_repeats:
            return f"{_WORDS[self.repeats]} repeat{'s' * (self.repeats != 1)}, no verdict"
        return f"no verdict: lacks {'; '.join(self.missing)}"


def judge(evidence: Evidence) -> Judgement:
    """Return the verdict on `evidence`, or what it lacks for one."""
    mean = geometric_mean(evidence.ratios) if evidence.ratios and evidence.is_held else None
    interval = _interval(evidence.ratios) if mean is not None else None
    is_above = mean is not None and mean > 1 + MOST_OF_THE_GAIN * (evidence.claimed - 1)
    missing, caps = tuple(_missing(evidence, is_above)), tuple(_caps(evidence))
    verdict, reaches = None, ()
    if not missing:
        verdict = _capped(_verdict(evidence.claimed, mean, interval), caps)
        ends = [_capped(verdict_at(evidence.claimed, end), caps) for end in interval or ()]
        reaches = tuple(one for one in VERDICTS if one in ends and one != verdict)
    return Judgement(mean, interval, verdict, reaches, evidence.repeats, missing, caps, is_above)


def in_words(standing: str) -> str:
    """Return how pages name a verdict, or why there is none."""
    return "not reproduced" if standing == "not" else standing


def least(claimed: float) -> float:
    """Return the ratio from which a claim counts as reproduced."""
    return 1 + SHARE_OF_THE_GAIN * (claimed - 1)


def verdict_at(claimed: float, ratio: float) -> str:
    """Return the verdict that a ratio would have by itself, without interval and caps."""
    if ratio >= least(claimed):
        return "reproduced"
    return "partly" if ratio > MIN_RATIO else "not"


def _verdict(claimed: float, mean: float | None, interval: tuple[float, float] | None) -> str:
    if mean is None or interval is None or interval[0] <= 1:
        return "not"
    return verdict_at(claimed, mean)


def _capped(verdict: str, caps: Sequence[str]) -> str:
    return "partly" if caps and verdict == "reproduced" else verdict


def _missing(evidence: Evidence, is_above: bool) -> Iterator[str]:
    lacking = max(NEEDED - evidence.repeats, 0)
    if lacking:
        yield f"{lacking} of {NEEDED} repeats"
    elif evidence.unnamed:
        yield "the ratio of each repeat"
    if evidence.not_made:
        yield f"{evidence.not_made} runs that decide"
    for one in evidence.simulated:
        if one.ratio is None:
            yield f"the simulation of {' or '.join(one.cases)}"
    if is_above and evidence.why_above is None:
        yield "an explanation of a result more than a fifth above the claim"


def _caps(evidence: Evidence) -> Iterator[str]:
    for one in evidence.simulated:
        if one.agrees is False:
            of = " or ".join(one.cases) if len(one.cases) < 3 else f"{len(one.cases)} models"
            yield f"simulated at the paper's size, {of}: {one.ratio:.2f}, published {one.published:.2f}"
    if evidence.weaker_baseline is not None:
        yield f"the baseline is weaker than the paper's: {evidence.weaker_baseline}"


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean, whatever the order of values; of equal ones it is that value, to twelve digits."""
    logarithms = [math.log(value) for value in values]
    return float(f"{math.exp(math.fsum(logarithms) / len(logarithms)):.12g}")


def _interval(ratios: Sequence[float]) -> tuple[float, float] | None:
    if len(ratios) < NEEDED:
        return None
    found = estimate({place: [math.log(ratio)] for place, ratio in enumerate(sorted(ratios))})
    if found is None or found.low is None or found.high is None:
        return None
    return math.exp(found.low), math.exp(found.high)
