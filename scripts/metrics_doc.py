"""Writes docs/metrics.md from the table of metrics, or with --check says whether it is up to date."""

from __future__ import annotations

import sys
from pathlib import Path

from testbed.core.record.metrics import METRICS

PATH = Path(__file__).resolve().parents[1] / "docs" / "metrics.md"
_HEAD = """# Metrics

Served at `/metrics` on loopback during a run (port 9464, or `metrics_port=`; 0 takes any free one; the run prints the
address), and kept time-stamped in `metrics.openmetrics`. Every series has the labels `run`, `topo` and `compressor` in
addition to its own. Times are emulated seconds. `scripts/metrics_doc.py` writes this page from
`testbed/core/record/metrics.py`.

A scraped run ends after its last values have been scraped twice, at most three intervals or ten seconds later. Scrape
every five seconds or more often, and none is lost.

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
