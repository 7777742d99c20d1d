"""Terms on which a system is held to its claim: class, both set-ups, and what bounds its verdict.

`experiments/reproductions/NAME/claim.py` has them as `CLAIM`; the runs are in `declaration.py`. Nothing here is
measured: a fact that no source states is `NOT_STATED`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

NOT_STATED = "not stated"
PAPERS, OWN = "the paper's claim", "our own comparison"
CLASSES = (PAPERS, OWN)
"""A ratio that the source states, or one that we chose since the source has none for what is compared here."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Set-up of an experiment, in words: a row of the page's table each."""

    model: str = NOT_STATED
    device: str = NOT_STATED
    workers: str = NOT_STATED
    network: str = NOT_STATED
    baseline: str = NOT_STATED
    metric: str = NOT_STATED

    def to_json(self) -> dict[str, str]:
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class AtSize:
    """Simulated cases of the paper's size."""

    cases: tuple[str, ...]
    """Names of simulated cases. Where there are several, the largest of their ratios is compared."""
    published: float
    """Ratio that the paper has for them."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Terms of one system."""

    kind: str = PAPERS
    """One of `CLASSES`."""
    paper: Setup = Setup()
    ours: Setup = Setup()
    at_size: tuple[AtSize, ...] = ()
    """Simulations that may contradict the claim; empty where none is of the paper's model and size."""
    weaker_baseline: str | None = None
    """Reason for which our baseline is weaker than the paper's; None: it is not."""
    why_above: str | None = None
    """Explanation of a result more than a fifth above the claim; None: there is none."""


def claim_faults(claim: Claim, simulated_cases: Sequence[str]) -> Iterator[str]:
    """Yield what is wrong with a declaration, a line a fault.

    Args:
        simulated_cases: Cases of the system's simulated trials.
    """
    if claim.kind not in CLASSES:
        yield f"kind {claim.kind!r} is none of: {', '.join(CLASSES)}"
    rows: Mapping[str, str] = claim.ours.to_json()
    if lacking := [name for name, words in rows.items() if words in ("", NOT_STATED)]:
        yield f"ours lacks {', '.join(lacking)}: our own set-up is known; state it"
    unknown = {case for one in claim.at_size for case in one.cases} - set(simulated_cases)
    if unknown:
        yield f"at_size {sorted(unknown)}: no simulated trial is of these cases"
    if any(not one.cases or one.published <= 0 for one in claim.at_size):
        yield "at_size: an entry needs cases and a published ratio above 0"
    for name in ("weaker_baseline", "why_above"):
        if getattr(claim, name) == "":
            yield f"{name} is empty: state the reason, or leave it out"
