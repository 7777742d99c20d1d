"""A model that is in no table of ours: traced here by torch.profiler, imported, and replayed under torchrun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

from experiments.scripts.note_parameters import note_parameters
from testbed.core.device.timelines.timeline_file import read_timeline
from testbed.core.errors import EXIT_COMPLETED
from testbed.core.models.model_file import read_model
from testbed.orchestrator.cli.main import main
from testbed.orchestrator.machine.clone import CLONE
from tests.distributed.harness import port_of_ones_own

LIMIT_S = 240.0


class Mixed(nn.Module):
    """A frozen layer, an LSTM, attention, an unused layer, and an output tied to the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.frozen = nn.Linear(16, 16).requires_grad_(False)
        self.recurrent = nn.LSTM(16, 16, batch_first=True)
        self.unused = nn.Linear(16, 16)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.output = nn.Linear(16, 50, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        states, _ = self.recurrent(self.frozen(self.embedding(tokens)))
        found: torch.Tensor = self.output(self.block(states)).flatten(0, 1)
        return found


@pytest.mark.parametrize("marked", [True, False])
def test_a_traced_model_becomes_a_timeline_and_a_table(marked: bool, tmp_path: Path) -> None:
    _traced(tmp_path, marked)
    timeline, table = read_timeline(tmp_path / "mine.json"), read_model(tmp_path / "mine.model.json")
    model = Mixed()
    left = {
        name: tuple(p.shape) for name, p in model.named_parameters() if name.split(".")[0] not in ("frozen", "unused")
    }
    assert {name: shape for name, shape, _ in timeline.gradient_ready_s} == left
    order = ["embedding", "recurrent", "block.self_attn", "block.self_attn.out_proj"]
    order += ["block.norm1", "block.linear1", "block.linear2", "block.norm2"]  # modules list norm1 after linear2
    assert [name for name, *_ in timeline.forward_start_s] == [layer.name for layer in table.layers] == order
    assert timeline.gradient_ready_s[-1][0] == "embedding.weight"  # tied: complete where backward ends
    assert timeline.optimizer == "AdamW" and timeline.provenance["steps"] == (2 if marked else 3)


def test_its_replay_trains_under_torchrun(tmp_path: Path) -> None:
    _traced(tmp_path, True)
    words = ["topo=lan", "steps=3", "batch_size=4", "workload=replay", f"workload.model={tmp_path}/mine.model.json"]
    words += ["device=profile", f"device.file={tmp_path}/mine.json"]
    with port_of_ones_own(and_next=True) as port:
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
        command += ["--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1", "-m", "testbed.worker", "torchrun"]
        command += ["--port", str(port), "--runs", str(tmp_path / "runs"), *words]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=CLONE, env=environment, text=True, capture_output=True, timeout=LIMIT_S)
    assert "longhaul: ended" in done.stderr + done.stdout, done.stdout + done.stderr
    (run,) = (tmp_path / "runs").iterdir()  # its verdict is the machine's: a step lasts ten milliseconds
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["status"], summary["steps"]) == ("completed", 3)
    gradient_bytes = 4 * read_model(tmp_path / "mine.model.json").parameters
    assert summary["bytes"]["payload"] >= 3 * gradient_bytes


def _traced(folder: Path, marked: bool) -> None:
    """Trace some steps, marked by the profiler or not, and import them."""
    torch.manual_seed(0)
    model = Mixed()
    optimizer = torch.optim.AdamW(parameter for parameter in model.parameters() if parameter.requires_grad)
    tokens = torch.randint(0, 50, (4, 8))
    plan = {"schedule": schedule(wait=0, warmup=1, active=3, repeat=1)} if marked else {}
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, **plan) as profiler:
        for _ in range(4):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(tokens), tokens.flatten()).backward()
            note_parameters(
                model,
                str(folder / "parameters.json"),
                batch_size=4,
                sample="8 tokens",
                precision="fp32",
                device="a CPU",
            )
            optimizer.step()
            if marked:
                profiler.step()
    profiler.export_chrome_trace(str(folder / "trace.json"))
    words = ["--trace", str(folder / "trace.json"), "--parameters", str(folder / "parameters.json")]
    assert main(["profile", *words, "-o", str(folder / "mine.json")]) == EXIT_COMPLETED
