"""The whole law book over one compressor, law by law: a row for each law and route."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from testbed.worker.laws.cases.registry import BOOK, Case, Law, LawBroken
from testbed.worker.laws.cases.variants import variants
from testbed.worker.laws.properties import feedback, non_finite, payloads, peers, reduction, state, traits

THEMES = (reduction, non_finite, traits, feedback, state, payloads, peers)
"""Imported so that the book is complete; in the order in which it is read."""
_LAWS = Path(__file__).parent
Outcome = Literal["holds", "broken", "does not apply"]


@dataclass(frozen=True)
class Row:
    """What became of one law."""

    law: str
    outcome: Outcome
    detail: str = ""
    """What was found, or why it does not apply; empty where it holds."""
    seconds: float = 0.0
    traceback: tuple[str, ...] = ()
    """Lines of the first exception that is no breach of a law, from the compressor's own calls on."""


def laws() -> list[Law]:
    order = [theme.__name__ for theme in THEMES]
    return sorted(BOOK.values(), key=lambda law: order.index(law.check.__module__))


def cases_of(law: Law, case: Case) -> list[Case]:
    """`case` and its variants, each once, or on each route where the law looks at routes; none where it does not
    apply."""
    found = [one for one in variants(case) if law.lacks(one) is None]
    return [routed for one in found for routed in one.on_each_route()] if law.per_route else found


def judge(case: Case) -> Iterator[Row]:
    """Yield one row a law as it is done.

    A row with a traceback is of a compressor that failed: further laws would say the same in other words.
    """
    for law in laws():
        began_s = time.monotonic()
        outcome, detail, failure = outcome_of(law, case)
        yield Row(law.name, outcome, detail, time.monotonic() - began_s, failure)


def outcome_of(law: Law, case: Case) -> tuple[Outcome, str, tuple[str, ...]]:
    """Return what became of a law, what was found, and the lines of a failure."""
    cases = cases_of(law, case)
    if not cases:
        return "does not apply", law.lacks(case) or "", ()
    found: list[str] = []
    failure: tuple[str, ...] = ()
    for one in cases:
        words = (one.variant, one.route.value if law.per_route else "")
        where = ", ".join(filter(None, words))
        try:
            law.check(one)
        except LawBroken as broken:
            found.append(f"{where}: {broken}" if where else str(broken))
        except Exception as error:
            said = (str(error).splitlines() or [""])[0]
            found.append(f"{f'{where}: ' if where else ''}{type(error).__name__}: {said}")
            failure = failure or lines_of(error)
    return ("broken", "; ".join(found), failure) if found else ("holds", "", ())


def lines_of(error: BaseException) -> tuple[str, ...]:
    """Return the traceback of an exception, without the calls of the laws that led to the compressor."""
    frames = traceback.extract_tb(error.__traceback__)
    outside = [place for place, frame in enumerate(frames) if not Path(frame.filename).is_relative_to(_LAWS)]
    told = traceback.format_list(frames[outside[0] if outside else 0 :])
    return tuple("".join([*told, *traceback.format_exception_only(error)]).splitlines())
