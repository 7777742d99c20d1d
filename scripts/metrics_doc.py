"""Writes docs/metrics.md from the list of metrics, or with --check says whether it is up to date."""

from __future__ import annotations

import sys
from pathlib import Path

from testbed.core.record.metrics import METRICS

PATH = Path(__file__).resolve().parents[1] / "docs" / "metrics.md"
_HEAD = """# Metrics

Served at `/metrics` on loopback during a run (port 9464 or `metrics_port=`; 0 takes a free one and prints it), and kept
time-stamped in `metrics.openmetrics`. Names in `_total` are counters, others gauges. All have the labels `run`, `topo`
and `compressor`, and those of their section. Times are emulated. A scraped run ends after its last values have been
scraped twice, at most three intervals or ten seconds later: scrape every five seconds or more often, or values
are lost. `scripts/metrics_doc.py` writes this page from `testbed/core/record/metrics.py`.
"""


def text() -> str:
    labels = sorted({m.labels for m in METRICS.values()}, key=lambda one: (len(one), one))
    return _HEAD + "".join(map(_section, labels))


def _section(labels: tuple[str, ...]) -> str:
    title = f"Labels {', '.join(f'`{label}`' for label in labels)}" if labels else "No label of their own"
    rows = "".join(f"- `{m.series}`: {m.help}\n" for m in METRICS.values() if m.labels == labels)
    return f"\n## {title}\n\n{rows}"


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
