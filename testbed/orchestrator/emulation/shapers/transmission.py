"""The time at which a link has sent its packets: pure, so that it is tested without them.

A rate is limited by a bucket (tbf), which fills while a link rests. What comes next passes at once, up to the bucket's
size, where a link would take its time for each byte. This puts that time back behind the bucket.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from testbed.core.spec.link_profile import ETHERNET_BYTES, TCP_IP_BYTES

_HEADERS_BYTES = ETHERNET_BYTES + TCP_IP_BYTES


@dataclass
class Transmission:
    """One direction, whose packets come from its bucket in order; times are of one clock, in seconds.

    Args:
        rate_bit_s: The bucket's rate; counts frames.
        burst_s: How long the link takes for what the full bucket holds; 0 where packets leave as the bucket lets them.
        mtu_bytes: Largest IP packet. A longer one is a super-packet, which counts as the frames that it stands for.
    """

    rate_bit_s: float
    burst_s: float
    mtu_bytes: int
    _free_s: float = -math.inf
    """When the link has sent all that came."""

    def sent_s(self, left_s: float, size_bytes: int, *, is_in_transit: bool = False) -> float:
        """Return when the link has sent an IP packet that left the bucket at `left_s`.

        Never later than the bucket makes up for: a link that is full sends at the bucket's rate, not at one reckoned
        here.

        Args:
            is_in_transit: The packet comes from another such link. Of a super-packet only the last frame has then yet
                to be sent, since the others came before it, at a rate that is taken to be no higher than this one.
        """
        if not self.burst_s:
            return left_s
        frames = max(1, math.ceil((size_bytes - TCP_IP_BYTES) / (self.mtu_bytes - TCP_IP_BYTES)))
        sending_s = 8 * (size_bytes + ETHERNET_BYTES + (frames - 1) * _HEADERS_BYTES) / self.rate_bit_s
        came_s = left_s - (1 - 1 / frames) * sending_s if is_in_transit else left_s
        self._free_s = min(max(self._free_s, came_s) + sending_s, left_s + self.burst_s)
        return self._free_s
