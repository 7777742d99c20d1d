"""Time that all runs of a sweep still take together. Nothing here looks at a clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from statistics import fmean


class Remaining:
    """The runs of one call, by the hashes of their specs.

    A run takes what those of its kind took that have ended; else what was expected of it, times how far the others
    were off.

    Args:
        kinds: Kind of each run that is to be made; runs of one kind differ by their seeds alone.
        expected_s: Seconds that each is expected to take; None if that is not known.
    """

    def __init__(self, kinds: Mapping[str, str], expected_s: Mapping[str, float | None]) -> None:
        self._kinds = kinds
        self._expected_s = expected_s
        self._waiting = dict.fromkeys(kinds)
        self._began_s: dict[str, float] = {}
        self._took_s: dict[str, list[float]] = defaultdict(list)
        """By kind."""
        self._both_s: list[tuple[float, float]] = []
        """What runs took, and what was expected of them."""
        self._places = 1

    def begin(self, spec_hash: str, now_s: float) -> None:
        """A run has begun."""
        self._waiting.pop(spec_hash, None)
        self._began_s[spec_hash] = now_s
        self._places = max(self._places, len(self._began_s))

    def end(self, spec_hash: str, now_s: float, *, counts: bool, again: bool) -> None:
        """A run has ended.

        Args:
            counts: True if it came to its end, so that it tells how long others take.
            again: True if it is made once more.
        """
        began_s = self._began_s.pop(spec_hash, None)
        if counts and began_s is not None:
            self._took_s[self._kinds.get(spec_hash, spec_hash)].append(now_s - began_s)
            if (expected_s := self._expected_s.get(spec_hash)) is not None:
                self._both_s.append((now_s - began_s, expected_s))
        if again:
            self._waiting[spec_hash] = None

    def leave(self, spec_hash: str) -> None:
        """A run is not made in this call."""
        self._waiting.pop(spec_hash, None)

    def takes_s(self, spec_hash: str) -> float | None:
        """Return the seconds that a run takes from its beginning to its end; None if nothing tells."""
        if took_s := self._took_s.get(self._kinds.get(spec_hash, spec_hash)):
            return fmean(took_s)
        expected_s = self._expected_s.get(spec_hash)
        if expected_s is None:
            return None
        known_s = sum(expected for _, expected in self._both_s)
        return expected_s * (sum(took for took, _ in self._both_s) / known_s if known_s else 1.0)

    def left(self, now_s: float) -> tuple[float | None, int]:
        """Return the seconds until all is done, and the number of runs that they leave out.

        Those are runs of which nothing tells how long they take. The seconds are None if that is so of all.
        """
        under_way = {one: self.takes_s(one) for one in self._began_s}
        waiting = [self.takes_s(one) for one in self._waiting]
        unknown = sum(takes is None for takes in (*under_way.values(), *waiting))
        if unknown and unknown == len(under_way) + len(waiting):
            return None, unknown
        running_s = [max(0.0, s - (now_s - self._began_s[one])) for one, s in under_way.items() if s is not None]
        whole_s = sum(running_s) + sum(s for s in waiting if s is not None)
        return max(whole_s / self._places, *running_s, 0.0), unknown
