"""Asks @grafana/data about the committed dashboards and keeps the answers; with --check says whether they are as kept.
Either way the dashboards are held to the types of @grafana/schema.

python -m dashboards.grafana_data [--check]
"""

from __future__ import annotations

import sys

from dashboards.grafana_data.answers import KEPT, answered, lacking, misfits, text
from dashboards.grafana_data.questions import files, questions, read_dashboards


def main(arguments: list[str]) -> int:
    if why := lacking():
        sys.stderr.write(f"dashboards/grafana_data: {why}\n")
        return 3
    faults = misfits(files())
    made = text(answered(questions(read_dashboards())))
    if "--check" not in arguments:
        KEPT.write_text(made)
    elif KEPT.read_text() != made:
        faults.append(f"{KEPT.name} is not what @grafana/data answers: run python -m dashboards.grafana_data")
    sys.stderr.writelines(f"{fault}\n" for fault in faults)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
