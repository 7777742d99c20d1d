"""When clients are there: by a trace, or in turns by chance. Times are emulated seconds since the first round began."""

from __future__ import annotations

import functools
import math
import random
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import Annotated

from testbed.core.declaration import Declared
from testbed.core.errors import InputError
from testbed.core.kinds import Number, PathOf
from testbed.core.parameters import CountOrZero, Seconds, raise_all
from testbed.core.user_files.tables import EPOCH, MAX_TIME_S, cells_of, heading_of, number_of, numbered_lines
from testbed.core.user_files.text import listed, read_user_text, shown

# The file of a trace of when clients are there, read and checked.

COLUMNS = ("client", "from_s", "until_s")
Spans = Sequence[tuple[float, float]]
"""Of one client, from when until when it is there; ascending, and none touches the next."""
_MAX_ROWS, _MAX_CLIENT = 200_000, 10**9
_MAX_LISTED = 20


@functools.cache  # processes of a run are forked from one that has read it, and may not be allowed to
def read_trace(file: str, period_s: float | None) -> tuple[dict[int, Spans], list[str]]:
    """By client, and what is wrong with it, one line each.

    Args:
        period_s: after which no time may lie; None: any may.
    """
    try:
        lines = list(islice(numbered_lines(read_user_text(Path(file), where=f"file={file}")), _MAX_ROWS + 2))
    except InputError as error:
        return {}, list(error.faults)
    if len(lines) > _MAX_ROWS + 1:
        return {}, [f"file={file}: has more than {_MAX_ROWS} lines; give fewer"]
    number, heading = lines[0] if lines else (1, "")
    try:
        is_ours = tuple(heading_of(heading)) == COLUMNS
    except ValueError as error:
        return {}, [f"file={file}: line {number}: {error}"]
    if not is_ours:
        return {}, [f"file={file}: line {number}: must be {','.join(COLUMNS)}"]
    return _checked(file, lines[1:], period_s)


def _checked(file: str, lines: list[tuple[int, str]], period_s: float | None) -> tuple[dict[int, Spans], list[str]]:
    found: dict[int, list[tuple[float, float, int]]] = {}
    faults: list[str] = []
    for line, text in lines:
        try:
            client, *span = _row(text, period_s)
        except ValueError as error:
            faults.append(f"file={file}: line {line}: {error}")
        else:
            found.setdefault(client, []).append((span[0], span[1], line))
    if found and not faults:
        first_s, line = min((span[0], span[2]) for spans in found.values() for span in spans)
        if first_s >= MAX_TIME_S:
            faults.append(
                f"file={file}: line {line}: the first time, {first_s:.15g} s, {EPOCH}; subtract the first one from all"
            )
    for client, spans in sorted(found.items()):
        spans.sort()
        faults += [
            f"file={file}: line {after[2]}: client {client} is there already, by line {before[2]}"
            for before, after in pairwise(spans)
            if after[0] < before[1]
        ]
    if not found and not faults:
        faults.append(f"file={file}: no client is ever available; give a line for each time that a client is")
    return {client: _joined(spans) for client, spans in found.items()}, list(
        listed(faults, f"file={file}", _MAX_LISTED)
    )


def _row(line: str, period_s: float | None) -> tuple[int, float, float]:
    """Return client, from_s and until_s.

    Raises:
        ValueError: The line holds something else.
    """
    cells = cells_of(line)
    try:
        if len(cells) != len(COLUMNS) or not cells[0].removeprefix("-").isdecimal():
            raise ValueError
        client, from_s, until_s = int(number_of(cells[0])), number_of(cells[1]), number_of(cells[2])
    except ValueError:
        raise ValueError(f"{shown(line)}: must be a whole number and two numbers") from None
    if not 0 <= client <= _MAX_CLIENT:
        raise ValueError(f"client={cells[0]}: must be at least 0 and at most {_MAX_CLIENT}")
    if not 0 <= from_s < until_s:
        raise ValueError(f"from_s={from_s:g}, until_s={until_s:g}: must be 0 <= from_s < until_s, and finite")
    if period_s is not None and until_s > period_s:
        raise ValueError(f"until_s={until_s:g}: is after period_s={period_s:g}; give a longer period, or none")
    return client, from_s, until_s


def _joined(spans: list[tuple[float, float, int]]) -> Spans:
    """Those that touch are one."""
    found: list[tuple[float, float]] = []
    for from_s, until_s, _ in spans:
        if found and from_s <= found[-1][1]:
            found[-1] = (found[-1][0], max(until_s, found[-1][1]))
        else:
            found.append((from_s, until_s))
    return found


_MIN_S = 0.01


class Availability(Declared, ABC):
    """The same for the same client and time, whoever asks, and however often."""

    def of_run(self, seed: int) -> Availability:
        """As a run of that seed has it."""
        return self

    def faults(self, clients: int) -> Iterator[str]:
        """What it cannot say of so many clients, one line each."""
        yield from ()

    @abstractmethod
    def until_s(self, client: int, now_s: float) -> float | None:
        """When `client`, who is there, goes away, inf: never; None: it is away."""

    @abstractmethod
    def next_s(self, client: int, now_s: float) -> float:
        """When it is there next: `now_s` if it is; inf: never."""


class Trace(Availability):
    """As a file says.

    Args:
        file: CSV file with the heading `client,from_s,until_s`. Each line is a time in which a client is there, from
            `from_s` on and no more at `until_s`. In any order; those of a client may touch, but not overlap. Clients
            that it does not name are never there. Read when this is made, and once.
        period_s: Period of the trace; null: it plays once. All times are within it. Without one no client is there
            after the last line.

    Raises:
        ValueError: a parameter is wrong, or the file; all of it, one a line.
    """

    def __init__(
        self,
        *,
        file: Annotated[str, PathOf(f"a CSV file of {','.join(COLUMNS)}")],
        period_s: Seconds | None = None,
    ) -> None:
        spans, faults = read_trace(file, period_s)
        raise_all(*faults)
        self.file, self._period_s, self._spans = file, period_s, spans

    def faults(self, clients: int) -> Iterator[str]:
        if unknown := sorted(client for client in self._spans if client >= clients):
            told = ", ".join(map(str, unknown[:5])) + (", …" if len(unknown) > 5 else "")
            yield (
                f"file={self.file}: names {len(unknown)} clients that there are not ({told}); they are numbered from 0"
                f" to {clients - 1}"
            )

    def until_s(self, client: int, now_s: float) -> float | None:
        spans = self._spans.get(client, ())
        turn_s, within_s = self._within(now_s)
        place = _last_begun(spans, within_s)
        if place < 0 or within_s >= spans[place][1]:
            return None
        until_s = spans[place][1]
        if until_s == self._period_s and spans[0][0] == 0:  # it stays from the end of a turn into the next
            return math.inf if len(spans) == 1 else turn_s + until_s + spans[0][1]
        return turn_s + until_s

    def next_s(self, client: int, now_s: float) -> float:
        spans = self._spans.get(client, ())
        if not spans or self.until_s(client, now_s) is not None:
            return now_s if spans else math.inf
        turn_s, within_s = self._within(now_s)
        place = _last_begun(spans, within_s) + 1
        if place < len(spans):
            return turn_s + spans[place][0]
        return math.inf if self._period_s is None else turn_s + self._period_s + spans[0][0]

    def _within(self, now_s: float) -> tuple[float, float]:
        """When the turn began, and what time it is in it."""
        if self._period_s is None:
            return 0.0, now_s
        turn_s = now_s // self._period_s * self._period_s
        return turn_s, now_s - turn_s


def _last_begun(spans: Spans, now_s: float) -> int:
    return bisect_right(spans, now_s, key=lambda span: span[0]) - 1


@dataclass
class _Life:
    """Of one client, as far as it was asked for."""

    chance: random.Random
    begins_there: bool
    turns_s: list[float] = field(default_factory=list)
    """When it comes or goes, ascending."""


class Alternating(Availability):
    """Each client is there and away in turns, for exponential times. At first it is there with the probability that it
    has at any time, present_s / (present_s + absent_s), and all times that follow have the same distribution.

    Args:
        present_s: Mean time that a client is present.
        absent_s: Mean time that a client is away.
        seed: Seed; null: the run's. Each client's number is part of its draws.

    Raises:
        ValueError: a parameter is out of its range; all of them, one a line.
    """

    def __init__(
        self,
        *,
        present_s: Annotated[float, Number(least=_MIN_S, below=math.inf, unit="s")],
        absent_s: Annotated[float, Number(least=_MIN_S, below=math.inf, unit="s")],
        seed: CountOrZero | None = None,
    ) -> None:
        self._present_s, self._absent_s, self._seed = present_s, absent_s, seed
        self._lives: dict[int, _Life] = {}

    def of_run(self, seed: int) -> Availability:
        own = seed if self._seed is None else self._seed
        return Alternating(present_s=self._present_s, absent_s=self._absent_s, seed=own)

    def until_s(self, client: int, now_s: float) -> float | None:
        is_there, turn_s = self._at(client, now_s)
        return turn_s if is_there else None

    def next_s(self, client: int, now_s: float) -> float:
        is_there, turn_s = self._at(client, now_s)
        return now_s if is_there else turn_s

    def _at(self, client: int, now_s: float) -> tuple[bool, float]:
        """Whether it is there, and until when that is so."""
        life = self._lives.get(client) or self._begun(client)
        while not life.turns_s or life.turns_s[-1] <= now_s:
            mean_s = self._present_s if life.begins_there ^ (len(life.turns_s) % 2 == 1) else self._absent_s
            last_s = life.turns_s[-1] if life.turns_s else 0.0
            life.turns_s.append(last_s + life.chance.expovariate(1 / mean_s))
        place = bisect_right(life.turns_s, now_s)
        return life.begins_there ^ (place % 2 == 1), life.turns_s[place]

    def _begun(self, client: int) -> _Life:
        chance = random.Random(f"availability {self._seed or 0} {client}")
        begins_there = chance.random() < self._present_s / (self._present_s + self._absent_s)
        life = self._lives[client] = _Life(chance, begins_there)
        return life
