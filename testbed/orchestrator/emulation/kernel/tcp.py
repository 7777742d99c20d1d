"""TCP and kernel settings of every namespace, pinned by a named profile: the host's own are never inherited unseen.

A namespace may set only such congestion controls as the host allows to unprivileged users, so the route attribute
`congctl` names it instead; that works for every one the kernel has, without touching the host.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.core.errors import RunError
from testbed.core.spec.run_spec import MAX_DILATED_RTT_S
from testbed.core.spec.topology import Topology
from testbed.orchestrator.emulation.kernel import slowed_tcp

CONGESTION_CONTROL = {"tuned": "bbr", "bbr": "bbr", "reno": "reno", "stock": "cubic"}
"""Congestion control of each profile; `tuned` was chosen by measurement (docs/decisions/0006)."""
MAX_WALL_BBR_RTT_S = 0.6
"""Largest wall seconds of a round trip with the kernel's own BBR.

Every ten seconds of the wall it takes a round trip to look for the least one (docs/decisions/0009)."""
MAX_CUBIC_DILATION = 2.0
"""Largest dilation with the kernel's own CUBIC, which grows by the cube of the wall's seconds."""
STOCK_BUFFER_BYTES = 6_291_456
"""Linux's default largest receive buffer; it holds one flow to about 3 MB in flight."""


@dataclass(frozen=True)
class TcpProfile:
    """Settings of one run."""

    name: str
    congestion_control: str
    buffer_bytes: int
    dilation: float = 1.0
    registered: str | None = None
    """Name of a congestion control of this run's own, whose seconds are emulated ones; None if it is the kernel's."""

    @property
    def kernel_name(self) -> str:
        """Name by which the kernel knows the congestion control."""
        return self.registered or self.congestion_control

    def sysctls(self) -> dict[str, str]:
        """For the network namespace of every node and router."""
        return {
            "net.ipv6.conf.all.disable_ipv6": "1",
            "net.ipv6.conf.default.disable_ipv6": "1",
            "net.ipv4.tcp_rmem": f"4096 131072 {self.buffer_bytes}",
            "net.ipv4.tcp_wmem": f"4096 16384 {self.buffer_bytes}",
            "net.ipv4.tcp_no_metrics_save": "1",
            "net.ipv4.tcp_slow_start_after_idle": "1" if self.name == "stock" else "0",
            "net.ipv4.tcp_ecn": "0",
            RTO_MIN_SYSCTL: str(round(RTO_MIN_US * self.dilation)),
            "net.ipv4.tcp_limit_output_bytes": "4194304",
        }

    @property
    def route_rto_min_s(self) -> float | None:
        """For every route of a kernel before 6.11, which has no sysctl for it; None where that does it."""
        if self.dilation == 1 or Path("/proc/sys", *RTO_MIN_SYSCTL.split(".")).exists():
            return None
        return RTO_MIN_US * self.dilation / 1e6

    def require_used(self, found: Set[str]) -> None:
        """Refuse other congestion controls than this one.

        Raises:
            RunError: One is among those that connections use.
        """
        if foreign := found - {self.kernel_name}:
            raise RunError(f"tcp={self.name}: asked {self.kernel_name}, connections use {', '.join(sorted(foreign))}")

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "route_rto_min_s": self.route_rto_min_s}


ROUTER_SYSCTLS = {"net.ipv4.ip_forward": "1", "net.ipv4.conf.all.rp_filter": "0"}
RTO_MIN_US = 200_000
RTO_MIN_SYSCTL = "net.ipv4.tcp_rto_min_us"
OPTIONAL_SYSCTLS = frozenset({RTO_MIN_SYSCTL, "net.ipv6.conf.all.disable_ipv6", "net.ipv6.conf.default.disable_ipv6"})
"""Absent from kernels before 6.11, where routes say it if it is not the built-in value; from those without IPv6."""


def profile(name: str, topology: Topology, dilation: float = 1.0) -> TcpProfile:
    """Return the named profile for a topology as it is built.

    All but `stock` have buffers of four times the largest bandwidth-delay product.
    """
    if name == "stock":
        return TcpProfile(name, CONGESTION_CONTROL[name], STOCK_BUFFER_BYTES, dilation)
    rate_bit_s = max(
        (profile.rate_bit_s for link in topology.wan_links for _, _, profile in link.directions()), default=0.0
    )
    bdp_bytes = math.ceil(rate_bit_s / 8 * topology.farthest_rtt_s)
    buffers = min(max(STOCK_BUFFER_BYTES, 4 * bdp_bytes), 2**30)
    return TcpProfile(name, CONGESTION_CONTROL[name], buffers, dilation)


def max_dilation(name: str, rtt_s: float) -> float:
    """Return the largest dilation at which the named profile does on this machine what it does unslowed.

    Args:
        rtt_s: Longest emulated round trip.
    """
    base = CONGESTION_CONTROL[name]
    is_kernels_own = base in slowed_tcp.BASES and slowed_tcp.lack(base) is not None
    wall_rtt_s = MAX_WALL_BBR_RTT_S if base == "bbr" and is_kernels_own else MAX_DILATED_RTT_S
    most = MAX_CUBIC_DILATION if base == "cubic" and is_kernels_own else math.inf
    return min(most, wall_rtt_s / rtt_s if rtt_s else math.inf)
