"""The whole law book over one compressor, law by law: a row for each law and route."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from testbed.worker.laws.cases.registry import BOOK, Case, Law, LawBroken
from testbed.worker.laws.cases.variants import variants
from testbed.worker.laws.properties import feedback, payloads, peers, reduction, state, traits

THEMES = (reduction, traits, feedback, state, payloads, peers)
"""Imported so that the book is complete; in the order in which it is read."""
Outcome = Literal["holds", "broken", "does not apply"]


@dataclass(frozen=True)
class Row:
    """What became of one law."""

    law: str
    outcome: Outcome
    detail: str = ""
    """What was found, or why it does not apply; empty where it holds."""
    seconds: float = 0.0


def laws() -> list[Law]:
    order = [theme.__name__ for theme in THEMES]
    return sorted(BOOK.values(), key=lambda law: order.index(law.check.__module__))


def cases_of(law: Law, case: Case) -> list[Case]:
    """`case` and its variants, each once, or on each route where the law looks at routes; none where it does not
    apply."""
    found = [one for one in variants(case) if law.lacks(one) is None]
    return [routed for one in found for routed in one.on_each_route()] if law.per_route else found


def judge(case: Case) -> Iterator[Row]:
    """One row a law as it is done."""
    for law in laws():
        began_s = time.monotonic()
        outcome, detail = _outcome(law, case)
        yield Row(law.name, outcome, detail, time.monotonic() - began_s)


def _outcome(law: Law, case: Case) -> tuple[Outcome, str]:
    cases = cases_of(law, case)
    if not cases:
        return "does not apply", law.lacks(case) or ""
    found = []
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
    return ("broken", "; ".join(found)) if found else ("holds", "")
