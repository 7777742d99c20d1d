"""A round's time as if each client had a device and an uplink of its own, from what each took when they ran one after
another: simulated, not measured.

Links are fluids: whoever sends shares the server's link fairly with all others that send, and has at most its own
uplink's rate. So TCP's slow start, losses and queues are left out.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.core.parameters import number, raise_all


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
        """When each message is all there. All are as long and get as much, so who begins first is done first.

        Args:
            starts_s: when each is begun to be sent.
            size_bytes: of each, with headers.
        """
        waiting = deque(sorted(range(len(starts_s)), key=lambda index: starts_s[index]))
        sending = deque[tuple[float, int]]()  # what `sent_bit` is when it is done, and which it is
        ends_s = [0.0] * len(starts_s)
        now_s = sent_bit = 0.0  # the second: of a message that has been sent since links were idle
        while waiting or sending:
            if not sending:
                now_s, sent_bit = starts_s[waiting[0]], 0.0
            while waiting and starts_s[waiting[0]] <= now_s:
                sending.append((sent_bit + 8 * size_bytes, waiting.popleft()))
            share = min(self.rate_bit_s, self.server_rate_bit_s / len(sending))
            done_s = now_s + (sending[0][0] - sent_bit) / share
            if waiting and starts_s[waiting[0]] < done_s:
                sent_bit += share * (starts_s[waiting[0]] - now_s)
                now_s = starts_s[waiting[0]]
                continue
            now_s, sent_bit = done_s, sending[0][0]
            while sending and sending[0][0] <= sent_bit:
                ends_s[sending.popleft()[1]] = now_s + self.delay_s
        return ends_s


@dataclass(frozen=True, kw_only=True)
class Serving:
    """What the server computes in a round, in emulated seconds.

    Raises:
        ValueError: one is below 0 or not finite; all of them, one a line.
    """

    before_s: float = 0.0
    """Until its model is ready to be sent, as to encode it."""
    each_s: float = 0.0
    """To decode an update; one after another, as they come."""
    after_s: float = 0.0
    """Once all are decoded: to make them its model."""

    def __post_init__(self) -> None:
        raise_all(*(number(key, getattr(self, key), least=0, below=math.inf) for key in self.__dataclass_fields__))

    def done_s(self, arrivals_s: Sequence[float]) -> float:
        """When the round is over whose updates come then."""
        free_s = 0.0
        for came_s in sorted(arrivals_s):
            free_s = max(free_s, came_s) + self.each_s
        return free_s + self.after_s


def round_s(
    compute_s: Sequence[float],
    links: Uplinks,
    *,
    down_bytes: float,
    up_bytes: float,
    up_links: Uplinks | None = None,
    serving: Serving | None = None,
) -> float:
    """From the beginning of a round until the server is done with the last update.

    Args:
        compute_s: of each client that takes part.
        down_bytes, up_bytes: of a model and of an update, with headers.
        up_links: of updates, where they are others than `links`.
        serving: None: the server takes no time, so that a round is that of its messages and clients.

    Raises:
        ValueError: nobody takes part, or a time is below 0 or not finite.
    """
    raise_all(
        None if compute_s else "compute_s: there is no client; give one or more",
        *(number(f"compute_s[{index}]", one, least=0, below=math.inf) for index, one in enumerate(compute_s)),
    )
    serving = serving or Serving()
    came_s = links.arrivals_s([serving.before_s] * len(compute_s), down_bytes)
    starts_s = [came + took for came, took in zip(came_s, compute_s, strict=True)]
    return serving.done_s((up_links or links).arrivals_s(starts_s, up_bytes))
