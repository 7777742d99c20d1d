"""One rank that probes its links and has plans chosen: prints what came of it as one JSON object.

Arguments: rank, port, region of each.
"""

from __future__ import annotations

import json
import sys

from testbed.core.errors import RunError
from testbed.core.parallelism.model import MeasuredLayer, ModelProfile
from testbed.core.parallelism.search import Options
from testbed.worker.communication.communicator import Communicator
from testbed.worker.methods.planner.decision import Wanted, decide
from testbed.worker.methods.planner.link_probe import probe
from tests.distributed.harness import TIMEOUT_S

rank, port, regions = int(sys.argv[1]), int(sys.argv[2]), tuple(sys.argv[3:])
comm = Communicator.connect(
    rank=rank, world_size=len(regions), address="127.0.0.1", port=port, interface="lo", timeout_s=TIMEOUT_S
)
measured_on: list[int] = []


def measured() -> ModelProfile:
    measured_on.append(rank)
    layers = tuple(
        MeasuredLayer(
            name=str(index), forward_s={1: 0.01}, parameter_bytes=1000, activation_bytes=1000, stored_bytes=1000
        )
        for index in range(len(regions))
    )
    return ModelProfile(layers=layers, optimizer_states=2)


found = probe(comm, regions, dilation=2.0)
answer = {"probe": found.event().to_json(), "probe_bytes": comm.payload_bytes}
wanted = {"options": Options(), "global_batch": 2 * len(regions)}
answer["decisions"] = []
for way in ("auto", "data_parallel"):
    decision = decide(comm, regions, Wanted(way=way, **wanted), measured)
    answer["decisions"].append([way, repr(decision.plan), [event.to_json() for event in decision.events]])
try:
    decide(comm, regions, Wanted(way="auto", memory_bytes=1, **wanted), measured)
except RunError as error:
    answer["refusal"] = list(error.faults)
print(json.dumps({**answer, "measured_on": measured_on}))
comm.close()
