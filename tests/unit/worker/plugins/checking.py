"""A small run, and what the check of plug-ins answers about it."""

from __future__ import annotations

import io
import json
from typing import Any

from testbed.core.spec.run_spec import Part, RunSpec
from testbed.worker.process.check import check
from topologies import lan


def spec_of(**given: Any) -> RunSpec:
    """Return a run of two workers and one step, with the given fields."""
    defaults: dict[str, Any] = {
        "topology": lan.build(workers=2),
        "workload": Part("digits", "testbed.worker.workloads.digits.Digits"),
        "strategy": Part("ddp", "testbed.worker.strategies.ddp.DDP"),
        "compressor": Part("none", "compressors.none.Uncompressed"),
        "device": Part("native", "testbed.core.device.Native"),
    }
    return RunSpec(steps=1, **(defaults | given))


def check_of(spec: RunSpec) -> tuple[int, dict[str, Any]]:
    """Return the exit status of the check, and its answer."""
    sink = io.StringIO()
    status = check(io.StringIO(json.dumps(spec.to_json())), sink)
    return status, json.loads(sink.getvalue())
