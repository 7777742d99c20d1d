"""The same words under torchrun and on an emulated network: the same training."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.core.record.run_directory import RunDir
from testbed.orchestrator.machine.clone import CLONE
from tests.distributed.harness import port_of_ones_own
from tests.emulation.support import END_TIMEOUT_S, Longhaul, whole_events

WORDS = ("topo=wan1g", "workload=digits", "compressor=topk", "workers=2", "steps=6", "evaluate_every=3", "seed=5")
SAME = {
    "step": ("rank", "step", "loss", "payload_bytes"),
    "evaluation": ("rank", "step", "value"),
    "done": ("rank", "parameters_crc32"),
}
"""By event, what does not depend on time."""


def _facts(run: RunDir) -> dict[str, list[tuple[object, ...]]]:
    events = whole_events(run)
    return {
        kind: sorted(tuple(event[key] for key in keys) for event in events if event["event"] == kind)
        for kind, keys in SAME.items()
    }


@pytest.mark.tier("test")
def test_torchrun_gives_the_losses_of_the_emulated_run_of_the_same_spec(tmp_path: Path, machine_lock: None) -> None:
    emulated = Longhaul(tmp_path / "emulated", *WORDS)
    assert emulated.wait() in (0, 5), emulated.said
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "testbed.worker"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with port_of_ones_own(and_next=True) as port:
        command += ["torchrun", "--port", str(port), "--runs", str(tmp_path / "measured"), *WORDS]
        done = subprocess.run(
            command, cwd=CLONE, env=environment, text=True, capture_output=True, timeout=END_TIMEOUT_S, check=False
        )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    (path,) = (tmp_path / "measured").iterdir()
    measured = RunDir(path)
    assert measured.read_json(measured.spec)["hash"] == emulated.run.read_json(emulated.run.spec)["hash"]
    facts = _facts(measured)
    assert facts == _facts(emulated.run)
    assert len(facts["step"]) == 12 and len(facts["done"]) == 2
    kinds = [run.read_json(run.summary)["kind"] for run in (emulated.run, measured)]
    assert kinds == ["emulated", "measured"]
