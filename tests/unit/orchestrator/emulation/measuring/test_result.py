"""What is refused before training, and in whose terms it is told."""

from __future__ import annotations

import dataclasses
import random
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.core.errors import RunError
from testbed.core.spec.link_profile import JITTER_DISTRIBUTIONS, LinkProfile
from testbed.core.spec.topology import Link, symmetric
from testbed.orchestrator.emulation.kernel import tc
from testbed.orchestrator.emulation.links.port import Port
from testbed.orchestrator.emulation.measuring.prober import Prober
from testbed.orchestrator.emulation.measuring.result import ProbeResult
from testbed.orchestrator.emulation.shapers.delay import Delay, spread_at
from testbed.orchestrator.emulation.shapers.shaper import Hop, Shaper, asked_of


def wan(**fields: Any) -> Link:
    values = {"rate_bit_s": 1e9, "rtt_s": 0.067, "source": "test", **fields}
    return symmetric("us-eu", "us", "eu", wan=True, **values)


def ports(link: Link, dilation: float = 1.0) -> list[Port]:
    nothing: Any = None
    return [
        Port(link, a, b, nothing, "x", 1, profile, tc.rate_settings(profile, link.rtt_s, dilation), dilation=dilation)
        for a, b, profile in link.directions()
    ]


def probes(link: Link, forward_s: list[float], backward_s: list[float], every_s: float = 0.01) -> ProbeResult:
    measured = ProbeResult("idle")
    both = [f + b for f, b in zip(forward_s, backward_s, strict=True)]
    span_s = every_s * len(both)
    measured.add_probes(link, {"rtt_s": both, "forward_s": forward_s, "backward_s": backward_s, "span_s": span_s})
    return measured


def test_a_delay_on_the_wrong_way_is_a_fault_of_both_ways() -> None:
    link = wan()
    assert probes(link, [0.0336] * 20, [0.0335] * 20).faults(ports(link)) == []
    assert probes(link, [0.067] * 20, [0.0001] * 20).faults(ports(link)) == [
        "link us-eu from us to eu: asked a one-way delay of 33.5 ms, measured 67 ms (idle)",
        "link us-eu from eu to us: asked a one-way delay of 33.5 ms, measured 100 us (idle)",
    ]


def test_swapped_delays_are_found() -> None:
    slanted = dataclasses.replace(wan(), backward=LinkProfile(rate_bit_s=1e9, delay_s=0.01, source="test"))
    assert len(probes(slanted, [0.01] * 20, [0.0335] * 20).faults(ports(slanted))) == 2
    entry = probes(slanted, [0.0335] * 20, [0.01] * 20).entry(ports(slanted)[1])
    assert entry is not None and entry["delay_s"] == 0.01 and entry["rtt_s"] == pytest.approx(0.0435)


def test_what_overtakes_is_no_fault_of_the_rest() -> None:
    link = wan(jitter_s=0.001, reorder_ratio=0.1)
    found = [0.0335] * 18 + [0.0001] * 2
    assert probes(link, found, found).faults(ports(link)) == []


def test_no_answer_is_one_fault() -> None:
    link = wan()
    assert probes(link, [], []).faults(ports(link)) == [
        "link us-eu from us to eu: asked a round trip of 67 ms, measured no answer (idle)"
    ]


@pytest.mark.parametrize("distribution", JITTER_DISTRIBUTIONS)
def test_jitter_by_chance_is_no_fault_and_a_longer_delay_is(distribution: str) -> None:
    link = wan(jitter_s=0.005, jitter_distribution=distribution)
    source, way = random.Random(1), Delay.of(link.forward)
    for _ in range(100):
        ways = [
            [way.asked_s + way.jitter_s * spread_at(distribution, source.random()) for _ in range(20)] for _ in "ab"
        ]
        assert probes(link, *ways, every_s=0.1).faults(ports(link)) == []
        longer = [[delay_s + 0.012 for delay_s in delays_s] for delays_s in ways]
        assert len(probes(link, *longer, every_s=0.1).faults(ports(link))) == 3


def test_faults_under_dilation_are_told_as_they_were_asked() -> None:
    link = wan().dilated(2)
    measured = probes(link, [0.08] * 20, [0.08] * 20)
    burst = {"rate_bit_s": 300e6, "window_s": 1.0, "wire_bytes": 1, "drops": 0, "arrived_ratio": 1.0, "gaps": None}
    measured.bursts["us-eu", "us", "eu"] = burst
    found = measured.faults(ports(link, dilation=2))
    assert found[0] == "link us-eu from us to eu: asked 1 Gbit/s, measured 600 Mbit/s (idle)"
    assert found[1] == "link us-eu from us to eu: asked a round trip of 67 ms, measured 80 ms (idle)"
    assert found[2] == "link us-eu from us to eu: asked a one-way delay of 33.5 ms, measured 40 ms (idle)"


@pytest.mark.parametrize(("rate_bit_s", "is_below"), [(None, True), (0.97e9, True), (0.999e9, False), (1.2e9, False)])
def test_a_link_that_is_not_filled_is_told_from_one_that_is_too_fast(rate_bit_s: float | None, is_below: bool) -> None:
    link = wan()
    measured = probes(link, [0.0335] * 20, [0.0335] * 20)
    assert not measured.is_below_rates(ports(link))
    measured.bursts["us-eu", "eu", "us"] = {"rate_bit_s": rate_bit_s}
    assert measured.is_below_rates(ports(link)) is is_below


def test_what_the_kernel_does_instead_is_told_as_it_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    port = ports(wan().dilated(2), dilation=2)[0]
    port.queues = type("Queues", (), {"settings": lambda *_: None})()
    monkeypatch.setattr(tc, "parse_tbf", lambda _: dataclasses.replace(port.settings, rate_bit_s=400e6))
    with pytest.raises(RunError, match="asked 1 Gbit/s, kernel reports 800000000 bit/s"):
        port.verify()


def test_what_a_shaper_does_instead_is_told_as_it_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = wan().dilated(2).forward
    nothing: Any = None
    hop = Hop("us-eu", "us", "eu", nothing, "in", "out", None, profile, 1000, 1, dilation=2)
    found = {**asked_of(profile), "delay_s": 0.08, "limit_packets": 1000}
    monkeypatch.setattr(Shaper, "__abstractmethods__", frozenset())
    monkeypatch.setattr(Shaper, "read_one", lambda *_: found)
    monkeypatch.setattr(Shaper, "name", "test", raising=False)
    shaper = Shaper([hop], lambda _: None)  # type: ignore[abstract]
    with pytest.raises(RunError, match=r"asked delay_s=0.0335, the shaper does 0.04"):
        shaper.verify(hop.key, profile, 1000)


class Ended:
    """What is left of a process, as far as it is written to."""

    def __init__(self) -> None:
        self.stdin = self

    def write(self, _: str) -> None:
        raise BrokenPipeError


def test_a_probe_process_that_ended_is_told_as_such() -> None:
    prober = Prober.__new__(Prober)
    prober._process = Ended()  # type: ignore[assignment]
    with pytest.raises(RunError, match="the probe process ended or did not answer"):
        prober._say({"do": "rtt"})


def test_a_slow_link_is_filled_until_a_hundred_frames_are_through() -> None:
    prober = Prober.__new__(Prober)
    rates = {"fast": 1e9, "slow": 0.5e6, "slowest": 1e3}
    prober._ports = {name: [SimpleNamespace(profile=SimpleNamespace(rate_bit_s=rate))] for name, rate in rates.items()}  # type: ignore[assignment]
    assert prober._burst_s(["fast"], 0.2) == 0.2
    assert prober._burst_s(["fast", "slow"], 0.2) == pytest.approx(100 * 1514 * 8 / 0.5e6)
    assert prober._burst_s(["slowest"], 0.2) == 10


def burst(rate_bit_s: float | None, window_s: float, uneven: float = 0.1) -> dict[str, Any]:
    gaps = {"unit_bytes": 1500, "error_p50_ratio": 0.0, "error_p90_ratio": uneven, "error_p99_ratio": uneven}
    return {"rate_bit_s": rate_bit_s, "window_s": window_s, "wire_bytes": 10, "drops": 1, "gaps": gaps}


@pytest.mark.parametrize("later", [burst(1e9, 1.5), burst(0.96e9, 1.5)])
def test_a_longer_burst_counts_for_as_long_as_the_link_was_full(later: dict[str, Any]) -> None:
    link = wan()
    first, again = ProbeResult("busy"), ProbeResult("busy")
    first.bursts["us-eu", "us", "eu"] = burst(0.9625e9, 0.3, uneven=0.7)
    again.bursts["us-eu", "us", "eu"] = later
    first.add_longer(again)
    found = first.bursts["us-eu", "us", "eu"]
    expected = (0.9625e9 * 0.3 + later["rate_bit_s"] * 1.5) / 1.8
    assert found["rate_bit_s"] == pytest.approx(expected)
    assert (found["window_s"], found["wire_bytes"], found["drops"]) == (1.8, 20, 2)
    assert found["gaps"]["error_p90_ratio"] == 0.7
    assert bool(first.faults(ports(link)[:1])) == (later["rate_bit_s"] < 0.98e9)


def test_a_link_that_a_longer_burst_could_not_fill_is_not_filled() -> None:
    first, again = ProbeResult("busy"), ProbeResult("busy")
    first.bursts["us-eu", "us", "eu"], again.bursts["us-eu", "us", "eu"] = burst(1e9, 0.3), burst(None, 0.0)
    first.add_longer(again)
    assert first.is_below_rates(ports(wan())[:1])
