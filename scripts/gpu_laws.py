"""The law `devices` over every compressor, in one process that imports torch once: a line of JSON each."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from testbed.worker.laws.cases import catalogue
from testbed.worker.laws.cases.registry import BOOK
from testbed.worker.laws.judge import outcome_of
from testbed.worker.plugins import compressor_catalogue


def main() -> int:
    """Print what became of each; return 0."""
    for name in compressor_catalogue.names():
        row = outcome_of(BOOK["devices"], catalogue.case(compressor_catalogue.part(name)))
        print(json.dumps({"name": name, "outcome": row[0], "detail": row[1]}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
