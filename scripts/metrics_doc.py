"""Writes docs/metrics.md and its CSV file from the list of metrics; --check says if they are current."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.generated import ROOT, kept
from testbed.core.record.metrics import METRICS

PATH, TABLE = ROOT / "docs" / "metrics.md", ROOT / "docs" / "tables" / "metrics.csv"
_HEAD = """# Metrics

Served at `/metrics` on loopback during a run (port 9464 or `metrics_port=`; 0 takes a free one and prints it), and kept
time-stamped in `metrics.openmetrics`. Names in `_total` are counters, others gauges. All have the labels `run`, `topo`
and `compressor`, and those named below. Times are emulated. [metrics.csv](tables/metrics.csv) says what each one is.

A scraped run ends once its last values have been scraped twice, after three intervals or ten seconds at most: scrape at
least every five seconds, or values are lost. `scripts/metrics_doc.py` writes this page from
`testbed/core/record/metrics.py`.
"""


def text() -> str:
    labels = sorted({m.labels for m in METRICS.values()}, key=lambda one: (len(one), one))
    return _HEAD + "".join(map(_section, labels))


def _section(labels: tuple[str, ...]) -> str:
    title = f"Labels {', '.join(f'`{label}`' for label in labels)}" if labels else "No label of their own"
    rows = "".join(f"- `{m.series}`\n" for m in METRICS.values() if m.labels == labels)
    return f"\n## {title}\n\n{rows}"


def table() -> str:
    """Return the CSV file: a row for each metric."""
    found = io.StringIO()
    rows = csv.writer(found, lineterminator="\n")
    rows.writerow(("metric", "labels", "meaning"))
    rows.writerows((m.series, " ".join(m.labels), m.help) for m in METRICS.values())
    return found.getvalue()


def main() -> int:
    files = {PATH: text(), TABLE: table()}
    faults = list(kept(files, "testbed/core/record/metrics.py says", "metrics_doc.py", check="--check" in sys.argv))
    sys.stderr.writelines(f"{fault}\n" for fault in faults)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
