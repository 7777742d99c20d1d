"""Links that are down for a while. Outages of one link may overlap: it is down as long as any of them lasts."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from testbed.core.spec.schedule import Change


@dataclass
class Outage:
    link: str
    start_s: float
    end_s: float
    """Infinity: until it is healed."""
    cause: str
    end_cause: str = ""


@dataclass(frozen=True)
class Heal:
    """Ends what is down at its moment."""

    t_s: float
    links: tuple[str, ...]
    cause: str
    where: str


def end_by(heals: Iterable[Heal], outages: Iterable[Outage]) -> Iterator[str]:
    """Cut the outages short; a heal that ends none is a fault."""
    waiting = deque(sorted(outages, key=lambda outage: outage.start_s))
    begun: dict[str, list[Outage]] = {}
    for heal in sorted(heals, key=lambda heal: heal.t_s):
        while waiting and waiting[0].start_s < heal.t_s:
            begun.setdefault(waiting[0].link, []).append(waiting.popleft())
        ended = [outage for link in heal.links for outage in begun.pop(link, ()) if heal.t_s < outage.end_s]
        for outage in ended:
            outage.end_s, outage.end_cause = heal.t_s, heal.cause
        if not ended:
            yield f"{heal.where}: nothing to heal: none of its links is down at {heal.t_s:g} s"


def changes(outages: Iterable[Outage]) -> Iterator[Change]:
    """Down and up in turn for each link."""
    by_link: dict[str, list[Outage]] = {}
    for outage in outages:
        by_link.setdefault(outage.link, []).append(outage)
    for link, own in by_link.items():
        own.sort(key=lambda outage: outage.start_s)
        for first, last in _stretches(own):
            yield Change(t_s=first.start_s, kind="down", link=link, cause=first.cause)
            if math.isfinite(last.end_s):
                yield Change(t_s=last.end_s, kind="up", link=link, cause=last.end_cause or f"end of {last.cause}")


def _stretches(outages: list[Outage]) -> Iterator[tuple[Outage, Outage]]:
    """Of each stretch in which the link is down: the outage that begins it, and the one that ends it."""
    first = last = outages[0]
    for outage in outages[1:]:
        if outage.start_s > last.end_s:
            yield first, last
            first = last = outage
        elif outage.end_s > last.end_s:
            last = outage
    yield first, last
