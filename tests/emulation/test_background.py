"""Background traffic: the flows of the seed, at the asked load, and counted as the link's queue counts them."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from testbed.core.spec.schedule import Background
from testbed.orchestrator.emulation.traffic.arrivals import flows, most_concurrent
from tests.emulation.support import run_inside

LINK: dict[str, Any] = {"rate_bit_s": 50e6, "rtt_s": 0.02}
LATE_S = 0.5
"""A flow may begin this much late: the machine is shared."""


def run(
    backgrounds: list[dict[str, Any]], *, seconds: float, dilation: float = 1, tcp: str = "tuned", **link: float
) -> Any:
    asked = {"link": {**LINK, **link}, "backgrounds": backgrounds, "seconds": seconds, "dilation": dilation, "tcp": tcp}
    return run_inside("inside_background.py", json.dumps(asked))


def background(source: str, load_ratio: float, mean_flow_bytes: int) -> dict[str, Any]:
    return {
        "link": "a-b",
        "source": source,
        "load_ratio": load_ratio,
        "mean_flow_bytes": mean_flow_bytes,
        "seed": 3,
    }


def assert_the_seeds_flows(asked: dict[str, Any], found: Any) -> None:
    """At every sample exactly those flows had been offered that begin before it, neither more nor others."""
    for sample in found["samples"]:
        event = sample["events"][asked["source"]]
        count = event["flows"] + event["refused"]
        seeds = list(itertools.islice(flows(Background(**asked), LINK["rate_bit_s"]), count + 1))
        assert event["offered_bytes"] == sum(size for _, size in seeds[:count])
        first_s, last_s = sample["between_s"]
        assert seeds[count - 1][0] <= last_s
        assert seeds[count][0] >= first_s - LATE_S


def assert_counted_as_by_the_queue(found: Any) -> None:
    for source, queue_bytes in found["queue_bytes"].items():
        assert found["wire_bytes"][source] == pytest.approx(queue_bytes, rel=0.01)


def test_both_directions_have_their_load_and_their_seeds_flows(machine_lock: None) -> None:
    asked = [background("a", 0.3, 5000), background("b", 0.1, 5000)]
    found = run(asked, seconds=6)
    for one in asked:
        assert_the_seeds_flows(one, found)
        event = found["samples"][-1]["events"][one["source"]]
        load_bit_s = event["wire_bytes"] * 8 / found["samples"][-1]["between_s"][1]
        assert load_bit_s / LINK["rate_bit_s"] == pytest.approx(one["load_ratio"], rel=0.1)
        assert (event["refused"], event["failed"]) == (0, 0)
        assert event["finished"] > 0.95 * event["flows"]
    assert_counted_as_by_the_queue(found)
    (fault,) = found["after_its_death"]
    assert "the background traffic process ended" in fault


def test_an_overloaded_link_refuses_flows_and_counts_what_passed_its_queue(machine_lock: None) -> None:
    asked = background("a", 2.0, 20_000)
    found = run([asked], seconds=4, tcp="stock")
    assert_the_seeds_flows(asked, found)
    assert_counted_as_by_the_queue(found)
    event = found["samples"][-1]["events"]["a"]
    most = most_concurrent(Background(**asked), LINK["rate_bit_s"], LINK["rtt_s"])
    assert found["drops"]["a"] > 100, "the queue never overflowed, so the test shows nothing"
    assert event["refused"] > 100
    assert event["flows"] - event["finished"] - event["failed"] <= most
    assert event["wire_bytes"] * 8 / found["samples"][-1]["between_s"][1] > 0.9 * LINK["rate_bit_s"]


def test_a_dilated_run_has_the_same_flows_on_the_emulated_clock(machine_lock: None) -> None:
    asked = background("a", 0.3, 20_000)
    assert_the_seeds_flows(asked, run([asked], seconds=2, dilation=2, tcp="reno"))


def test_what_a_link_loses_and_doubles_on_purpose_is_taken_out_of_the_count(machine_lock: None) -> None:
    found = run([background("a", 0.4, 100_000)], seconds=5, loss_ratio=0.06, duplicate_ratio=0.02)
    assert found["drops"]["a"] == 0, "the queue dropped as well, so the test shows less than it says"
    # as it arrives it would be 4% too little; five standard deviations of the losses are 1%
    assert found["wire_bytes"]["a"] == pytest.approx(found["queue_bytes"]["a"], rel=0.015)
    # the options of selective acknowledgements are not counted: up to 36 bytes on 66
    assert 0.7 * found["queue_bytes"]["b"] < found["wire_bytes"]["b"] < 1.05 * found["queue_bytes"]["b"]
