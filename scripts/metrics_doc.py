"""Writes docs/metrics.md from the table of metrics, or with --check says whether it is up to date."""

from __future__ import annotations

import sys
from pathlib import Path

from testbed.core.record.metrics import METRICS

PATH = Path(__file__).resolve().parents[1] / "docs" / "metrics.md"
_HEAD = """# Metrics

Served at `/metrics` on loopback while a run lasts (port 9464, `metrics_port=` another, 0 any free one; the run prints
the address), and kept time-stamped in `metrics.openmetrics`. Every series bears the labels `run`, `topo` and
`compressor` beside its own. Times are emulated seconds. `scripts/metrics_doc.py` writes this page from
`testbed/core/record/metrics.py`.

A run that a Prometheus scrapes ends no sooner than its last values have been scraped twice, but at most three intervals
or ten seconds later; scraped every five seconds or more often, none is lost. One that nobody scrapes does not wait.

| metric | type | labels | meaning |
| --- | --- | --- | --- |
"""


def text() -> str:
    rows = (f"| `{m.series}` | {m.kind} | {', '.join(m.labels)} | {m.help} |\n" for m in METRICS.values())
    return _HEAD + "".join(rows)


def main() -> int:
    if "--check" in sys.argv:
        if PATH.read_text() != text():
            sys.stderr.write(
                "docs/metrics.md is not what testbed/core/record/metrics.py says: run scripts/metrics_doc.py\n"
            )
            return 1
        return 0
    PATH.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
