"""Delays under jitter: what chance does to our own draws is no fault, what it cannot do is."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from testbed.core.spec.link_profile import JITTER_DISTRIBUTIONS
from testbed.core.spec.run_spec import Part, RunSpec
from testbed.core.spec.topology import Link
from testbed.orchestrator.emulation.shapers.delay import Delay, knot_s, spread_at
from testbed.orchestrator.emulation.shapers.impairments import VaryingDelay
from testbed.orchestrator.observation.verdict.judge import Judge
from topologies import two_regions

Event = dict[str, Any]
RUNS = 30


def spec(distribution: str) -> RunSpec:
    part = Part("x", "x.X")
    topology = two_regions.build(rate="100 Mbit/s", rtt="60 ms", jitter="5 ms", jitter_distribution=distribution)
    return RunSpec(topology=topology, workload=part, strategy=part, compressor=part, device=part, steps=3)


def drawn(link: Link, seed: int, shaper: str, times_s: list[float]) -> Iterator[tuple[float, float]]:
    """Forward and backward delays of probes at these times: by a delay line, or as netem does, each by itself."""
    if shaper == "nfqueue":
        forward, backward = VaryingDelay(link.forward, 2 * seed), VaryingDelay(link.backward, 2 * seed + 1)
        yield from ((forward.at(at_s), backward.at(at_s)) for at_s in times_s)
        return
    source = random.Random(seed)
    for _ in times_s:
        yield tuple(  # type: ignore[misc]
            way.asked_s + way.jitter_s * spread_at(way.distribution, source.random())
            for way in (Delay.of(link.forward), Delay.of(link.backward))
        )


def events(link: Link, seed: int, shaper: str, more_s: float = 0.0, swap: float = 0.0) -> Iterator[Event]:
    """What a run would record: 20 probes before training, one each half second of 60 s in it."""
    every_s = knot_s(link.forward.jitter_s)
    idle = list(drawn(link, seed, shaper, [every_s * index for index in range(20)]))
    names = {"t_s": -1.0, "event": "measurement", "name": link.name, "stage": "idle", "rate_bit_s": 100e6}
    rtt_s = sum(map(sum, idle)) / 20 + more_s
    for source, target, side, sign in ((link.a, link.b, 0, 1), (link.b, link.a, 1, -1)):
        delay_s = sum(pair[side] for pair in idle) / 20 + more_s / 2 + sign * swap
        ends = {"from": source, "to": target, "probes": 20, "probes_span_s": 20 * every_s}
        yield {**names, **ends, "rtt_s": rtt_s, "delay_s": delay_s}
    times_s = [10 + index / 2 for index in range(120)]
    for at_s, (forward_s, backward_s) in zip(times_s, drawn(link, seed, shaper, times_s), strict=True):
        forward_s, backward_s = forward_s + more_s / 2 + swap, backward_s + more_s / 2 - swap
        ways = {"forward_s": forward_s, "backward_s": backward_s, "rtt_s": forward_s + backward_s}
        yield {"t_s": at_s, "event": "rtt", "name": link.name, **ways}


def verdict(distribution: str, seed: int, shaper: str, **wrong: float) -> tuple[str, list[str]]:
    asked = spec(distribution)
    judge = Judge(asked)
    for event in events(asked.topology.wan_links[0], seed, shaper, **wrong):
        judge.add(event)
    return judge.verdict()


@pytest.mark.parametrize("shaper", ["nfqueue", "netem"])
@pytest.mark.parametrize("distribution", JITTER_DISTRIBUTIONS)
def test_our_own_draws_are_valid(distribution: str, shaper: str) -> None:
    for seed in range(RUNS):
        assert verdict(distribution, seed, shaper) == ("valid", [])


@pytest.mark.parametrize("shaper", ["nfqueue", "netem"])
@pytest.mark.parametrize("distribution", JITTER_DISTRIBUTIONS)
def test_a_delay_that_jitter_does_not_explain_is_found(distribution: str, shaper: str) -> None:
    found, reasons = verdict(distribution, 1, shaper, more_s=0.06)
    assert found == "invalid"
    assert sum("round trip" in reason for reason in reasons) == 2, reasons  # idle, and least in training
    found, reasons = verdict(distribution, 1, shaper, swap=0.029)
    assert found == "invalid"
    assert all("one-way" in reason for reason in reasons) and len(reasons) >= 3, reasons


def test_a_mean_off_by_a_fifth_of_the_delay_is_found_from_twenty_probes() -> None:
    """Uniform jitter has the smallest doubt: 4 * 5 ms / sqrt(3) / sqrt(12)."""
    found, reasons = verdict("uniform", 1, "nfqueue", more_s=0.012)
    assert found != "valid" and any("(idle)" in reason for reason in reasons), reasons
