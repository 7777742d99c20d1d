"""`metrics.openmetrics`: a run's series as time-stamped OpenMetrics text, for `promtool tsdb create-blocks-from`.

promtool drops samples out of order and one of two at one instant without a word, so the text is sorted by family,
series and time, and the number of samples is returned to be compared with what promtool says it stored. Every metric
is described, also one without samples, so that a file tells of which table of metrics it is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TextIO

from testbed.analysis.record.record import Record
from testbed.analysis.record.samples import Key, Series
from testbed.core.record.metrics import METRICS, Labels, run_labels

HOLD_MS = 1000
"""A server that scraped the run live once a second would have stored every value again each second, and panels expect
that: after 5 s without a sample a series ends for them. Longer pauses are therefore filled with the last value."""
MAX_SAMPLES = 20_000_000
"""Bound for one run, some 2 GB of text; a record that would give more has a time in it that cannot be."""


def write_openmetrics(record: Record, series: Series, file: TextIO, start_unix_s: float | None = None) -> int:
    """Write `series`, and return the number of samples.

    Args:
        start_unix_s: Unix time of the first step; None takes the run's own.

    Raises:
        ValueError: nobody knows when the run began, or its events would give more samples than a run has.
    """
    start_unix_s = record.start_unix_s if start_unix_s is None else start_unix_s
    if start_unix_s is None:
        raise ValueError("neither provenance.json nor the run's name says when it began")
    start_ms = round(start_unix_s * 1000)
    common = _common_labels(record)
    count = 0
    _refuse_endless(series)
    by_name: dict[str, list[Key]] = {name: [] for name in sorted(METRICS)}
    for key in sorted(series.points):
        by_name[key[0]].append(key)
    for name, keys in by_name.items():
        metric = METRICS[name]
        file.write(f"# HELP {name} {_escaped(metric.help)}\n# TYPE {name} {metric.kind}\n")
        for key in keys:
            head = f"{metric.series}{{{_label_text(common + key[1])}}}"
            for t_ms, value in _held(series, key):
                file.write(f"{head} {_number(value)} {_seconds(start_ms + t_ms)}\n")
                count += 1
    file.write("# EOF\n")
    return count


def _refuse_endless(series: Series) -> None:
    """Pauses are filled second by second, so one absurd time in the record would fill the disk."""
    seconds = ((series.end_ms - min(points)) // HOLD_MS + len(points) for points in series.points.values() if points)
    expected = sum(seconds)
    if expected > MAX_SAMPLES:
        raise ValueError(f"its events would give {expected} samples: one of them has a time that cannot be")


def _common_labels(record: Record) -> Labels:
    if record.spec is None:
        return run_labels(record.run_id, "unknown", "unknown")
    return run_labels(record.run_id, record.spec.topo, record.spec.compressor.name)


def _held(series: Series, key: Key) -> Iterator[tuple[int, float]]:
    """The series' points in order of time, pauses filled, to the end of the run."""
    points = sorted(series.points[key].items())
    for (t_ms, value), (until_ms, _) in itertools.pairwise([*points, (series.end_ms + 1, math.nan)]):
        yield t_ms, value
        # A sample that is merely late is no pause, hence the half.
        yield from ((held_ms, value) for held_ms in range(t_ms + HOLD_MS, until_ms - HOLD_MS // 2, HOLD_MS))
    if points and series.end_ms > points[-1][0]:
        yield series.end_ms, points[-1][1]


def _label_text(labels: Labels) -> str:
    return ",".join(f'{key}="{_escaped(value)}"' for key, value in sorted(labels))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")


def _seconds(t_ms: int) -> str:
    return f"{t_ms // 1000}.{t_ms % 1000:03d}"
