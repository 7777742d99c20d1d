"""The code by which clients share their masks, so that any U of N recover the sum of masks and any T learn nothing.

So et al., "LightSecAgg: a Lightweight and Versatile Design for Secure Aggregation in Federated Learning", MLSys 2022,
arXiv:2109.14236. A mask of d elements is cut in U - T pieces of L = ceil(d / (U - T)), the last filled up with
zeros; T rows of L uniform elements are put below. Each column of these U rows is a polynomial's values at U points, and
client j's share its value at a point of j's own (Lagrange, as Yu et al., "Lagrange Coded Computing", AISTATS 2019,
arXiv:1806.00939). A sum of shares is the share of a sum.

- Any U shares are U values of a polynomial of degree U - 1, which they fix: the mask is its values at the first points.
- Any T shares say nothing: a polynomial of degree U - 1 that is 0 at T clients' points and at those of all U - T pieces
  is 0. So the T x T matrix from the random rows to any T shares has an inverse, and for every mask exactly one choice
  of random rows gives these shares.
- Between them, T + r shares give r combinations of pieces, of L elements each: not nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from testbed.core.parameters import choice, raise_all, whole
from testbed.worker.methods.federated.secure_aggregation.prime_field import (
    ELEMENT_BYTES,
    MERSENNE_31,
    Elements,
    PrimeField,
    Randomness,
    prime_fault,
)

MAX_CLIENTS = 4096
KEY_BYTES = 32
"""Of two clients, and of what one vouches to the other with it."""
CURIOUS, DEVIATING = "curious", "deviating"
SERVERS = (CURIOUS, DEVIATING)


class TooFewError(ValueError):
    """Fewer clients are left than the code needs: the round has no sum."""


@dataclass(frozen=True, kw_only=True)
class MaskCode:
    """N clients of which D = N - U may drop out.

    Raises:
        ValueError: a parameter is out of its range, U is not above T, the prime has fewer than N + U elements, or, with
            a server that deviates, 2 U is not above N + T; all of it, one a line.
    """

    clients: int
    """N."""
    privacy: int
    """T: so many clients and the server together learn of the others' updates their sum alone."""
    needed: int
    """U: so many answers recover the sum."""
    server: str = DEVIATING
    """"curious": keeps to the protocol, as in the paper. "deviating": may ask different clients for different sums; two
    groups of U then have more than T clients in common, of which one at least is honest and vouches for one sum only.
    """
    prime: int = MERSENNE_31

    def __post_init__(self) -> None:
        faults = [
            whole("clients", self.clients, 2, MAX_CLIENTS),
            whole("privacy", self.privacy, 1, MAX_CLIENTS),
            whole("needed", self.needed, 1, MAX_CLIENTS),
            choice("server", self.server, SERVERS),
            prime_fault(self.prime),
        ]
        raise_all(*faults)
        n, t, u = self.clients, self.privacy, self.needed
        two_sums = self.server == DEVIATING and 2 * u <= n + t
        raise_all(
            None if u <= n else f"needed={u}: of {n} clients; take {n} or fewer",
            None if u > t else f"needed={u}: {t} clients learn nothing by privacy={t}, so take more than {t}",
            f"needed={u}: a server that deviates could have two sums of {n} clients, {t} of which collude; take"
            f" {(n + t) // 2 + 1} or more, or server={CURIOUS}"
            if two_sums
            else None,
            None if self.prime >= n + u else f"prime={self.prime}: {n} + {u} points are needed; take a larger one",
        )

    @cached_property
    def field(self) -> PrimeField:
        return PrimeField(self.prime)

    @property
    def dropouts(self) -> int:
        """D: so many may answer nothing."""
        return self.clients - self.needed

    @property
    def pieces(self) -> int:
        """U - T: parts of a mask; and the fewest honest clients in a sum, with T that collude."""
        return self.needed - self.privacy

    def share_elements(self, size: int) -> int:
        """L, of a mask of `size` elements."""
        return math.ceil(size / self.pieces)

    @cached_property
    def matrix(self) -> Elements:
        """(N, U): what each client's share takes of each row; the last T columns are of the random rows."""
        return self.field.lagrange(self._row_points(), self._client_points(range(self.clients)))

    def encode(self, mask: Elements, randomness: Randomness) -> Elements:
        """(N, L): the share of each client.

        Args:
            mask: one row.
        """
        length = self.share_elements(len(mask))
        rows = np.zeros((self.needed, length), np.int64)
        rows[: self.pieces].reshape(-1)[: len(mask)] = mask
        rows[self.pieces :] = randomness.elements(self.privacy * length, self.prime).reshape(self.privacy, length)
        return self.field.matmul(self.matrix, rows)

    def recover(self, shares: Mapping[int, Elements], size: int) -> Elements:
        """The mask, or the sum of masks, of which these are the shares, or sums of shares.

        Args:
            shares: of U clients or more; those beyond U are only compared.

        Raises:
            TooFewError: there are fewer than U.
            ValueError: they are not of one mask.
        """
        if len(shares) < self.needed:
            raise TooFewError(f"answers of clients {sorted(shares)} alone: {self.needed} are needed; begin a new round")
        clients = sorted(shares)
        chosen, others = clients[: self.needed], clients[self.needed :]
        known = self._client_points(chosen)
        rows = np.stack([shares[client] for client in chosen])
        if others:
            told = self.field.matmul(self.field.lagrange(known, self._client_points(others)), rows)
            if not np.array_equal(told, np.stack([shares[client] for client in others])):
                raise ValueError(f"the answers of clients {clients} are not of one mask; begin a new round")
        pieces = self.field.matmul(self.field.lagrange(known, self._row_points()[: self.pieces]), rows)
        return pieces.reshape(-1)[:size]

    def share_bytes(self, size: int) -> int:
        """From one client to one other, before the round: 4 L, and a key where clients vouch."""
        return ELEMENT_BYTES * self.share_elements(size) + (KEY_BYTES if self.server == DEVIATING else 0)

    def survivors_bytes(self) -> int:
        """From the server to one client: a bit for each client."""
        return math.ceil(self.clients / 8)

    def _row_points(self) -> Elements:
        return np.arange(self.needed, dtype=np.int64)

    def _client_points(self, clients: Sequence[int]) -> Elements:
        return self.needed + np.asarray(clients, np.int64)
