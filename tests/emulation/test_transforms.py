"""A model that changes while containers train it over emulated links: paced before and after, and in the record."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulation.support import Longhaul, gone_within

WARM_UP, STEPS = 5, 12
COMPUTED = ("forward", "backward", "optimizer")


@pytest.mark.tier("slow")
def test_a_run_whose_model_is_factorised_is_paced_by_both_models(machine_lock: None, tmp_path: Path) -> None:
    asked = ("topo=wan1g", "workload=digits", "workers=2", f"steps={STEPS}", "evaluate_every=4")
    transform = ("transform=pufferfish", f"transform.warm_up_steps={WARM_UP}", "transform.rewarm_steps=3")
    longhaul = Longhaul(tmp_path / "runs", *asked, *transform)
    assert longhaul.wait() in (0, 5), longhaul.said
    run = longhaul.run
    gone_within(run.run_id)
    assert longhaul.summary()["status"] == "completed"
    events = list(run.read_events())
    (note,) = (event for event in events if event["event"] == "transform")
    assert note["step"] == WARM_UP
    assert note["parameters"] < note["parameters_before"] / 2
    for step in range(1, STEPS + 1):
        parameters = note["parameters_before" if step <= WARM_UP else "parameters"]
        sent = [e["payload_bytes"] for e in events if e["event"] == "step" and e["step"] == step]
        assert sent == [4 * parameters] * 2
    device = run.read_json(run.provenance)["device_profile"]
    assert sum(layer["parameters"] for layer in device["switched"]["layers"]) == note["parameters"]
    steps = [event for event in events if event["event"] == "step"]
    assert all(event["late_s"] is not None for event in steps)
    for rank in (0, 1):
        own = [event for event in steps if event["rank"] == rank]
        for profile, part in ((device, own[:WARM_UP]), (device["switched"], own[WARM_UP:])):
            # What is late is made good by what follows, a step later at most: together they cannot be shorter.
            computed = sum(event["phase_s"][phase] for event in part for phase in COMPUTED)
            assert computed >= 0.9 * len(part) * sum(profile[f"{phase}_s"] for phase in COMPUTED), part
    assert [event["step"] for event in events if event["event"] == "evaluation"] == [4, 8, 12]
    assert "Model transforms" in run.report.read_text()
