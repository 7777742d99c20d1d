"""A point of `netem`, inside user-mode Linux and there in fresh namespaces."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from experiments.benchmarks.mininet_tclink.measure import hosts, link_of
from experiments.benchmarks.netem.offered_load import filled_rate_bit_s
from experiments.common import testnet
from testbed.orchestrator.emulation.kernel import tcp
from testbed.orchestrator.emulation.links.network import Network

_TIMES, _PROBES = 2, 100
Subject = tuple[dict[str, Any], list[str]]
"""A link as the probe process wants it, and what was said of it."""


def measure(system: str, rate_bit_s: float, rtt_s: float) -> dict[str, Any]:
    made = {"longhaul": _longhaul, "mininet": _mininet}[system]
    with made(rate_bit_s, rtt_s) as (link, said), testnet.Probes(link) as prober:
        delays = prober.delays(_PROBES)
        ends = (link["a"], link["b"]), (link["b"], link["a"])
        found = [filled_rate_bit_s(link, *way) for _ in range(_TIMES) for way in ends]
    rates = sorted(rate for rate in found if rate)
    return {
        "kernel": os.uname().release,
        "cores": os.cpu_count(),
        "filled_rate_bit_s": testnet.median(rates),
        "filled_rates_bit_s": rates,
        "probes": len(delays["rtt_s"]),
        **testnet.percentiles(delays),
        "said": said[:6],
    }


@contextlib.contextmanager
def _longhaul(rate_bit_s: float, rtt_s: float) -> Iterator[Subject]:
    topology = testnet.topology(rate_bit_s, rtt_s)
    with Network(topology, tcp.profile("tuned", topology), "netem", lambda _: None) as network:
        yield testnet.link_of(network), []


@contextlib.contextmanager
def _mininet(rate_bit_s: float, rtt_s: float) -> Iterator[Subject]:
    """`TCLink` delays each direction by `delay`: half of the round trip."""
    bw_mbit_s = rate_bit_s / 1e6
    with hosts(bw_mbit_s, f"{rtt_s / 2 * 1e3:g}ms") as (a, b, said):
        yield link_of(a, b, bw_mbit_s, rtt_s), said.lines
