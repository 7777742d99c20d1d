"""Costs of links during the run: estimated from the time of exchanges, and agreed on by all ranks."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from compressors.base import alpha_beta
from compressors.base.compressor import Exchange
from testbed.worker.communication.communicator import Communicator

EVERY_STEPS = 10
"""Steps between two agreements."""
_UNKNOWN = 1e-3, 8e-8
"""Seconds of a message and of a byte that are assumed until unknown links are measured: 1 ms, and 100 Mbit/s."""
_GAIN = 0.5
"""Share of an error that one agreement takes back."""
_KEPT = 0.95
"""Share that an agreement leaves of a deviation which the steps did not show."""
_FARTHEST = math.log(1e6)
"""Largest distance of a factor from 1, in logarithms."""


class LinkMeter:
    """Estimate of alpha and beta, the seconds of a message and of a byte, from the time that exchanges are in flight.

    Both are multiples of the target values. Each agreement moves the logarithms of the two factors, by as little as
    can be, so that they take back half of what they were wrong by in the steps since the last one (normalised least
    mean squares: Widrow, Hoff, "Adaptive Switching Circuits", IRE WESCON 1960): mostly latency changes alpha, mostly
    bytes change beta. A link is known where it is used: few bytes say little of beta. A factor that the steps said
    nothing of moves by a twentieth towards its target, so that a link which has recovered is found out.

    The seconds are the least over ranks: the others have waited for a rank that was late. Exchanges of one round are
    taken to overlap. Seconds are emulated ones.
    """

    def __init__(self, asked: tuple[float, float], comm: Communicator, dilation: float) -> None:
        """Begin with the target values.

        Args:
            asked: alpha_s and beta_s_byte of the topology; zeros if there is none.
        """
        self.is_known = any(asked)
        self._unit_s = asked if self.is_known else _UNKNOWN
        self._kept = _KEPT if self.is_known else 1.0
        self._logarithms = [0.0, 0.0]
        self._comm, self._dilation = comm, dilation
        self._messages_of_round: dict[int, int] = {}
        self._since_s = 0.0
        self._steps, self._last_step = 0, -1
        self._messages, self._sent_bytes, self._seconds = 0, 0.0, 0.0

    @property
    def link(self) -> tuple[float, float]:
        """Estimate (alpha_s, beta_s_byte); zeros as long as nothing is known."""
        if not self.is_known:
            return 0.0, 0.0
        alpha_s, beta_s_byte = (math.exp(x) * unit for x, unit in zip(self._logarithms, self._unit_s, strict=True))
        return alpha_s, beta_s_byte

    def begin(self, step: int) -> None:
        """Note that an exchange of `step` is about to start; the first one counts."""
        if not self._messages_of_round:
            self._since_s = self._comm.stopwatch.so_far_s()
        self._steps += step != self._last_step
        self._last_step = step

    def count(self, exchange: Exchange, round_: int) -> None:
        """Count an exchange that starts."""
        messages, sent_bytes = _cost(exchange, self._comm.world_size)
        self._messages_of_round[round_] = max(messages, self._messages_of_round.get(round_, 0))
        self._sent_bytes += sent_bytes

    def end(self) -> Exchange | None:
        """Note that all started exchanges have ended; return the question to all ranks, if it is time for one."""
        if self._messages_of_round:
            self._seconds += (self._comm.stopwatch.so_far_s() - self._since_s) / self._dilation
            self._messages += sum(self._messages_of_round.values())
            self._messages_of_round = {}
        if self._steps < EVERY_STEPS:
            return None
        found = torch.tensor([float(self._messages), self._sent_bytes, -self._seconds])
        self._steps, self._messages, self._sent_bytes, self._seconds = 0, 0, 0.0, 0.0
        return Exchange(kind="all_reduce", data=[found], op="max")

    def learn(self, agreed: Tensor) -> None:
        """Correct the estimate.

        Args:
            agreed: Result of `end`'s exchange, the same on all ranks: (3,) float32.
        """
        messages, sent_bytes, least_s = agreed[0].item(), agreed[1].item(), -agreed[2].item()
        amounts = messages * self._unit_s[0], sent_bytes * self._unit_s[1]
        parts_s = [math.exp(x) * amount for x, amount in zip(self._logarithms, amounts, strict=True)]
        expected_s = sum(parts_s)
        if not (least_s > 0 and expected_s > 0):
            return
        shares = [part_s / expected_s for part_s in parts_s]
        energy = sum(share * share for share in shares)
        seen = sum(share * x for share, x in zip(shares, self._logarithms, strict=True)) / energy
        step = _GAIN * math.log(least_s / expected_s) / energy
        self._logarithms = [
            min(max(self._kept * x + ((1 - self._kept) * seen + step) * share, -_FARTHEST), _FARTHEST)
            for x, share in zip(self._logarithms, shares, strict=True)
        ]
        self.is_known = True


def _cost(exchange: Exchange, world_size: int) -> tuple[int, float]:
    """Return (messages after one another, bytes a rank sends), by the formulas of `compressors.base.alpha_beta`."""
    if exchange.kind == "all_reduce":
        return 2 * (world_size - 1), alpha_beta.all_reduce_sent_bytes(exchange.data[0].nbytes, world_size)
    if exchange.kind == "all_gather":
        width = max(exchange.sizes or [exchange.data[0].nbytes])
        return world_size - 1, alpha_beta.all_gather_sent_bytes(width, world_size)
    return 1, alpha_beta.all_to_all_sent_bytes(sum(payload.nbytes for payload in exchange.data), world_size)
