"""A run's samples as OpenMetrics text in which its first step begins at the archive's epoch.

A run's own `metrics.openmetrics` is copied with its times shifted. What is not exactly as this version would write it
(an older table of metrics, a cut line, another run's labels) is made again from the events: promtool drops what is out
of order without a word, and refuses all runs for one line that it cannot read.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from testbed.analysis.record.openmetrics import HOLD_MS, write_openmetrics
from testbed.analysis.record.record import load
from testbed.analysis.record.samples import series_of
from testbed.core.files import open_regular_bytes
from testbed.core.record.metrics import METRICS, run_labels
from testbed.core.record.run_directory import RunDir

EPOCH_S = 1_577_836_800
"""2020-01-01T00:00:00Z: where every archived run's first step begins, so that one range of time shows them all."""
EPOCH_MS = EPOCH_S * 1000
_LONGEST_MS = 30 * 24 * 3600 * 1000
_VERSION = 1
"""Count it up when the same table gives other samples."""

_TEXT = r'"(?:[^"\\\n]|\\[\\n"])*"'
_SERIES = re.compile(rf"([a-z0-9_]+)\{{([a-z0-9_]+={_TEXT}(?:,[a-z0-9_]+={_TEXT})*)\}}")
_LABELS = re.compile(rf"([a-z0-9_]+)=({_TEXT})")
_NUMBER = re.compile(rb"[+-]?\d+(?:\.\d*)?(?:e[+-]?\d+)?|NaN|[+-]Inf")
_TIME = re.compile(rb"\d{1,12}\.\d{3}")
_METRIC_OF_SERIES = {metric.series: metric for metric in METRICS.values()}
_COMMON = {name for name, _ in run_labels("", "", "")}
_INFO = "longhaul_run_info"


def form() -> str:
    """Changes whenever archived samples must be made again."""
    table = [[m.name, m.kind, m.labels] for m in METRICS.values()]
    return hashlib.sha256(json.dumps([_VERSION, EPOCH_S, HOLD_MS, table]).encode()).hexdigest()[:16]


def append_samples(run: RunDir, target: BinaryIO, scratch: Path) -> tuple[int, list[str]]:
    """Append the run's samples, without `# EOF`, and return how many, and what of its record could not be read.

    Args:
        scratch: a file that may be overwritten.

    Raises:
        InputError, ValueError: the record gives none; `target` is as it was.
    """
    record = load(run.path)
    start_unix_s = record.start_unix_s
    try:
        if start_unix_s is not None and run.openmetrics.exists():
            return append_shifted(run.openmetrics, run.run_id, EPOCH_MS - round(start_unix_s * 1000), target), []
    except (ValueError, OverflowError):
        pass  # of another form, so from the events
    if record.spec is None:
        raise ValueError("; ".join(record.faults) or f"there is no {run.spec.name}")
    if record.time_fault is not None:
        raise ValueError(record.time_fault)
    series = series_of(record)
    with scratch.open("w", encoding="utf-8", newline="\n") as file:
        write_openmetrics(record, series, file, start_unix_s=EPOCH_S)
    return append_shifted(scratch, run.run_id, 0, target), series.faults


def append_shifted(source: Path, run_id: str, shift_ms: int, target: BinaryIO) -> int:
    """Append the samples of `source`, `shift_ms` later, and return how many.

    Raises:
        ValueError: it is not what `write_openmetrics` of this version writes for that run; `target` is as it was.
    """
    begin, count = target.tell(), 0
    try:
        with open_regular_bytes(source) as file:
            for line in _Shifted(run_id, shift_ms).lines(file):
                target.write(line)
                count += 1
    except ValueError:
        target.seek(begin)
        target.truncate()
        raise
    return count


class _Shifted:
    """The lines of one run on their way into the archive's text."""

    def __init__(self, run_id: str, shift_ms: int) -> None:
        self._run_id = run_id
        self._shift_ms = shift_ms
        self._times: dict[bytes, tuple[int, bytes]] = {}
        """As they stand in the file: in milliseconds and as text, shifted. Most series share their times."""
        self._families: set[str] = set()
        self._series: set[bytes] = set()
        self._has_info = False

    def lines(self, file: BinaryIO) -> Iterator[bytes]:
        head, last_ms, ended = b"", 0, False
        for line in file:
            if ended or not line.endswith(b"\n"):
                raise ValueError("it goes on after its end, or is cut")
            if line.startswith(b"#"):
                ended = self._describe(line)
                continue
            name, value, time = line[:-1].rsplit(b" ", 2)
            time_ms, text = self._times.get(time) or self._shift(time)
            if name != head:
                self._begin(name, time_ms)
                head = name
            elif time_ms <= last_ms:
                raise ValueError("samples out of order")
            last_ms = time_ms
            if not _NUMBER.fullmatch(value) or (math.isinf(float(value)) and not value.endswith(b"Inf")):
                raise ValueError("no number")
            yield b"%b %b %b\n" % (name, value, text)
        if not ended or self._families != set(METRICS) or not self._has_info:
            raise ValueError("of another table of metrics")

    def _describe(self, line: bytes) -> bool:
        """Take note of a family; True at the end."""
        words = line.split()
        if words[1:2] == [b"TYPE"]:
            name, kind = (word.decode() for word in words[2:4])
            if name not in METRICS or METRICS[name].kind != kind:
                raise ValueError("of another table of metrics")
            self._families.add(name)
        return line == b"# EOF\n"

    def _begin(self, head: bytes, time_ms: int) -> None:
        """Check a series by its name and labels, once."""
        found = _SERIES.fullmatch(head.decode())
        metric = _METRIC_OF_SERIES.get(found[1]) if found else None
        if found is None or metric is None or head in self._series:
            raise ValueError("an unknown or repeated series")
        labels = _LABELS.findall(found[2])
        if sorted(name for name, _ in labels) != sorted([*_COMMON, *metric.labels]):
            raise ValueError("other labels")
        if dict(labels)["run"] != f'"{self._run_id}"':
            raise ValueError("another run's samples")
        if metric.name == _INFO:
            self._has_info = True
            if time_ms != EPOCH_MS:
                raise ValueError("it began at another time than the record says")
        self._series.add(head)

    def _shift(self, time: bytes) -> tuple[int, bytes]:
        if not _TIME.fullmatch(time):
            raise ValueError("no time")
        time_ms = int(time.replace(b".", b"")) + self._shift_ms
        if abs(time_ms - EPOCH_MS) > _LONGEST_MS:
            raise ValueError("a time that cannot be")
        shifted = (time_ms, b"%d.%03d" % divmod(time_ms, 1000))
        self._times[time] = shifted
        return shifted
