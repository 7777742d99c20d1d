"""Rate, round trip and one-way delay of a WAN link against what was asked, cores idle and busy."""

from __future__ import annotations

import os
import statistics
from typing import Any

from experiments.common import testnet
from experiments.common.benchmark import Point
from testbed.orchestrator.emulation.kernel import tcp
from testbed.orchestrator.emulation.links.network import Network

RATES_BIT_S = (1000e6, 500e6, 100e6, 10e6)
"""The hardest first."""
RTTS_S = (0.0002, 0.010, 0.067, 0.150, 0.300)
_BURST_S = 0.8
_BURSTS = 3
_WINDOW_S = 3.0
_MIN_WARM_S = 1.5
_WARM_ROUND_TRIPS = 16
"""BBR finds the rate of 1 Gbit/s and 300 ms after twelve, overfills the queue, and then drains it."""
_CALM_S, _CALM_ROUND_TRIPS = 1.0, 5
"""Without a drop before the window: what was lost is sent again, and comes in at once with all that waited for it."""
_SPARE_S, _SPARE_ROUND_TRIPS = 1.0, 14
"""How much later than at the earliest the window may begin."""


def points(*, quick: bool) -> list[Point]:
    if quick:
        return [Point({"rate_bit_s": 100e6, "rtt_s": 0.067, "probes": 50, "busy": False}, 12)]
    return [
        Point({"rate_bit_s": rate, "rtt_s": rtt, "probes": 210, "busy": busy}, 14 + 39 * rtt)
        for rate in RATES_BIT_S
        for rtt in RTTS_S
        for busy in (False, True)
    ]


def measure(rate_bit_s: float, rtt_s: float, probes: int, busy: bool) -> dict[str, Any]:
    topology = testnet.topology(rate_bit_s, rtt_s)
    shaper = testnet.shaper()
    late: list[dict[str, Any]] = []
    with (
        Network(topology, tcp.profile("tuned", topology), shaper, late.append) as network,
        testnet.Probes(testnet.link_of(network)) as prober,
        testnet.busy_cores((os.cpu_count() or 1) if busy else 0),
    ):
        delays = prober.delays(probes)
        bursts = [answer for _ in range(_BURSTS) for answer in prober.burst(_BURST_S)]
        flow = _flow(network, rate_bit_s, rtt_s)
    rates = [answer["rate_bit_s"] for answer in bursts if answer["rate_bit_s"]]
    return {
        "shaper": shaper,
        "burst_rate_bit_s": statistics.median(rates) if rates else None,
        "burst_rates_bit_s": sorted(rates),
        "burst_drops": sum(answer["drops"] for answer in bursts),
        "probes": len(delays["rtt_s"]),
        **testnet.percentiles(delays),
        "delay_line_late_p99_s": max((e["late_p99_s"] for e in late if e.get("late_p99_s")), default=None),
        **flow,
    }


def _flow(network: Network, rate_bit_s: float, rtt_s: float) -> dict[str, Any]:
    warm_s = _MIN_WARM_S + _WARM_ROUND_TRIPS * rtt_s
    spare_s = _SPARE_S + _SPARE_ROUND_TRIPS * rtt_s
    port = network.port(network.topology.wan_links[0].name, network.topology.wan_links[0].a)
    with testnet.QueueWatch(port.read) as watch, testnet.Idle() as idle:
        flow = testnet.flow_between(network, seconds=warm_s + spare_s + _WINDOW_S + 0.3)
        ends = flow.wait()
    warm_at_s = ends["started_s"] + warm_s
    from_s = watch.calm_from_s(warm_at_s, warm_at_s + spare_s, max(_CALM_S, _CALM_ROUND_TRIPS * rtt_s))
    full, share = watch.full_rate_bit_s(rate_bit_s, from_s, from_s + _WINDOW_S)
    return {
        "flow_began_s": from_s - ends["started_s"],
        "flow_drops": watch.drops(from_s, from_s + _WINDOW_S),
        "flow_rate_bit_s": watch.rate_bit_s(from_s, from_s + _WINDOW_S),
        "flow_full_rate_bit_s": full,
        "flow_full_share": share,
        "goodput_bit_s": testnet.received_rate_bit_s(ends, from_s, from_s + _WINDOW_S),
        "flow_idle_ratio": idle.ratio,
    }
