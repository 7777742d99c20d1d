"""One rank of a script in a run: takes the run's compressor and prints what was sent. Prints nothing else."""

from __future__ import annotations

import torch
import torch.distributed as dist  # noqa: TID251 - it plays a user's script
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from testbed.worker import ddp_hook

dist.init_process_group("gloo")
model = DistributedDataParallel(nn.Linear(50, 21))
hook = ddp_hook()
model.register_comm_hook(None, hook)
for _ in range(4):
    model(torch.ones(2, 50)).sum().backward()
print(hook.payload_bytes)
dist.destroy_process_group()
