"""Recorded links: mahimahi's format and CSV, as steps in time since the trace began."""

from __future__ import annotations

import bisect
import itertools
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from testbed.core.errors import InputError, raise_input_faults
from testbed.core.spec.link_profile import MAX_RATE_BIT_S, MIN_RATE_BIT_S
from testbed.core.user_files.tables import EPOCH, MAX_TIME_S, cells_of, heading_of, number_of, numbered_lines
from testbed.core.user_files.text import listed, read_user_text, shown
from testbed.orchestrator.config.events.quantities import FIELDS
from testbed.orchestrator.config.grammar.overrides import unknown

OPPORTUNITY_BITS = 1500 * 8
"""What one line of a mahimahi trace lets through."""
MAX_ROWS = 100_000
"""Rows of a CSV trace, each of which is a change at least."""
_MAX_COLUMNS = 20
_MILLISECONDS = re.compile(r"[0-9]{1,15}")
_ALL_MILLISECONDS = re.compile(r"(?:[ \t]*+(?:[0-9]{1,15}+[ \t]*+)?\n)*+")
_MAX_MS = 1e9
"""Time that no line of a mahimahi trace can have: the calendar's seconds are more, too."""
_MAX_FAULTS = 100
_MIN_ROW_S = 1e-6
"""Shortest row of a CSV trace; no link follows a faster change."""
_REMEDY = "subtract the first one from all"


class Row(NamedTuple):
    """One row of a CSV trace."""

    t_s: float
    """Seconds since the trace began."""
    cells: dict[str, str]
    """Cells that are not empty, by their heading."""
    line: int


def read_mahimahi(path: Path) -> list[int]:
    """Return the milliseconds at which one packet may leave.

    Raises:
        InputError: The file has faults; one line each, with its line.
    """
    text = read_user_text(path) + "\n"
    if _ALL_MILLISECONDS.fullmatch(text):  # as files of millions of lines are
        times_ms = list(map(int, text.split()))
        if times_ms and 0 < times_ms[-1] < _MAX_MS and times_ms == sorted(times_ms):
            return times_ms
    faults: list[str] = []
    opportunities_ms: list[int] = []
    before_ms = 0
    for number, line in numbered_lines(text):
        if len(faults) > _MAX_FAULTS:
            break
        if not _MILLISECONDS.fullmatch(line):
            faults.append(f"{path}, line {number}: {shown(line)} is not a whole number of milliseconds; correct it")
            continue
        t_ms = int(line)
        if t_ms >= _MAX_MS:
            which = "the time" if opportunities_ms else "the first time"
            faults.append(f"{path}, line {number}: {which}, {t_ms} ms, {EPOCH}; {_REMEDY}")
            break
        if t_ms < before_ms:
            faults.append(f"{path}, line {number}: {t_ms} ms is before the line above; times must not fall, sort them")
        before_ms = t_ms
        opportunities_ms.append(t_ms)
    if not faults and not before_ms:
        faults.append(f"{path}: holds no time above 0, so that the trace has no length; give at least one")
    raise_input_faults(listed(faults, path))
    return opportunities_ms


def mahimahi_length_s(opportunities_ms: Sequence[int]) -> float:
    """The last line is the end; after it the file begins anew."""
    return opportunities_ms[-1] / 1000


def mahimahi_rates(opportunities_ms: Sequence[int], length_s: float, bin_ms: int) -> Iterator[tuple[float, float]]:
    """(since the trace began, rate in bit/s) wherever the rate changes; the file wraps until `length_s`.

    A bin holds what comes after its beginning, up to and including its end: what may leave at its end has been earned
    within. Bins without an opportunity are one outage, at the rate at which a single packet takes as long as the
    outage lasts: packets wait then, as they do in mahimahi, and are not lost.
    """
    length_ms = round(length_s * 1000, 6)
    counts = _counts(opportunities_ms, length_ms, bin_ms)
    before: float | None = None
    for is_outage, group in itertools.groupby(counts, key=lambda found: found[2] == 0):
        stretch = list(group)
        if is_outage:
            stretch = [(stretch[0][0], stretch[-1][1], 1)]
        for start_ms, end_ms, count in stretch:
            rate_bit_s = max(MIN_RATE_BIT_S, count * OPPORTUNITY_BITS * 1000 / (end_ms - start_ms))
            if rate_bit_s != before:
                yield start_ms / 1000, rate_bit_s
            before = rate_bit_s


def _counts(opportunities_ms: Sequence[int], length_ms: float, bin_ms: int) -> Iterator[tuple[float, float, int]]:
    """(start, end, opportunities) of each bin."""
    period_ms = opportunities_ms[-1]

    def up_to(t_ms: float) -> int:
        rounds = math.floor(t_ms / period_ms)
        rest_ms = t_ms - rounds * period_ms
        within = (
            bisect.bisect_right(opportunities_ms, rest_ms) if rest_ms else 0
        )  # those at 0 belong to their own round
        return rounds * len(opportunities_ms) + within

    before = 0
    for index in range(math.ceil(length_ms / bin_ms)):
        end_ms = min((index + 1) * bin_ms, length_ms)
        total = up_to(end_ms)
        yield index * bin_ms, end_ms, total - before
        before = total


def read_csv(path: Path) -> list[Row]:
    """Return the rows; cells are still text.

    Raises:
        InputError: The file has faults; one line each, with its line.
    """
    lines = list(itertools.islice(numbered_lines(read_user_text(path)), MAX_ROWS + 2))
    if len(lines) < 2:
        raise InputError(f"{path}: holds no row below a heading such as t_s,rate,rtt,loss; give at least one")
    if len(lines) > MAX_ROWS + 1:
        raise InputError(f"{path}: has more than {MAX_ROWS} rows; take longer steps")
    first_line = lines[0][0]
    try:
        heading = heading_of(lines[0][1])
    except ValueError as error:
        raise InputError(f"{path}, line {first_line}: {error}") from error
    raise_input_faults(f"{path}, line {first_line}: {fault}" for fault in _heading_faults(heading))
    faults: list[str] = []
    rows: list[Row] = []
    for number, line in lines[1:]:
        try:
            t_s, cells = _row(heading, cells_of(line), rows[-1].t_s if rows else None)
            rows.append(Row(t_s, cells, number))
        except ValueError as error:
            faults.append(f"{path}, line {number}: {error}")
            if EPOCH in str(error) or len(faults) > _MAX_FAULTS:
                break
    if not faults and not any(row.cells for row in rows):
        faults.append(f"{path}: no row has a value, so that nothing would change; fill in {', '.join(heading[1:])}")
    raise_input_faults(listed(faults, path))
    return rows


def _heading_faults(heading: Sequence[str]) -> Iterator[str]:
    known = ("t_s", *FIELDS)
    if len(heading) > _MAX_COLUMNS:
        yield f"has {len(heading)} columns; give those of {', '.join(known)} alone"
        return
    if "t_s" not in heading:
        yield f"heading {','.join(heading)[:80]}: has no t_s, the seconds since the trace began"
    for name in dict.fromkeys(heading):
        if heading.count(name) > 1:
            yield f"column {name!r} is there twice"
        if name not in known:
            hint = "; a bare rate is in bit/s, and one with its unit reads '12 Mbit/s'"
            yield unknown(f"column {name!r}", name, known) + (hint if "b" in name.lower() else "")
    if not set(heading) & set(FIELDS):
        yield f"no column to set; known: {', '.join(FIELDS)}"


def _row(heading: Sequence[str], cells: Sequence[str], before_s: float | None) -> tuple[float, dict[str, str]]:
    if len(cells) != len(heading):
        raise ValueError(f"{len(cells)} cells where the heading has {len(heading)}; give a cell for each column")
    by_name = dict(zip(heading, cells, strict=True))
    text = by_name.pop("t_s")
    if "" in cells:
        by_name = {name: cell for name, cell in by_name.items() if cell}
    try:
        t_s = number_of(text)
    except ValueError:
        t_s = -1.0
    if t_s < 0:
        raise ValueError(f"t_s {shown(text)} is not a number of seconds from 0; correct it")
    if t_s >= MAX_TIME_S:
        raise ValueError(f"{'the first time' if before_s is None else 'the time'}, {text} s, {EPOCH}; {_REMEDY}")
    if before_s is not None and t_s < before_s + _MIN_ROW_S:
        raise ValueError(f"t_s {text} is not after the row above; sort the rows, and give each time once, 1 us apart")
    return t_s, by_name


def csv_round_s(rows: Sequence[Row]) -> float:
    """Until the first row comes again: the last row lasts as long as the one before it."""
    return rows[-1].t_s + (rows[-1].t_s - rows[-2].t_s)


def csv_steps(rows: Sequence[Row], length_s: float, *, loop: bool) -> Iterator[tuple[float, Row]]:
    """Yield each row before `length_s` with the time at which it begins."""
    round_s = csv_round_s(rows) if loop else 0.0
    for number in itertools.count() if loop else (0,):
        for row in rows:
            if number * round_s + row.t_s >= length_s:
                return
            yield number * round_s + row.t_s, row


def outage_rates(rates: Sequence[tuple[float, float]], end_s: float) -> Iterator[float]:
    """Yield the rates of a trace in bit/s; those of an outage, which are 0 in it, as of `mahimahi_rates`.

    Args:
        rates: Times in seconds, ascending, with the rates that begin there.
        end_s: End of the last one.
    """
    ends = {}
    for t_s, rate_bit_s in reversed(rates):
        ends[t_s] = end_s
        end_s = t_s if rate_bit_s else end_s
    outage_bit_s = 0.0
    for t_s, rate_bit_s in rates:
        outage_bit_s = 0.0 if rate_bit_s else outage_bit_s or _outage_bit_s(ends[t_s] - t_s)
        yield rate_bit_s or outage_bit_s


def _outage_bit_s(length_s: float) -> float:
    return min(max(MIN_RATE_BIT_S, OPPORTUNITY_BITS / length_s), MAX_RATE_BIT_S)
