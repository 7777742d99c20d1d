"""What one direction of a link is: its rate, delay, jitter, losses and queue, and where these numbers come from."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass

MIN_RATE_BIT_S, MAX_RATE_BIT_S = 1e4, 3.2e10
"""Below, one frame takes a second; above, tc's 32 bits of bytes a second are full. What this machine carries is
measured before a run."""
MIN_BURST_BYTES, MAX_BURST_BYTES = 1600, 100_000_000
"""A smaller bucket never holds a frame; a larger one is no limit."""
MTU_BYTES, MIN_MTU_BYTES, MAX_MTU_BYTES = 1500, 576, 9216
"""Largest IP packet: Ethernet's, and bounds of what is asked for. Clouds have 9001."""
ETHERNET_BYTES, TCP_IP_BYTES = 14, 52
"""Headers of a frame: those that come on top of the MTU, and those inside it (IPv4, TCP with time stamps)."""
MAX_DELAY_S = 5
"""Longest one-way delay."""

JITTER_DISTRIBUTIONS = ("uniform", "normal", "pareto")


@dataclass(frozen=True)
class GilbertElliott:
    """A link that is in a good or a bad state and may change it with every packet.

    E. N. Gilbert, Capacity of a burst-noise channel, 1960; E. O. Elliott, Estimates of error rates for codes on
    burst-noise channels, 1963.
    """

    enter_bad_ratio: float
    """Chance per packet of going from good to bad."""
    leave_bad_ratio: float
    bad_loss_ratio: float
    """Loss in the bad state."""
    good_loss_ratio: float


@dataclass(frozen=True, kw_only=True)
class LinkProfile:
    """One direction of a link."""

    rate_bit_s: float
    """Capacity, shared by all flows, Ethernet header included."""
    delay_s: float = 0.0
    """One way."""
    jitter_s: float = 0.0
    """Spread around `delay_s`: half the width of a uniform distribution, the standard deviation of another one."""
    jitter_distribution: str = "uniform"
    """One of `JITTER_DISTRIBUTIONS`; packets keep their order, whatever it is."""
    loss_ratio: float = 0.0
    """Mean share of lost packets, 0 to below 1."""
    loss_burst_packets: float = 0.0
    """Mean length of a bad state (Gilbert-Elliott); 0: packets are lost independently of each other."""
    bad_loss_ratio: float = 1.0
    """Loss in the bad state; without bursts it has no meaning."""
    good_loss_ratio: float = 0.0
    """Loss in the good state; without bursts it has no meaning."""
    duplicate_ratio: float = 0.0
    """Share of packets that arrive twice."""
    reorder_ratio: float = 0.0
    """Share of packets that overtake all others: they are not delayed at all."""
    limit_bytes: int = 0
    """Queue in front of the rate limit; 0 means one bandwidth-delay product, at least four bursts."""
    burst_bytes: int = 0
    """Bucket of the rate limit; 0 leaves it, and what passes as one, to the rate."""
    flow_rate_bit_s: float | None = None
    """What a single TCP flow reached where the numbers were taken. It tells of the windows of those hosts, not of the
    link, so it limits nothing here; `tcp=stock` shows such windows."""
    flow_cap_bit_s: float | None = None
    """Most that one TCP connection carries of what leaves here, headers included; of a worker's own card alone."""
    mtu_bytes: int = MTU_BYTES
    """Largest IP packet, the same on all links of a network."""
    source: str
    """Where the numbers come from, with a date, or "assumed: why"."""

    @property
    def frame_bytes(self) -> int:
        """Largest frame, as rates count it."""
        return self.mtu_bytes + ETHERNET_BYTES

    @property
    def wire_ratio(self) -> float:
        """Bytes in full frames for each byte that they carry of a TCP stream."""
        return self.frame_bytes / (self.mtu_bytes - TCP_IP_BYTES)

    @property
    def gilbert_elliott(self) -> GilbertElliott | None:
        """The chain whose mean loss is `loss_ratio`; None where losses are independent."""
        if not self.loss_burst_packets or not self.loss_ratio:
            return None
        bad_share = (self.loss_ratio - self.good_loss_ratio) / (self.bad_loss_ratio - self.good_loss_ratio)
        leave = 1 / self.loss_burst_packets
        return GilbertElliott(leave * bad_share / (1 - bad_share), leave, self.bad_loss_ratio, self.good_loss_ratio)

    @property
    def loss_variance(self) -> float:
        """Of the number of lost packets, per packet; bursts make it larger than that of independent losses."""
        variance = self.loss_ratio * (1 - self.loss_ratio)
        if chain := self.gilbert_elliott:
            bad_share = (self.loss_ratio - chain.good_loss_ratio) / (chain.bad_loss_ratio - chain.good_loss_ratio)
            spread = (chain.bad_loss_ratio - chain.good_loss_ratio) ** 2 * bad_share * (1 - bad_share)
            memory = 1 - chain.enter_bad_ratio - chain.leave_bad_ratio
            variance += 2 * spread * memory / (1 - memory)
        return variance

    def dilated(self, k: float) -> LinkProfile:
        """The same direction k times slower; bytes in flight, queue and losses stay."""
        flow, cap = self.flow_rate_bit_s, self.flow_cap_bit_s
        return dataclasses.replace(
            self,
            flow_cap_bit_s=None if cap is None else cap / k,
            rate_bit_s=self.rate_bit_s / k,
            delay_s=self.delay_s * k,
            jitter_s=self.jitter_s * k,
            flow_rate_bit_s=None if flow is None else flow / k,
        )

    def faults(self, where: str) -> Iterator[str]:
        if not MIN_RATE_BIT_S <= self.rate_bit_s <= MAX_RATE_BIT_S:
            known = f"from {MIN_RATE_BIT_S:g} to {MAX_RATE_BIT_S:g}"
            yield f"{where}: rate must be {known} bit/s, found {self.rate_bit_s:g}"
        if not (math.isfinite(self.delay_s) and 0 <= self.delay_s <= MAX_DELAY_S):
            yield f"{where}: one-way delay must be from 0 to {MAX_DELAY_S} s, found {self.delay_s:g} s"
        if not 0 <= self.jitter_s <= max(self.delay_s, 0):
            yield f"{where}: jitter must be from 0 to the delay, found {self.jitter_s:g} s"
        if self.jitter_distribution not in JITTER_DISTRIBUTIONS:
            known = ", ".join(JITTER_DISTRIBUTIONS)
            yield f"{where}: jitter distribution {self.jitter_distribution!r} is unknown; known: {known}"
        for what in ("loss", "duplicate", "reorder"):
            ratio = getattr(self, f"{what}_ratio")
            if not 0 <= ratio < 1:
                yield f"{where}: {what} must be from 0 to below 1, found {ratio:g}"
        yield from self._burst_faults(where)
        if self.reorder_ratio and not self.delay_s:
            yield f"{where}: reordering needs a delay that the overtaking packets are spared"
        if self.limit_bytes < 0:
            yield f"{where}: queue limit must not be negative, found {self.limit_bytes}"
        if self.flow_cap_bit_s is not None and not MIN_RATE_BIT_S <= self.flow_cap_bit_s <= MAX_RATE_BIT_S:
            known = f"from {MIN_RATE_BIT_S:g} to {MAX_RATE_BIT_S:g}"
            yield f"{where}: cap of a TCP flow must be {known} bit/s, found {self.flow_cap_bit_s:g}"
        if self.burst_bytes and self.burst_bytes < self.frame_bytes:
            yield f"{where}: a burst of {self.burst_bytes} bytes holds no frame of {self.frame_bytes}; give it more"
        if self.burst_bytes and not MIN_BURST_BYTES <= self.burst_bytes <= MAX_BURST_BYTES:
            known = f"from {MIN_BURST_BYTES} to {MAX_BURST_BYTES} bytes"
            yield f"{where}: burst of the queue must be {known}, found {self.burst_bytes}"
        if not MIN_MTU_BYTES <= self.mtu_bytes <= MAX_MTU_BYTES:
            yield f"{where}: MTU must be from {MIN_MTU_BYTES} to {MAX_MTU_BYTES} bytes, found {self.mtu_bytes}"
        if self.flow_rate_bit_s is not None and not self.flow_rate_bit_s > 0:
            yield f"{where}: the rate of a single flow must be above 0, found {self.flow_rate_bit_s:g}"
        if not self.source.strip():
            yield f"{where}: says no source for its numbers; write one, or 'assumed: why'"

    def _burst_faults(self, where: str) -> Iterator[str]:
        if not self.loss_burst_packets:
            return
        if not self.loss_burst_packets >= 1:
            yield f"{where}: loss bursts must be at least 1 packet long, found {self.loss_burst_packets:g}"
        if not 0 <= self.good_loss_ratio < self.bad_loss_ratio <= 1:
            found = f"found {self.good_loss_ratio:g} and {self.bad_loss_ratio:g}"
            yield f"{where}: loss in the good state must be below loss in the bad one, both from 0 to 1; {found}"
        elif self.loss_ratio and not self.good_loss_ratio <= self.loss_ratio < self.bad_loss_ratio:
            found = f"{self.good_loss_ratio:g} and {self.bad_loss_ratio:g}, found {self.loss_ratio:g}"
            yield f"{where}: mean loss must lie between those of the good and the bad state, {found}"
        elif (chain := self.gilbert_elliott) and chain.enter_bad_ratio > 1:
            found = f"{self.loss_burst_packets:g} packets at a mean loss of {self.loss_ratio:g}"
            yield f"{where}: loss bursts are too short for so much loss, found {found}"
