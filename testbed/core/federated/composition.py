"""A round's time as if each client had a device and an uplink of its own, from what each took when they ran one after
another: simulated, not measured.

Links are fluids: whoever sends shares the server's link fairly with all others that send, and has at most its own
uplink's rate. So TCP's slow start, losses and queues are left out, as is what the server computes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.core.parameter_faults import number, raise_all


@dataclass(frozen=True, kw_only=True)
class Uplinks:
    """Of a star: clients and their server, each by an uplink of its own.

    Raises:
        ValueError: a number is out of its range; all of them, one a line.
    """

    rate_bit_s: float
    """Of a client's, either way."""
    server_rate_bit_s: float
    """Of the server's, likewise."""
    delay_s: float
    """One way, of both together."""

    def __post_init__(self) -> None:
        raise_all(
            number("rate_bit_s", self.rate_bit_s, above=0, below=math.inf),
            number("server_rate_bit_s", self.server_rate_bit_s, above=0, below=math.inf),
            number("delay_s", self.delay_s, least=0, below=math.inf),
        )

    def arrivals_s(self, starts_s: Sequence[float], size_bytes: float) -> list[float]:
        """When each message is all there.

        Args:
            starts_s: when each is begun to be sent.
            size_bytes: of each, with headers.
        """
        left = [8 * size_bytes] * len(starts_s)
        ends = [math.inf] * len(starts_s)
        waiting = sorted(range(len(starts_s)), key=lambda index: starts_s[index])
        sending: list[int] = []
        now_s = 0.0
        while waiting or sending:
            if not sending:
                now_s = starts_s[waiting[0]]
            while waiting and starts_s[waiting[0]] <= now_s:
                sending.append(waiting.pop(0))
            share = min(self.rate_bit_s, self.server_rate_bit_s / len(sending))
            first_s = now_s + min(left[index] for index in sending) / share
            until_s = min(first_s, starts_s[waiting[0]]) if waiting else first_s
            for index in sending:
                left[index] -= share * (until_s - now_s)
            if until_s == first_s:
                least = min(left[index] for index in sending)
                for index in [one for one in sending if left[one] <= least]:
                    ends[index] = until_s + self.delay_s
                    sending.remove(index)
            now_s = until_s
        return ends


def round_s(compute_s: Sequence[float], links: Uplinks, *, down_bytes: float, up_bytes: float) -> float:
    """From the beginning of the server's broadcast until the last update is there.

    Args:
        compute_s: of each client that takes part.
        down_bytes, up_bytes: of a model and of an update, with headers.

    Raises:
        ValueError: nobody takes part, or a time is below 0 or not finite.
    """
    raise_all(
        None if compute_s else "compute_s: there is no client; give one or more",
        *(number(f"compute_s[{index}]", one, least=0, below=math.inf) for index, one in enumerate(compute_s)),
    )
    came_s = links.arrivals_s([0.0] * len(compute_s), down_bytes)
    starts_s = [came + took for came, took in zip(came_s, compute_s, strict=True)]
    return max(links.arrivals_s(starts_s, up_bytes))
