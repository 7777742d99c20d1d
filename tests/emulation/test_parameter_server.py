"""A server and its clients in containers, over the uplinks of a star: what is sent is what crosses the server's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulation.support import Longhaul, gone_within

WORKERS, STEPS, LOCAL_STEPS = 4, 6, 3
# Time enough for a step of all clients on two cores, so that a run is hardly slowed.
PACED = ("device=paced", "device.step_s=0.1")


@pytest.mark.parametrize("compressor", [pytest.param("none", marks=pytest.mark.tier("slow")), "sz3"])
def test_rounds_over_a_star_send_what_they_say(compressor: str, machine_lock: None, tmp_path: Path) -> None:
    asked = ("topo=star", "topo.rate='200 Mbit/s'", "workload=digits", f"workers={WORKERS}", f"steps={STEPS}")
    server = ("strategy=parameter_server", f"strategy.local_steps={LOCAL_STEPS}", f"compressor={compressor}")
    longhaul = Longhaul(tmp_path / "runs", *asked, *server, *PACED, "evaluate_every=6")
    assert longhaul.wait() in (0, 5), longhaul.said
    run = longhaul.run
    gone_within(run.run_id)
    assert longhaul.summary()["status"] == "completed"
    events = list(run.read_events())
    rounds = [event for event in events if event["event"] == "round"]
    assert [event["round"] for event in rounds] == list(range(STEPS // LOCAL_STEPS))
    assert all(event["clients"] == WORKERS - 1 and not event["left"] for event in rounds)
    raw_bytes = 4 * next(event["parameters"] for event in events if event["event"] == "model")
    for event in rounds:
        share = event["update_bytes"] / ((WORKERS - 1) * raw_bytes)
        assert share < 0.5 if compressor == "sz3" else share == 1
    steps = [event for event in events if event["event"] == "step"]
    assert all((event["loss"] is None) == (event["rank"] == 0) for event in steps)
    done = [event for event in events if event["event"] == "done"]
    assert len({event["parameters_crc32"] for event in done}) == 1
    sent = sum(event["payload_bytes"] for event in steps if event["rank"] == 0)
    sent += sum(event["finish_payload_bytes"] for event in done if event["rank"] == 0)
    wire = [e["wire_bytes"] for e in events if e["event"] == "link" and e["wan"] and e["from"] == "site-0"]
    assert sent < wire[-1] < 1.15 * sent + 2**20


@pytest.mark.tier("slow")  # two runs; tests/distributed/test_parameter_server_regions.py counts what ranks send
def test_a_regions_server_sends_one_model_and_one_update_over_the_wan(machine_lock: None, tmp_path: Path) -> None:
    crossed = {}
    for serves in ("false", "true"):
        asked = ("topo=wan1g", "workload=sensors", "workers=6", f"steps={STEPS}", "compressor=none")
        server = (
            "strategy=parameter_server",
            f"strategy.local_steps={LOCAL_STEPS}",
            f"strategy.region_servers={serves}",
        )
        longhaul = Longhaul(tmp_path / serves, *asked, *server, *PACED)
        assert longhaul.wait() in (0, 5), longhaul.said
        run = longhaul.run
        gone_within(run.run_id)
        assert longhaul.summary()["status"] == "completed"
        events = list(run.read_events())
        assert len({event["parameters_crc32"] for event in events if event["event"] == "done"}) == 1
        relayed = [event for event in events if event["event"] == "region_round"]
        assert [event["clients"] for event in relayed] == ([2] * (STEPS // LOCAL_STEPS) if serves == "true" else [])
        ends = {e["from"]: e["wire_bytes"] for e in events if e["event"] == "link" and e["wan"]}
        crossed[serves] = min(ends.values()), max(ends.values())
    raw_bytes = 4 * next(event["parameters"] for event in events if event["event"] == "model")
    rounds = STEPS // LOCAL_STEPS
    for least, most, crossings in ((*crossed["false"], 3), (*crossed["true"], 1)):
        assert least > rounds * crossings * raw_bytes
        assert most < 1.25 * (rounds + 1) * crossings * raw_bytes + 2**18
