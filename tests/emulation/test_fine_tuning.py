"""A model from one run to the next, through containers that see neither run, and adapters over an emulated link."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.emulation.support import Longhaul, gone_within

STEPS = 12
ADAPTERS = 4 * (128 + 128) + 4 * (128 + 128)


@pytest.mark.tier("slow")
def test_a_run_keeps_its_model_and_another_trains_adapters_beside_it(machine_lock: None, tmp_path: Path) -> None:
    asked = ("topo=wan1g", "workload=sensors", "workers=2", f"steps={STEPS}", "evaluate_every=6", "checkpoint=last")
    first = Longhaul(tmp_path / "runs", *asked)
    assert first.wait() in (0, 5), first.said
    gone_within(first.run.run_id)
    digest = hashlib.sha256(first.run.model.read_bytes()).hexdigest()
    (kept,) = (e["detail"] for e in first.run.read_events() if e["event"] == "schedule" and e["what"] == "kept")
    assert digest in kept
    lora = ("transform=lora", "transform.rank=4", 'transform.layers=["0","5"]')
    second = Longhaul(tmp_path / "later", *asked, *lora, f"start_from={first.run.path}")
    assert second.wait() in (0, 5), second.said
    gone_within(second.run.run_id)
    spec = second.run.read_json(second.run.spec)
    assert (spec["start_from"], spec["start_hash"]) == (str(first.run.model.resolve()), digest)
    events = list(second.run.read_events())
    (note,) = (event for event in events if event["event"] == "transform")
    assert (note["step"], note["parameters"]) == (0, ADAPTERS)
    sent = [event["payload_bytes"] for event in events if event["event"] == "step"]
    assert sent == [4 * ADAPTERS] * (2 * STEPS)
    before, after = (
        [event["loss"] for event in run.read_events() if event["event"] == "step" and event["step"] == 1]
        for run in (first.run, second.run)
    )
    assert max(after) < min(before)
    assert "Before the first step" in second.run.report.read_text()
    assert second.run.model.stat().st_size == first.run.model.stat().st_size
