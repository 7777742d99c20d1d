"""A plain DDP script in the style of torch's tutorial, which trains with the hook under torchrun."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.bare_venv import clean_environment

LIMIT_S = 200.0
STEPS, RANKS, VALUES = 30, 2, 1029
TUTORIAL = """
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.optim as optim
from torch.nn.parallel import DistributedDataParallel as DDP

from testbed.worker import ddp_hook


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(10, 64)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(64, 5)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def demo_basic(name):
    torch.manual_seed(0)
    ddp_model = DDP(ToyModel())
    hook = ddp_hook(name)
    ddp_model.register_comm_hook(None, hook)
    loss_fn = nn.MSELoss()
    optimizer = optim.SGD(ddp_model.parameters(), lr=0.05)
    torch.manual_seed(1 + dist.get_rank())
    inputs, labels = torch.randn(20, 10), torch.randn(20, 5)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = loss_fn(ddp_model(inputs), labels)
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    total = sum(float(p.double().sum()) for p in ddp_model.parameters())
    learnt = losses[-1] < 0.9 * losses[0]
    sys.stdout.write(f"RESULT {name} {learnt} {total:.12g} {hook.payload_bytes}\\n")  # at once: ranks share the pipe
    sys.stdout.flush()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    for name in sys.argv[1:]:
        demo_basic(name)
    dist.destroy_process_group()
"""


def trained(python: Path, folder: Path, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the last lines of both ranks, by compressor, of a training with each in turn."""
    script = folder / "toy.py"
    script.write_text(TUTORIAL)
    command = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS), script, *names]
    done = subprocess.run(
        command, cwd=folder, env=clean_environment(), capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    told = [line.split() for line in done.stdout.splitlines() if line.startswith("RESULT")]
    return {name: [" ".join(rest) for _, of, *rest in told if of == name] for name in names}


def assert_trained(found: Mapping[str, Sequence[str]], shares: Mapping[str, float]) -> None:
    """Each has learnt, on both ranks the same, and sent at most a share of the uncompressed bytes."""
    assert set(found) == set(shares)
    for name, lines in found.items():
        assert len(lines) == RANKS and lines[0] == lines[1], (name, lines)
        learnt, _, sent_bytes = lines[0].split()
        assert learnt == "True" and 0 < int(sent_bytes) <= shares[name] * STEPS * RANKS * 4 * VALUES, (name, lines)
