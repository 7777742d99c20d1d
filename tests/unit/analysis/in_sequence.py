"""A record of strategy=federated, made by hand: four clients of two workers, all links 8 Mbit/s, 40 ms one way.

A model takes 1 s of a link, an update half of one; a round takes 8 s.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testbed.analysis.record.record import Record, load
from testbed.core.record.run_directory import RunDir, write_json
from testbed.core.spec.paths import WIRE_RATIO
from testbed.core.spec.run_spec import UNCOMPRESSED, Part, RunSpec
from testbed.core.spec.topology import Topology
from topologies import star

RUN_ID = "20250102T030405Z-star-federated-none-0123abcd"
MODEL_BYTES = 1e6 / WIRE_RATIO
SERVER = {"compress": 0.5, "decompress": 0.2, "optimizer": 0.3, "exposed_communication": 7.0}
WORKERS = {
    1: {"forward": 3.0, "compress": 0.05, "decompress": 0.05, "optimizer": 0.1, "exposed_communication": 4.0},
    2: {"forward": 4.0, "compress": 0.1, "optimizer": 0.2, "exposed_communication": 3.0},
}


def events(rounds: int, lost_in: int | None) -> Iterator[dict[str, Any]]:
    for step in range(1, rounds + 1):
        for rank, phase_s in {0: SERVER, **WORKERS}.items():
            yield {
                "event": "step",
                "t_s": 8.0 * step,
                "rank": rank,
                "step": step,
                "step_s": sum(phase_s.values()),
                "phase_s": {"compress": 0.0, "decompress": 0.0, **phase_s},
                "payload_bytes": MODEL_BYTES / 2 if rank else 2 * MODEL_BYTES,
            }
        yield {
            "event": "federated_round",
            "t_s": 8.0 * step,
            "rank": 0,
            "step": step,
            "round": step - 1,
            "asked": 4,
            "came": 3 if lost_in == step - 1 else 4,
            "clients": [3, 5, 6, 9],
            "ranks": [1, 1, 2, 2],
            "elapsed_s": [1.0, 2.0, 1.0, 3.0],
        }


def topology() -> Topology:
    return star.build(workers=3, rate="8 Mbit/s", rtt="40 ms")


def make(
    root: Path, *, rounds: int = 3, lost_in: int | None = None, strategy: str = "federated", verdict: str = "valid"
) -> Record:
    run = RunDir.create(root, RUN_ID)
    spec = RunSpec(
        topology=topology(),
        workload=Part("digits", "testbed.worker.workloads.digits.Digits"),
        strategy=Part(strategy, "testbed.worker.strategies.federated.Federated"),
        compressor=UNCOMPRESSED,
        device=Part("native", "native"),
        steps=rounds,
    )
    run.events.write_text("".join(json.dumps(event) + "\n" for event in events(rounds, lost_in)))
    write_json(run.spec, spec.to_json())
    write_json(run.summary, {"schema_version": 1, "status": "completed", "verdict": verdict, "reasons": ["late"]})
    return load(run.path)
