"""Trainings one after another in one group of real ranks: starting processes costs more than a short training does.

As a program one rank of them. Arguments: rank, ranks, port, folder, in which `cases.json` says what to train.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from testbed.core.device.profile import Profile
from testbed.worker.communication.communicator import Communicator
from testbed.worker.interfaces.workload import parameters_crc32
from testbed.worker.training import capabilities
from testbed.worker.training.loop import Training
from testbed.worker.training.parts import build_parts
from tests.distributed.forked import Forked
from tests.distributed.harness import HANG_S, ROOT, TIMEOUT_S, make_spec, outputs, port_of_ones_own

Answers = list[dict[str, dict[str, Any]]]
"""By rank, by the name of the case."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A training."""

    name: str
    spec: dict[str, Any] = field(default_factory=dict)
    """Arguments of `make_spec`."""
    end: int = 6
    """How many steps it takes."""
    finishes: bool = True
    """Whether the strategy completes what is in flight after the last of them."""
    profile: dict[str, Any] | None = None
    """Of the device that paces it, as JSON."""


def play(cases: Sequence[Case], ranks: int, folder: Path, limit_s: float = HANG_S) -> Answers:
    """What all ranks answer, in processes of their own.

    Raises:
        AssertionError: one of them failed; shows its log.
    """
    (folder / "cases.json").write_text(json.dumps([asdict(case) for case in cases]))
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
        return [json.loads(out) for out in outputs(workers, limit_s)]


def train(case: Case, comm: Communicator, folder: Path) -> dict[str, Any]:
    """This rank's losses, what it sent, and its parameters' checksum in the end; they are kept in `folder`."""
    spec = make_spec(workers=comm.world_size, **case.spec)
    parts = build_parts(spec)
    profile = None if case.profile is None else Profile.from_json(case.profile)
    training = Training(spec, parts, comm, lambda message: None, profile)
    strategy, context = parts.strategy, training.context
    strategy.bind(context)
    comm.payload_bytes, losses = 0, []
    context.clock.restart(time.monotonic())
    for step in range(case.end):
        comm.step = step + 1
        batch, part = None, capabilities.part(strategy, comm.rank, comm.world_size)
        if part is not None:
            batch = parts.workload.batch(
                step, rank=part[0], world_size=part[1], batch_size=spec.batch_size, seed=spec.seed
            )
        training.bound.set_rate(step, training.steps)
        losses.append(strategy.step(batch, step).loss)
    capabilities.sync_parameters(strategy)
    if case.finishes:
        strategy.finish()
    torch.save(_flat(context.model), _file(folder, case.name, comm.rank))
    torch.save(_gradient(context.model), _file(folder, f"{case.name}, gradient", comm.rank))
    spent = context.clock.take()
    return {
        "losses": losses,
        "spent_s": spent,
        "notes": [event.to_json() for event in training._events],
        "crc32": parameters_crc32(context.model),
        "sent": comm.payload_bytes,
    }


def parameters(folder: Path, case: str, rank: int = 0) -> Tensor:
    """What `case` ended with."""
    flat: Tensor = torch.load(_file(folder, case, rank), weights_only=True)
    return flat


def gradient(folder: Path, case: str, rank: int = 0) -> Tensor:
    """What the optimizer was given in the last step of `case`."""
    return parameters(folder, f"{case}, gradient", rank)


def _gradient(model: nn.Module) -> Tensor:
    return torch.cat([torch.zeros_like(p).view(-1) if p.grad is None else p.grad.view(-1) for p in model.parameters()])


def _flat(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().view(-1) for p in model.parameters()])


def _file(folder: Path, name: str, rank: int) -> Path:
    return folder / f"{name} of rank {rank}.pt"


def _main() -> None:
    rank, ranks, port = map(int, sys.argv[1:4])
    folder = Path(sys.argv[4])
    torch.set_num_threads(1)
    comm = Communicator.connect(
        rank=rank, world_size=ranks, address="127.0.0.1", port=port, interface="lo", timeout_s=TIMEOUT_S
    )
    cases = [Case(**case) for case in json.loads((folder / "cases.json").read_text())]
    answer = {case.name: train(case, comm, folder) for case in cases}
    comm.close()
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    _main()
