"""Recorded links: mahimahi's format and CSV, as steps in time since the trace began."""

from __future__ import annotations

import bisect
import csv
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from testbed.core.errors import InputError
from testbed.core.spec.link_profile import MIN_RATE_BIT_S
from testbed.orchestrator.config.events.quantities import FIELDS
from testbed.orchestrator.config.grammar.overrides import unknown

OPPORTUNITY_BITS = 1500 * 8
"""What one line of a mahimahi trace lets through."""
_MAX_FAULTS = 5
"""Of one file, that are told one by one."""

Row = tuple[float, dict[str, str]]
"""Seconds since the trace began, and the cells that are not empty by their heading."""


def read_mahimahi(path: Path) -> list[int]:
    """The milliseconds at which one packet may leave.

    Raises:
        InputError: with the file's faults.
    """
    faults: list[str] = []
    opportunities_ms: list[int] = []
    for number, line in _lines(path):
        if not line.isdecimal() or not line.isascii():
            faults.append(f"{path}, line {number}: {line[:40]!r} is not a whole number of milliseconds")
        elif opportunities_ms and int(line) < opportunities_ms[-1]:
            faults.append(f"{path}, line {number}: {line} ms is before the line above; times must not fall")
        else:
            opportunities_ms.append(int(line))
    if not faults and (not opportunities_ms or opportunities_ms[-1] == 0):
        faults.append(f"{path}: holds no time above 0, so that the trace has no length")
    _raise(faults, path)
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
    """The rows; cells are still text.

    Raises:
        InputError: with the file's faults.
    """
    lines = list(_lines(path))
    if len(lines) < 2:
        raise InputError(f"{path}: holds no row below a heading such as t_s,rate,rtt,loss")
    heading = [cell.strip() for cell in next(csv.reader([lines[0][1]]))]
    faults = [f"{path}: {fault}" for fault in _heading_faults(heading)]
    rows: list[Row] = []
    if faults:
        raise InputError(*faults)
    for (number, _), cells in zip(lines[1:], csv.reader(line for _, line in lines[1:]), strict=True):
        try:
            rows.append(_row(heading, [cell.strip() for cell in cells], rows[-1][0] if rows else None))
        except ValueError as error:
            faults.append(f"{path}, line {number}: {error}")
    _raise(faults, path)
    return rows


def _heading_faults(heading: Sequence[str]) -> Iterator[str]:
    known = ("t_s", *FIELDS)
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


def _row(heading: Sequence[str], cells: Sequence[str], before_s: float | None) -> Row:
    if len(cells) != len(heading):
        raise ValueError(f"{len(cells)} cells where the heading has {len(heading)}")
    by_name = {name: cell for name, cell in zip(heading, cells, strict=True) if cell}
    text = by_name.pop("t_s", "")
    try:
        t_s = float(text)
    except ValueError:
        t_s = math.nan
    if not (math.isfinite(t_s) and t_s >= 0):
        raise ValueError(f"t_s {text!r} is not a number of seconds from 0")
    if before_s is not None and t_s <= before_s:
        raise ValueError(f"t_s {text} is not after the row above")
    return t_s, by_name


def csv_round_s(rows: Sequence[Row]) -> float:
    """Until the first row comes again: the last row lasts as long as the one before it."""
    return rows[-1][0] + (rows[-1][0] - rows[-2][0])


def csv_steps(rows: Sequence[Row], length_s: float, *, loop: bool) -> Iterator[Row]:
    """Rows before `length_s`."""
    round_s = csv_round_s(rows) if loop else 0.0
    for number in itertools.count() if loop else (0,):
        for t_s, cells in rows:
            if number * round_s + t_s >= length_s:
                return
            yield number * round_s + t_s, cells


def _lines(path: Path) -> Iterable[tuple[int, str]]:
    """Lines with their numbers; empty ones and comments (#) apart."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is not text"
        raise InputError(f"{path}: {why}") from error
    stripped = ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1))
    return [(number, line) for number, line in stripped if line and not line.startswith("#")]


def _raise(faults: list[str], path: Path) -> None:
    if len(faults) > _MAX_FAULTS:
        faults[_MAX_FAULTS:] = [f"{path}: and {len(faults) - _MAX_FAULTS} more faults"]
    if faults:
        raise InputError(*faults)
