"""The end of a strategy's training, and how replicas that differ become one model: `Agreement.MEAN_AT_END`."""

from __future__ import annotations

import torch

from testbed.worker.interfaces.strategy import Agreement, Strategy, WorkerContext
from testbed.worker.interfaces.workload import trained


def finish(strategy: Strategy, context: WorkerContext) -> None:
    """Complete what `strategy` has in flight, and have replicas that differ agree."""
    strategy.finish()
    if strategy.agreement is Agreement.MEAN_AT_END:
        average_parameters(context)


@torch.no_grad()
def average_parameters(context: WorkerContext) -> None:
    """Make the trained parameters of every rank the mean over ranks, the same bits on all; all ranks at once."""
    parameters = trained(context.model)
    flat = torch.cat([parameter.detach().view(-1) for parameter in parameters])
    (total,) = context.comm.all_reduce(flat).wait()
    pieces = total.div_(context.world_size).split([parameter.numel() for parameter in parameters])
    for parameter, piece in zip(parameters, pieces, strict=True):
        parameter.copy_(piece.view_as(parameter))
