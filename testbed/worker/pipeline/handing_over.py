"""What the optimizer keeps, given to every rank: the next plan has others train what this one's ranks did."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, nn

from testbed.worker.clock import WAITING
from testbed.worker.strategy import WorkerContext
from testbed.worker.workload import trained


def hand_over(context: WorkerContext, optimizer: torch.optim.Optimizer, told: Collection[nn.Parameter]) -> None:
    """Momenta and counts of steps of all trained parameters, float32, in one all-reduce to which of each parameter one
    rank adds what it has, and all others zeros. All ranks at once, after a step.

    Args:
        told: that this rank adds.

    Raises:
        CollectiveError: some rank did not take part.
    """
    parameters, names = trained(context.model), _kept(context)
    sizes = [parameter.numel() if whole else 1 for parameter in parameters for whole in names.values()]
    flat = torch.zeros(sum(sizes))
    places = iter(flat.split(sizes))
    mine = {id(parameter) for parameter in told}
    slots: list[tuple[nn.Parameter, dict[str, Tensor]]] = []
    for parameter in parameters:
        slots.append((parameter, {name: next(places) for name in names}))
        if id(parameter) in mine:
            for name, place in slots[-1][1].items():
                place.copy_(optimizer.state[parameter][name].view(-1))
    context.clock.mark()
    with context.clock.phase(WAITING):
        context.comm.all_reduce(flat).wait()
    for parameter, found in slots:
        optimizer.state[parameter] = {
            name: values.clone().view(parameter.shape if names[name] else ()) for name, values in found.items()
        }


def _kept(context: WorkerContext) -> dict[str, bool]:
    """What the workload's optimizer keeps of a parameter, by name, and whether it is a value for each of its own."""
    example = nn.Parameter(torch.zeros(2))
    optimizer = context.workload.optimizer([example])
    example.grad = torch.zeros(2)
    optimizer.step()
    return {name: values.shape == example.shape for name, values in optimizer.state[example].items()}
