"""Several runs side by side, as data: the rows of one table, what stands under it, and what is left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.analysis.comparison.groups import BELIEVED, MEASURES, PROPERTIES, Group, Measure, grouped
from testbed.analysis.comparison.intervals import COVERAGE, Estimate
from testbed.analysis.record.identity import verdict_of
from testbed.analysis.record.record import Record

INTERVAL = f"{COVERAGE:.0%} interval over seeds, Student's t".replace("%", " %")
MISSING = "-"
PARTIAL = "(k of n): k of the n runs have the value; the target, for one, may never have been reached."
_FEW = 8


@dataclass(frozen=True)
class Comparison:
    groups: tuple[Group, ...]
    records: tuple[Record, ...]
    """All that were asked for."""
    left_out: tuple[Record, ...]

    @property
    def metric_name(self) -> str | None:
        """None where the rows have different ones."""
        names = {group.metric_name for group in self.groups} - {None}
        return names.pop() if len(names) == 1 else None

    @property
    def common(self) -> dict[str, Any]:
        """What all rows share of `PROPERTIES`."""
        rows = [group.properties() for group in self.groups]
        return {key: rows[0][key] for key in PROPERTIES if rows and all(row[key] == rows[0][key] for row in rows)}


def compare(records: Sequence[Record], *, take_all: bool = False) -> Comparison:
    """
    Args:
        take_all: also runs that are invalid or unfinished.
    """
    left_out = () if take_all else tuple(record for record in records if verdict_of(record) not in BELIEVED)
    return Comparison(tuple(grouped(records, take_all=take_all)), tuple(records), left_out)


def headings(comparison: Comparison) -> list[str]:
    varying = [key for key in PROPERTIES if key not in comparison.common and key not in ("strategy", "compressor")]
    best = f"best {comparison.metric_name or ''}".rstrip()  # a list of runs has the last
    names = [best if measure.key == "metric_best" else measure.heading for measure in MEASURES]
    return ["method", *varying, "seeds", "verdicts", *names]


def cells(comparison: Comparison, group: Group) -> list[str]:
    """As text, one for each of `headings`."""
    properties = group.properties()
    varying = [key for key in PROPERTIES if key not in comparison.common and key not in ("strategy", "compressor")]
    return [
        group.label,
        *(MISSING if properties[key] is None else str(properties[key]) for key in varying),
        spoken_seeds(group),
        spoken_verdicts(group),
        *(spoken_value(comparison, group, measure) for measure in MEASURES),
    ]


def spoken_seeds(group: Group) -> str:
    """How many, and how many runs where that is another number."""
    seeds, runs = len(group.seeds()), len(group.taken)
    return str(seeds) if runs == seeds else f"{seeds} ({runs} runs)"


def spoken_verdicts(group: Group) -> str:
    left = len(group.records) - len(group.taken)
    words = [f"{count} {verdict}" for verdict, count in group.verdicts().items()]
    return ", ".join(words) + (f" ({left} left out)" if left else "")


def spoken_value(comparison: Comparison, group: Group, measure: Measure) -> str:
    """As "12.1 s ± 0.3 s", with how many runs have a value where not all do."""
    found = group.value(measure)
    if found is None:
        return MISSING
    text = spoken_estimate(found, measure, len(group.taken))
    is_named = measure.key == "metric_best" and comparison.metric_name is None and group.metric_name
    return f"{group.metric_name} {text}" if is_named else text


def spoken_estimate(found: Estimate, measure: Measure, runs: int) -> str:
    """
    Args:
        runs: how many could have the value.
    """
    text = measure.show(found.mean)
    if found.half_width is not None:
        text += f" ± {measure.show(float(f'{found.half_width:.2g}'))}"
    return text if found.runs == runs else f"{text} ({found.runs} of {runs})"


def remarks(comparison: Comparison) -> Iterator[str]:
    """What stands under every table."""
    common = {key: value for key, value in comparison.common.items() if key not in ("strategy", "compressor")}
    if common:
        yield ", ".join(f"{key} {value}" for key, value in common.items()) + "."
    if any(len(group.seeds()) > 1 for group in comparison.groups):
        yield f"Mean ± half the {INTERVAL}; one seed has no interval, and repeats of a seed count once."
    elif comparison.groups:
        yield "One seed a row, hence no interval."
    counted = [found for group in comparison.groups for found in group.values().items() if _is_partial(group, *found)]
    if counted:
        yield PARTIAL
    if comparison.left_out:
        count, of = len(comparison.left_out), len(comparison.records)
        named = [f"{record.run_id} ({verdict_of(record)})" for record in comparison.left_out[:_FEW]]
        more = f" and {count - _FEW} more" if count > _FEW else ""
        yield f"Left out: {count} of {of} runs, invalid or unfinished: {', '.join(named)}{more}; --all takes them in."
    for record in comparison.records:
        yield from (f"{record.run_id}: {fault}" for fault in record.faults)


def _is_partial(group: Group, key: str, found: Estimate | None) -> bool:
    return found is not None and found.runs < len(group.taken)
