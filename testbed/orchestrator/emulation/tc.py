"""Rates as the kernel takes and reports them: the only place that knows tbf's units, bursts and limits.

The rate is tbf's. Its burst decides the unit of traffic: tbf cuts a GSO super-packet larger than its burst into
packets, so a small burst means packet by packet (dearer: some ten times the CPU a byte), a burst above the largest
super-packet (64 KiB and headers) lets them pass whole. Both were measured (docs/decisions/0004).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from testbed.core.topology import LinkProfile, Topology
from testbed.core.units import format_rate
from testbed.orchestrator.emulation import requests

PACKET_MODE_MOST_BIT_S = 100e6
"""Up to this rate links carry single packets; above it whole super-packets."""
LEAST_BURST_PACKET_BYTES = 3_200
"""Two frames. Each change of a rate fills the bucket anew, so a burst should be no larger than late wake-ups ask."""
LEAST_BURST_SUPER_PACKET_BYTES = 130_000
LEAST_LIMIT_BYTES = 64_000
TICK_S = 64e-9
"""The kernel's unit of scheduling time (PSCHED_SHIFT 6), in which it keeps a burst."""
PACKET_BURST_S, SUPER_PACKET_BURST_S = 1.28e-3, 1e-3
"""A burst worth less than about half a millisecond loses rate to late wake-ups."""


@dataclass(frozen=True)
class RateSettings:
    """What tbf is asked for, and what it says it does."""

    rate_bit_s: float
    burst_bytes: int
    limit_bytes: int

    @property
    def unit(self) -> str:
        """What is queued, lost and spaced as one."""
        return "packet" if self.burst_bytes < 2**16 else "super-packet"


def rate_settings(profile: LinkProfile, rtt_s: float) -> RateSettings:
    """Burst and queue for a direction; a limit of 0 becomes one bandwidth-delay product, at least 4 bursts."""
    rate_byte_s = profile.rate_bit_s / 8
    if profile.rate_bit_s <= PACKET_MODE_MOST_BIT_S:
        burst_bytes = max(LEAST_BURST_PACKET_BYTES, round(rate_byte_s * PACKET_BURST_S))
    else:
        burst_bytes = max(LEAST_BURST_SUPER_PACKET_BYTES, math.ceil(rate_byte_s * SUPER_PACKET_BURST_S))
    limit_bytes = max(math.ceil(rate_byte_s * rtt_s), 4 * burst_bytes, LEAST_LIMIT_BYTES)
    return RateSettings(profile.rate_bit_s, burst_bytes, profile.limit_bytes or limit_bytes)


def queue_faults(topology: Topology) -> Iterator[str]:
    """Of queues that could not hold what their link sends as one."""
    for link in topology.links:
        for source, target, profile in link.directions():
            settings = rate_settings(profile, link.rtt_s)
            least = 1514 if settings.unit == "packet" else 2**16
            if settings.limit_bytes < least:
                yield (
                    f"topology {topology.name}: link {link.name} from {source} to {target}: a queue of"
                    f" {settings.limit_bytes} bytes holds not one {settings.unit} ({least} bytes) at"
                    f" {format_rate(profile.rate_bit_s)}; give it more, or lower the rate to"
                    f" {format_rate(PACKET_MODE_MOST_BIT_S)}, where links carry single packets"
                )


def tbf(index: int, settings: RateSettings, *, change: bool = False) -> requests.Request:
    """As the root queue of interface `index`; the kernel counts rates in bytes."""
    return requests.tbf(
        index,
        rate_byte_s=round(settings.rate_bit_s / 8),
        burst_bytes=settings.burst_bytes,
        limit_bytes=settings.limit_bytes,
        change=change,
    )


def parse_tbf(message: Any) -> RateSettings | None:
    """From a root qdisc as pyroute2 decodes it; None if it is not tbf. The kernel keeps the burst as time, in ticks."""
    if message.get_attr("TCA_KIND") != "tbf":
        return None
    parameters = message.get_attr("TCA_OPTIONS").get_attr("TCA_TBF_PARMS")
    rate_byte_s = parameters["rate"]
    burst_bytes = round(parameters["buffer"] * TICK_S * rate_byte_s)
    return RateSettings(rate_byte_s * 8, burst_bytes, parameters["limit"])


def disagreement(asked: RateSettings, found: RateSettings | None) -> str | None:
    """Why what the kernel reports is not what was asked; None if it is.

    tc rounds to clock ticks, hence the tolerance.
    """
    if found is None:
        return "kernel reports no rate limit"
    if abs(found.rate_bit_s / asked.rate_bit_s - 1) > 1e-3:
        return f"kernel reports {found.rate_bit_s:.0f} bit/s"
    if abs(found.burst_bytes / asked.burst_bytes - 1) > 0.02:
        return f"asked a burst of {asked.burst_bytes} bytes, kernel reports {found.burst_bytes}"
    if abs(found.limit_bytes / asked.limit_bytes - 1) > 0.05:
        return f"asked a queue of {asked.limit_bytes} bytes, kernel reports {found.limit_bytes}"
    return None
