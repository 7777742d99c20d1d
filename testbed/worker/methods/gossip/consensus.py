"""How a replica comes nearer to its neighbours': by their parameters, or by compressed changes of public copies."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from compressors.base.compressor import Compressor, Context
from compressors.base.payload import from_bytes, to_bytes
from testbed.worker.device.clock import PhaseClock
from testbed.worker.methods.gossip.neighbors import Neighbourhood


class Consensus(Protocol):
    def mix(self, replica: Tensor, context: Context) -> None:
        """Exchange once with all neighbours, and change `replica`, float32, 1-D, in place."""


class Averaging:
    """x_i <- x_i + gamma (sum_j w_ij x_j - x_i), i among the j; with gamma = 1 the weighted mean.

    Sent: x_i as it is, 4 bytes a parameter and neighbour. Sums are taken in the order of ranks, so that equal weights
    of equal neighbours make the same bits. Keeps no state.
    """

    def __init__(self, near: Neighbourhood, weights: Mapping[int, float], gamma: float, clock: PhaseClock) -> None:
        self._near, self._weights, self._gamma, self._clock = near, weights, gamma, clock

    def mix(self, replica: Tensor, context: Context) -> None:
        arrived = self._near.swap(to_bytes(replica), context.layout, fixed_size=True)
        with self._clock.phase("optimizer"):
            mean = torch.zeros_like(replica)
            for rank, payload in arrived.items():
                mean.add_(from_bytes(payload, torch.float32), alpha=self._weights[rank])
            replica.lerp_(mean, self._gamma)


class Choco:
    """CHOCO: of each x_j there is a public copy y_j, the same on j and all its neighbours, which moves by compressed
    changes: q_j = Q(x_j - y_j), y_j <- y_j + q_j, and then x_i <- x_i + gamma sum_j w_ij (y_j - y_i).

    What Q leaves out is in the next difference, so it needs no error feedback beside. As the weights of a rank add up
    to 1, it keeps of all its neighbours' copies only sum_j w_ij y_j (its own among them), whatever their number.
    Sent: q_i, one payload to all neighbours. Keeps y_i and that sum, 8 bytes a parameter, and what the compressor does.
    """

    def __init__(
        self,
        near: Neighbourhood,
        weights: Mapping[int, float],
        gamma: float,
        clock: PhaseClock,
        *,
        compressor: Compressor,
        first: Tensor,
    ) -> None:
        """
        Args:
            first: what all public copies begin as: parameters that are the same on all ranks.
        """
        self._near, self._weights, self._gamma, self._clock = near, weights, gamma, clock
        self._compressor = compressor
        self._copy, self._around = first.clone(), first.clone()

    def mix(self, replica: Tensor, context: Context) -> None:
        compressor, rank = self._compressor, context.rank
        with self._clock.phase("compress"):
            payload = compressor.encode(replica - self._copy, context)
        arrived = self._near.swap(payload, context.layout, fixed_size=compressor.traits.fixed_size)
        with self._clock.phase("decompress"):
            for sender, change in arrived.items():
                sent = torch.empty_like(replica)
                compressor.decode(change, sent, dataclasses.replace(context, rank=sender))
                self._around.add_(sent, alpha=self._weights[sender])
                if sender == rank:
                    self._copy.add_(sent)
        with self._clock.phase("optimizer"):
            replica.add_(self._around - self._copy, alpha=self._gamma)
