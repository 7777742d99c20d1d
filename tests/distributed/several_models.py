"""One rank of scripts that give one hook to several models, or wrap a model over some ranks. Prints one JSON object.

Arguments: names of compressors. Rank, world size and address come from torchrun's environment.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import torch.distributed as dist  # noqa: TID251 - it plays a user's script
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from testbed.worker import ddp_hook

STEPS = 8


def trained(name: str, *, shared: bool, together: bool) -> list[torch.Tensor]:
    """Parameters of two models with one hook for both, or one each; with one backward for both, or in turns."""
    torch.manual_seed(0)
    plain = [nn.Sequential(nn.Linear(40, 30), nn.Linear(30, 20)), nn.Linear(40, 20)]
    hooks = [ddp_hook(name)] * 2 if shared else [ddp_hook(name), ddp_hook(name)]
    wrapped = [DistributedDataParallel(model, bucket_cap_mb=0.004) for model in plain]
    for model, hook in zip(wrapped, hooks, strict=True):
        model.register_comm_hook(None, hook)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.05) for model in wrapped]
    draw = torch.Generator().manual_seed(1 + dist.get_rank())
    for _ in range(STEPS):
        batch = torch.randn(16, 40, generator=draw)
        losses = [((model(batch) - wanted) ** 2).mean() for model, wanted in zip(wrapped, (1.0, -1.0), strict=True)]
        for optimizer in optimizers:
            optimizer.zero_grad()
        for loss in [sum(losses)] if together else losses:
            loss.backward()
        for optimizer in optimizers:
            optimizer.step()
    return [parameter.detach().clone() for model in plain for parameter in model.parameters()]


def differences() -> dict[str, list[float]]:
    found = {}
    for name in sys.argv[1:]:
        found[name] = []
        for together in (False, True):
            apart, shared = (trained(name, shared=one, together=together) for one in (False, True))
            found[name].append(max(float((a - b).abs().max()) for a, b in zip(apart, shared, strict=True)))
    return found


def refusal(model: DistributedDataParallel, state: Any = None) -> str:
    model.register_comm_hook(state, ddp_hook("fp16"))
    try:
        model(torch.ones(2, 4)).sum().backward()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "reduced"


def tied() -> str:
    """Two models that share all parameters of a bucket."""
    shared, hook = nn.Linear(4, 4), ddp_hook("none")
    models = [DistributedDataParallel(nn.Sequential(shared, nn.Linear(4, 2))) for _ in range(2)]
    only = DistributedDataParallel(shared)
    for model in (*models, only):
        model.register_comm_hook(None, hook)
    try:
        only(torch.ones(2, 4)).sum().backward()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "reduced"


dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
alone = [dist.new_group([one]) for one in range(world_size)]
everybody = dist.new_group(list(range(world_size)))
answer = {
    "differences": differences(),
    "alone": refusal(DistributedDataParallel(nn.Linear(4, 4), process_group=alone[rank])),
    "state": refusal(DistributedDataParallel(nn.Linear(4, 4)), alone[rank]),
    "everybody": refusal(DistributedDataParallel(nn.Linear(4, 4), process_group=everybody), everybody),
    "tied": tied(),
}
dist.barrier()
dist.destroy_process_group()
sys.stdout.write(json.dumps(answer))
