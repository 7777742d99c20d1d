"""tc as text and its answers as data: the only place that knows tc's units, bursts and limits.

The rate is tbf's. Its burst decides the unit of traffic: tbf cuts a GSO super-packet larger than its burst into
packets, so a small burst means packet by packet (dearer: some ten times the CPU a byte), a burst above the largest
super-packet (64 KiB and headers) lets them pass whole. Both were measured (docs/decisions/0004).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from testbed.core.topology import LinkProfile

PACKET_MODE_MOST_BIT_S = 100e6
"""Up to this rate links carry single packets; above it whole super-packets."""
LEAST_BURST_PACKET_BYTES = 16_000
LEAST_BURST_SUPER_PACKET_BYTES = 130_000
BURST_S = 1e-3
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
    least = LEAST_BURST_PACKET_BYTES if profile.rate_bit_s <= PACKET_MODE_MOST_BIT_S else LEAST_BURST_SUPER_PACKET_BYTES
    burst_bytes = max(least, math.ceil(profile.rate_bit_s / 8 * BURST_S))
    bdp_bytes = math.ceil(profile.rate_bit_s / 8 * rtt_s)
    return RateSettings(profile.rate_bit_s, burst_bytes, profile.limit_bytes or max(bdp_bytes, 4 * burst_bytes))


def tbf_command(interface: str, settings: RateSettings) -> list[str]:
    return (
        f"tc qdisc add dev {interface} root tbf rate {settings.rate_bit_s:.0f}bit"
        f" burst {settings.burst_bytes}b limit {settings.limit_bytes}b"
    ).split()


def parse_tbf(qdiscs: list[dict[str, Any]], interface: str) -> RateSettings | None:
    """From `tc -j qdisc show`: what is in force on `interface`; None if it is not limited by tbf.

    tc shows the limit as the time a full queue takes beyond the bucket (`lat`, microseconds).
    """
    for qdisc in qdiscs:
        if qdisc.get("dev") == interface and qdisc.get("kind") == "tbf" and qdisc.get("root"):
            options = qdisc["options"]
            rate_byte_s = options["rate"]
            limit = options["limit"] if "limit" in options else rate_byte_s * options["lat"] / 1e6 + options["burst"]
            return RateSettings(rate_byte_s * 8, options["burst"], round(limit))
    return None


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
