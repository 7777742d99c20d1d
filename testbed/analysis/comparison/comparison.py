"""Several runs side by side, as data: the rows of one table, what stands under it, and what is left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.analysis.comparison.cells import MISSING, Measured, Shown, interval_remarks, shown
from testbed.analysis.comparison.groups import BELIEVED, PROPERTIES, Group, grouped, shown_settings
from testbed.analysis.record.identity import verdict_of
from testbed.analysis.record.record import Record

_METHOD = ("strategy", "compressor")
_FEW = 8


@dataclass(frozen=True)
class Comparison:
    """Runs as rows of one table."""

    groups: tuple[Group, ...]
    records: tuple[Record, ...]
    """All runs that were asked for."""
    left_out: tuple[Record, ...]

    @property
    def common(self) -> dict[str, Any]:
        """Values of `PROPERTIES` that all rows share."""
        rows = [group.properties() for group in self.groups]
        return {key: rows[0][key] for key in PROPERTIES if rows and all(row[key] == rows[0][key] for row in rows)}


def compare(records: Sequence[Record], *, take_all: bool = False) -> Comparison:
    """Return runs as rows.

    Args:
        take_all: True to take invalid and unfinished runs in.
    """
    left_out = () if take_all else tuple(record for record in records if verdict_of(record) not in BELIEVED)
    return Comparison(tuple(grouped(records, take_all=take_all)), tuple(records), left_out)


def table(comparison: Comparison) -> Shown:
    """Return the table: strategy, compressor, properties and settings in which rows differ, and values."""
    varying = [key for key in PROPERTIES if key not in comparison.common and key not in _METHOD]
    keys, settings = shown_settings(comparison.groups)
    words = [
        [group.strategy, group.compressor]
        + [MISSING if (found := group.properties()[key]) is None else str(found) for key in varying]
        + [mine.get(key, MISSING) for key in keys]
        + [spoken_seeds(group), spoken_verdicts(group)]
        for group, mine in zip(comparison.groups, settings, strict=True)
    ]
    return shown([*_METHOD, *varying, *keys, "seeds", "verdicts"], words, measured(comparison))


def measured(comparison: Comparison) -> list[Measured]:
    """Return what was measured of each row."""
    return [Measured(group.values(), len(group.taken), group.metric_name) for group in comparison.groups]


def spoken_seeds(group: Group) -> str:
    """Return how many seeds, and how many runs where that is another number."""
    seeds, runs = len(group.seeds()), len(group.taken)
    return str(seeds) if runs == seeds else f"{seeds} ({runs} runs)"


def spoken_verdicts(group: Group) -> str:
    """Return as "2 valid, 1 invalid (1 left out)"."""
    left = len(group.records) - len(group.taken)
    words = [f"{count} {verdict}" for verdict, count in group.verdicts().items()]
    return ", ".join(words) + (f" ({left} left out)" if left else "")


def remarks(comparison: Comparison) -> Iterator[str]:
    """Yield what stands under every table."""
    common = {key: value for key, value in comparison.common.items() if key not in _METHOD}
    if common:
        yield ", ".join(f"{key} {value}" for key, value in common.items()) + "."
    yield from interval_remarks(measured(comparison))
    if comparison.left_out:
        count, of = len(comparison.left_out), len(comparison.records)
        named = [f"{record.run_id} ({verdict_of(record)})" for record in comparison.left_out[:_FEW]]
        more = f" and {count - _FEW} more" if count > _FEW else ""
        yield f"Left out: {count} of {of} runs, invalid or unfinished: {', '.join(named)}{more}; --all takes them in."
    for record in comparison.records:
        yield from (f"{record.run_id}: {fault}" for fault in record.faults)
