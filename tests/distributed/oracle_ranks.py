"""Whole trainings one after another in one group of real ranks on loopback, without emulation.

As a program one rank of them. Arguments: rank, ranks, port, folder, in which `specs.json` says what to train.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from testbed.core.spec.run_spec import RunSpec
from testbed.worker.communication.communicator import Communicator
from testbed.worker.training.loop import Training
from testbed.worker.training.parts import build_parts
from tests.distributed.forked import Forked
from tests.distributed.harness import HANG_S, ROOT, TIMEOUT_S, outputs, port_of_ones_own

Events = list[dict[str, Any]]


def train_all(specs: Mapping[str, RunSpec], folder: Path) -> dict[str, Events]:
    """Every event of all ranks, by the name of the spec; specs of as many workers share a group.

    Raises:
        AssertionError: A rank failed; shows its log.
    """
    found: dict[str, Events] = {name: [] for name in specs}
    for ranks in sorted({spec.workers for spec in specs.values()}):
        group = {name: spec.to_json() for name, spec in specs.items() if spec.workers == ranks}
        for answer in _play(group, ranks, folder):
            for name, events in answer.items():
                found[name] += events
    return found


def _play(specs: dict[str, Any], ranks: int, folder: Path) -> list[dict[str, Events]]:
    (folder / "specs.json").write_text(json.dumps(specs))
    with port_of_ones_own() as port:
        workers = [
            Forked(
                Path(__file__),
                [str(rank), str(ranks), str(port), str(folder)],
                environment={"PYTHONPATH": str(ROOT)},
                cwd=ROOT,
            )
            for rank in range(ranks)
        ]
        return [json.loads(out) for out in outputs(workers, HANG_S)]


def _train(spec: RunSpec, comm: Communicator) -> Events:
    events: Events = []
    training = Training(spec, build_parts(spec), comm, events.append)
    training.bind()
    events.append(training.describe().to_json())
    events.append(training.run(time.monotonic()).to_json())
    return events


def _main() -> None:
    rank, ranks, port = map(int, sys.argv[1:4])
    torch.set_num_threads(1)
    comm = Communicator.connect(
        rank=rank, world_size=ranks, address="127.0.0.1", port=port, interface="lo", timeout_s=TIMEOUT_S
    )
    specs = json.loads((Path(sys.argv[4]) / "specs.json").read_text())
    answer, begun_s = {}, time.monotonic()
    for name, data in specs.items():
        answer[name] = _train(RunSpec.from_json(data), comm)
        sys.stderr.write(f"{name} {time.monotonic() - begun_s:.2f}\n")
    comm.close()
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    _main()
