"""`python -m experiments.benchmarks.codecs.codec_process NAME ALLOCATOR`: times one compressor, prints rows as JSON.

It runs in a process of its own, whose allocator its environment has set.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from testbed.worker.laws import throughput
from testbed.worker.laws.cases import catalogue
from testbed.worker.plugins import compressor_catalogue

LARGEST = throughput.NUMELS[-1]


def rows(name: str, allocator: str) -> list[dict[str, Any]]:
    make = catalogue.case(compressor_catalogue.part(name)).make
    if allocator == "default":
        return [throughput.measure(make(), LARGEST, 1)]
    return list(throughput.table(make))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(rows(sys.argv[1], sys.argv[2])) + "\n")
