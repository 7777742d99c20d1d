"""The file of a trace of when clients are there, read and checked."""

from __future__ import annotations

import csv
import functools
import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from testbed.core.parameter_faults import shown
from testbed.core.reading import open_regular

COLUMNS = ("client", "from_s", "until_s")
Spans = Sequence[tuple[float, float]]
"""Of one client, from when until when it is there; ascending, and none touches the next."""
_MOST_BYTES = 50_000_000
_MOST_TOLD = 20


@functools.cache  # processes of a run are forked from one that has read it, and may not be allowed to
def read_trace(file: str, period_s: float | None) -> tuple[dict[int, Spans], list[str]]:
    """By client, and what is wrong with it, one line each.

    Args:
        period_s: after which no time may lie; None: any may.
    """
    if not isinstance(file, str) or not Path(file).is_absolute():
        return {}, [f"file={shown(file)}: must be the absolute path of a CSV file of {','.join(COLUMNS)}"]
    path = Path(file)
    try:
        if path.stat().st_size > _MOST_BYTES:
            return {}, [f"file={file}: has {path.stat().st_size} bytes; must be at most {_MOST_BYTES}"]
        with open_regular(path) as opened:
            lines = list(csv.reader(opened))
    except (OSError, ValueError, csv.Error) as error:
        return {}, [f"file={file}: {error}"]
    if not lines or tuple(cell.strip() for cell in lines[0]) != COLUMNS:
        return {}, [f"file={file}: line 1: must be {','.join(COLUMNS)}"]
    return _checked(file, lines, period_s)


def _checked(file: str, lines: list[list[str]], period_s: float | None) -> tuple[dict[int, Spans], list[str]]:
    found: dict[int, list[tuple[float, float, int]]] = {}
    faults: list[str] = []
    for number, cells in enumerate(lines[1:], start=2):
        if not cells:
            continue
        client, span, fault = _row(cells, period_s)
        if fault:
            faults.append(f"file={file}: line {number}: {fault}")
        else:
            found.setdefault(client, []).append((*span, number))
    for client, spans in sorted(found.items()):
        spans.sort()
        faults += [
            f"file={file}: line {after[2]}: client {client} is there already, by line {before[2]}"
            for before, after in pairwise(spans)
            if after[0] < before[1]
        ]
    if not found and not faults:
        faults.append(f"file={file}: nobody is ever there; give a line for each time that a client is")
    if len(faults) > _MOST_TOLD:
        faults = [*faults[:_MOST_TOLD], f"file={file}: and {len(faults) - _MOST_TOLD} more"]
    return {client: _joined(spans) for client, spans in found.items()}, faults


def _row(cells: list[str], period_s: float | None) -> tuple[int, tuple[float, float], str | None]:
    """Client, times, and what is wrong."""
    try:
        client, from_s, until_s = int(cells[0]), float(cells[1]), float(cells[2])
        if len(cells) > len(COLUMNS):
            raise ValueError
    except (ValueError, IndexError):
        return 0, (0.0, 0.0), f"{shown(','.join(cells))}: must be a whole number and two numbers"
    if client < 0:
        return 0, (0.0, 0.0), f"client={client}: must be at least 0"
    if not 0 <= from_s < until_s < math.inf:
        return 0, (0.0, 0.0), f"from_s={from_s:g}, until_s={until_s:g}: must be 0 <= from_s < until_s, and finite"
    if period_s is not None and until_s > period_s:
        return 0, (0.0, 0.0), f"until_s={until_s:g}: is after period_s={period_s:g}; give a longer period, or none"
    return client, (from_s, until_s), None


def _joined(spans: list[tuple[float, float, int]]) -> Spans:
    """Those that touch are one."""
    found: list[tuple[float, float]] = []
    for from_s, until_s, _ in spans:
        if found and from_s <= found[-1][1]:
            found[-1] = (found[-1][0], max(until_s, found[-1][1]))
        else:
            found.append((from_s, until_s))
    return found
