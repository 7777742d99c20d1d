"""Distributed K-FAC in containers over emulated links: what was sent is what the plan in the record says."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.core.costs.kfac_plan import broadcast_bytes
from testbed.core.device.factored_layer import Factor
from tests.emulation.support import Longhaul, gone_within

WORKERS = 4
PACED = ("device=paced", "device.step_s=0.2")
# Its links carry packets smaller than usual ones, which bursts that measure them must heed.
# An inverse of the larger factors takes 0.13 s, which is more than to send one: so some inverses are sent.
SPD = (
    *("topo=wan1g", "topo.mtu=1400", "workload=sensors", "batch_size=8", "steps=4", "evaluate_every=1000", *PACED),
    "device.work_s={factor: 0.2, inverse: 0.8, precondition: 0.1}",
)
PAD = (
    *("topo=lan", "workload=replay", "workload.model=resnet18", "workload.scale=50", "steps=4", *PACED),
    "device.work_s={factor: 0.2, inverse: 0.4}",
)


@pytest.mark.parametrize(
    ("strategy", "asked"),
    [
        pytest.param("spd_kfac", SPD, id="spd_kfac"),
        pytest.param("pad_kfac", PAD, id="pad_kfac", marks=pytest.mark.tier("slow")),
    ],
)
def test_a_run_sends_what_its_plan_says_and_takes_the_devices_time(
    strategy: str, asked: tuple[str, ...], machine_lock: None, tmp_path: Path
) -> None:
    longhaul = Longhaul(tmp_path / "runs", f"strategy={strategy}", f"workers={WORKERS}", *asked)
    assert longhaul.wait() in (0, 5), longhaul.said
    run = longhaul.run
    gone_within(run.run_id)
    summary, events = longhaul.summary(), list(run.read_events())
    assert summary["status"] == "completed"
    (plan,) = (event for event in events if event["event"] == "plan")
    assert sum(plan["groups"]) == len(plan["factors"])
    steps = [event for event in events if event["event"] == "step"]
    device = run.read_json(run.provenance)["device_profile"]
    scale = device["factored"][0]["scale"]
    factors = [Factor(f["name"][:-2], f["name"][-1], f["dimension"], scale=scale) for f in plan["factors"]]
    ways = 1 if strategy == "pad_kfac" else 2  # a sum that stays with the owner, and one that comes back
    owned = [f for f, one in zip(factors, plan["factors"], strict=True) if one["owner"] is not None]
    expected = ways * broadcast_bytes(sum(f.elements for f in factors), WORKERS)
    expected += broadcast_bytes(sum(f.elements for f in owned), WORKERS)
    expected += summary["bytes"]["dense"] // summary["steps"]
    for number in range(2, 5):
        sent = sum(event["payload_bytes"] for event in steps if event["step"] == number)
        assert sent == pytest.approx(expected, rel=0.001)  # traces, a few bytes
    least_s = sum(piece["seconds"] for piece in device["work"] if piece["kind"] == "factor")
    assert least_s == pytest.approx(0.2)
    for event in steps:
        assert event["phase_s"]["optimizer"] >= 0.8 * least_s, event
    owners = {factor["owner"] for factor in plan["factors"]}
    assert owners == {*range(WORKERS), *([] if strategy == "pad_kfac" else [None])}
