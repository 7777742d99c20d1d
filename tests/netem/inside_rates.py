"""In fresh namespaces: links of many rates and round trips by netem, and what of them this machine carries."""

from __future__ import annotations

import json
import statistics
import sys
from typing import Any

from testbed.core.spec.topology import Node, Topology, symmetric
from testbed.orchestrator.emulation.kernel import tcp
from testbed.orchestrator.emulation.links.network import Network
from testbed.orchestrator.emulation.measuring.prober import Prober

SOURCE = "assumed: a test"


def topology(rate_bit_s: float, rtt_s: float) -> Topology:
    wan = symmetric("a-b", "a", "b", wan=True, rtt_s=rtt_s, rate_bit_s=rate_bit_s, source=SOURCE)
    access = symmetric("w", "w", "a", wan=False, rtt_s=0.0, rate_bit_s=1e9, source=SOURCE)
    return Topology(name="one", regions=("a", "b"), nodes=(Node(name="w", region="a"),), links=(wan, access))


def measured(rate_bit_s: float, rtt_s: float) -> dict[str, Any]:
    chosen = topology(rate_bit_s, rtt_s)
    with (
        Network(chosen, tcp.profile("tuned", chosen), "netem", lambda _: None) as network,
        Prober(network, lambda _: None) as prober,
    ):
        found = prober.measure("idle", access=False)
        round_trips = sorted(found.rtt_s["a-b"])
        return {
            "rate_bit_s": rate_bit_s,
            "rtt_s": rtt_s,
            "unit": network.port("a-b", "a").settings.unit,
            "measured_rate_bit_s": [found.bursts[port.key]["rate_bit_s"] for port in network.ports if port.link.wan],
            "measured_rtt_s": statistics.median(round_trips) if round_trips else None,
            "measured_rtt_max_s": round_trips[-1] if round_trips else None,
        }


def main() -> None:
    print(json.dumps([measured(rate, rtt) for rate, rtt in json.loads(sys.argv[1])]))


if __name__ == "__main__":
    main()
