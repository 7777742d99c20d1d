"""Rates as the kernel takes and reports them: the only place that knows tbf's units, bursts and limits.

What passes as one decides how even a link is and what it costs. Up to 25 Mbit/s a second bucket of one frame makes tbf
cut GSO super-packets into packets; up to 100 Mbit/s its burst (1.28 ms) bounds the super-packets that pass whole;
above, the burst is larger than the largest (64 KiB and headers). All were measured (docs/decisions/0004).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from testbed.core.spec.link_profile import MTU_BYTES, LinkProfile
from testbed.core.spec.topology import Topology
from testbed.core.units import format_rate
from testbed.orchestrator.emulation.kernel import netlink_requests

MAX_PACKET_MODE_BIT_S = 25e6
"""Up to this rate links carry single packets. They cost some 80 s of one core a gigabyte, most of it in the delay line,
so that at 100 Mbit/s one direction would take a whole core; super-packets bounded by the burst take a quarter of it."""
MAX_SMALL_BURST_BIT_S = 100e6
MIN_SMALL_BURST_BYTES = 3_200
"""Two frames. Each change of a rate fills the bucket anew, so a burst should be no larger than late wake-ups ask."""
MIN_LARGE_BURST_BYTES = 130_000
MIN_LIMIT_BYTES = 64_000
MAX_FRAME_BYTES = 1600
"""Asked of tbf, which keeps it in ticks; a frame is 1514."""
FRAME_BYTES, MAX_SUPER_PACKET_BYTES = 1514, 2**16 + 14
CARD_QUEUE_FRAMES = 1000
"""What a worker's own card holds at least: Linux's default queue in front of one has 1000 frames. A sender that finds
its own card's queue full has lost a packet in its own host, which real ones next to never have."""
SMALL_BURST_S, LARGE_BURST_S = 1.28e-3, 1e-3
"""A burst worth less than about half a millisecond loses rate to late wake-ups."""


@dataclass(frozen=True)
class RateSettings:
    """What tbf is asked for, and what it says it does."""

    rate_bit_s: float
    burst_bytes: int
    limit_bytes: int
    unit: str
    """What is queued, lost and spaced as one: "packet" or "super-packet"."""

    @property
    def most_unit_bytes(self) -> int:
        """The largest thing that passes as one. A super-packet larger than the burst is cut into packets."""
        return FRAME_BYTES if self.unit == "packet" else min(self.burst_bytes, MAX_SUPER_PACKET_BYTES)


def card_queue_bytes(profile: LinkProfile) -> int:
    """Return what a worker's own card holds at least."""
    return CARD_QUEUE_FRAMES * profile.frame_bytes


def rate_settings(profile: LinkProfile, rtt_s: float, dilation: float = 1, least_queue_bytes: int = 0) -> RateSettings:
    """Return burst and queue for a direction; a limit of 0 becomes one bandwidth-delay product, at least 4 bursts.

    Args:
        profile: in wall-clock terms, as `rtt_s`.
        dilation: the unit and the burst in bytes are those of the emulated rate: of a transfer seen k times slower
            everything but the clock should be the same.
        least_queue_bytes: what the queue has at least, if no limit is asked.
    """
    rate_byte_s = profile.rate_bit_s / 8
    emulated_bit_s = profile.rate_bit_s * dilation
    if emulated_bit_s <= MAX_SMALL_BURST_BIT_S:
        burst_bytes = max(MIN_SMALL_BURST_BYTES, round(emulated_bit_s / 8 * SMALL_BURST_S))
    else:
        burst_bytes = max(MIN_LARGE_BURST_BYTES, math.ceil(emulated_bit_s / 8 * LARGE_BURST_S))
    burst_bytes = max(burst_bytes, 2 * profile.frame_bytes)
    is_usual = profile.mtu_bytes <= MTU_BYTES  # larger frames are not cut: tbf is told so by their size
    unit = "packet" if emulated_bit_s <= MAX_PACKET_MODE_BIT_S and is_usual else "super-packet"
    if profile.burst_bytes:  # as a plain tbf: what is larger than the burst is cut, all else passes whole
        burst_bytes, unit = profile.burst_bytes, "super-packet"
    limit_bytes = max(math.ceil(rate_byte_s * rtt_s), 4 * burst_bytes, MIN_LIMIT_BYTES, least_queue_bytes)
    return RateSettings(profile.rate_bit_s, burst_bytes, profile.limit_bytes or limit_bytes, unit)


def queue_faults(topology: Topology) -> Iterator[str]:
    """Of queues that could not hold what their link sends as one."""
    for link in topology.links:
        for source, target, profile in link.directions():
            settings = rate_settings(profile, link.rtt_s, topology.dilation)
            least = settings.most_unit_bytes
            if settings.limit_bytes < least:
                yield (
                    f"topology {topology.name}: link {link.name} from {source} to {target}: a queue of"
                    f" {settings.limit_bytes} bytes holds not one {settings.unit} ({least} bytes) at"
                    f" {format_rate(profile.rate_bit_s * topology.dilation)}; give it more, or lower the rate to"
                    f" {format_rate(MAX_PACKET_MODE_BIT_S)}, where links carry single packets"
                )


def tbf(index: int, settings: RateSettings, *, change: bool = False) -> netlink_requests.Request:
    """As the root queue of interface `index`; the kernel counts rates in bytes."""
    return netlink_requests.tbf(
        index,
        rate_byte_s=round(settings.rate_bit_s / 8),
        burst_bytes=settings.burst_bytes,
        limit_bytes=settings.limit_bytes,
        most_frame_bytes=MAX_FRAME_BYTES if settings.unit == "packet" else None,
        change=change,
    )


def parse_tbf(message: Any) -> RateSettings | None:
    """From a root qdisc as pyroute2 decodes it; None if it is not tbf. The kernel keeps the burst as time, in ticks."""
    if message.get_attr("TCA_KIND") != "tbf":
        return None
    parameters = message.get_attr("TCA_OPTIONS").get_attr("TCA_TBF_PARMS")
    rate_byte_s = parameters["rate"]
    burst_bytes = round(parameters["buffer"] * netlink_requests.TICK_S * rate_byte_s)
    cuts = (
        bool(parameters["peak"])
        and parameters["mtu"] * netlink_requests.TICK_S * parameters["peak"] < 2 * MAX_FRAME_BYTES
    )
    return RateSettings(rate_byte_s * 8, burst_bytes, parameters["limit"], "packet" if cuts else "super-packet")


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
    if found.unit != asked.unit:
        return f"asked for {asked.unit}s to pass as one, kernel lets {found.unit}s"
    if abs(found.limit_bytes / asked.limit_bytes - 1) > 0.05:
        return f"asked a queue of {asked.limit_bytes} bytes, kernel reports {found.limit_bytes}"
    return None
