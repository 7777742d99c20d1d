"""Sums of clients' updates of which the server sees no single one, with clients that drop out: both sides of a round.

After So et al., "LightSecAgg", MLSys 2022, arXiv:2109.14236; `mask_code` has the algebra.

    each client   begin     draws a mask, and sends every other client its share of it
                  mask      sends the server its update plus the mask, in a prime field
    the server    close     tells everybody whose masked updates it has: the survivors
    each client   vouch     promises every other one to answer for these survivors alone
                  answer    sends the server the sum of the survivors' shares that it has
    the server    total     recovers the sum of the survivors' masks from any U answers, in one go, and takes it off

Shares must reach their clients unread: a channel between clients that is encrypted from end to end, also where the
server carries it. A server that reads them, or makes up more than T clients, learns all.

Differs from the paper, whose server keeps to the protocol: one that deviates must not get the sums over two sets of
survivors, since their difference may be a single update. So a client masks one update with a mask, and answers once a
round, for U survivors or more; and, as fewer than U answers already tell parts of a sum, not before U clients have
vouched for the same survivors (which is how Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving
Machine Learning", CCS 2017, have clients agree on them). With 2 U > N + T no two sets have so many vouchers.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from testbed.core.parameters import raise_all, whole
from testbed.worker.methods.federated.secure_aggregation.mask_code import DEVIATING, KEY_BYTES, MaskCode, TooFewError
from testbed.worker.methods.federated.secure_aggregation.prime_field import Elements, Randomness

_ROUND_BYTES = 8


class RefusedError(ValueError):
    """What a client is asked that would break its privacy, or that it cannot do."""


@dataclass(frozen=True, repr=False)
class Share:
    """From one client to another, for no other eyes."""

    elements: Elements
    key: bytes
    """With which the sender vouches to the receiver; empty with a server that is only curious."""


@dataclass(repr=False)
class _Round:
    """What a client has in one. Secrets: in no checkpoint."""

    mask: Elements
    shares: dict[int, Share]
    """That it holds, its own among them."""
    keys: dict[int, bytes]
    """That it gave each other client."""
    masked: bool = False
    vouched: frozenset[int] | None = None
    answered: bool = False


@dataclass
class SecureClient:
    """One client, in one round after another.

    Args:
        index: of this client, from 0.
        size: elements of an update.
        randomness: of masks; by default from the system's cryptographic source.

    Raises:
        ValueError: a parameter is out of its range; all of them, one a line.
    """

    code: MaskCode
    index: int
    size: int
    randomness: Randomness = field(default_factory=Randomness)
    _last: int = field(default=-1, init=False)
    """The round begun last."""
    _round: _Round | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        raise_all(whole("index", self.index, 0, self.code.clients - 1), whole("size", self.size, 1))

    def begin(self, number: int) -> dict[int, Share]:
        """Of a round: the share for each other client, of a mask that is drawn for this round.

        Raises:
            RefusedError: the round has been begun before, or a later one.
            ValueError: `number` is no whole number from 0 on.
        """
        raise_all(whole("number", number, 0))
        if number <= self._last:
            raise RefusedError(f"round {number}: client {self.index} has begun round {self._last}; take a later one")
        mask = self.randomness.elements(self.size, self.code.prime)
        encoded = self.code.encode(mask, self.randomness)
        key_bytes = KEY_BYTES if self.code.server == DEVIATING else 0
        keys = {client: self.randomness.draw(key_bytes) for client in range(self.code.clients)}
        shares = {client: Share(encoded[client], keys[client]) for client in range(self.code.clients)}
        self._last, self._round = number, _Round(mask, {self.index: shares.pop(self.index)}, keys)
        return shares

    def take_share(self, sender: int, share: Share) -> None:
        """
        Raises:
            RefusedError: it is a second one, or none of this code.
        """
        now = self._now()
        if sender not in range(self.code.clients) or sender in now.shares:
            raise RefusedError(f"client {self.index} needs no share of client {sender}, or has it already")
        if len(share.key) != len(now.keys[sender]):
            raise RefusedError(f"client {sender} gave a key of {len(share.key)} bytes, not {len(now.keys[sender])}")
        try:
            self.code.field.checked(share.elements, self.code.share_elements(self.size))
        except ValueError as error:
            raise RefusedError(f"the share of client {sender}: {error}") from error
        now.shares[sender] = share

    def mask(self, update: Elements) -> Elements:
        """The update plus the mask.

        Args:
            update: encoded, as by `FixedPoint`.

        Raises:
            RefusedError: a second update: the difference of two is not masked.
            ValueError: the update is none of this size and field.
        """
        now = self._now()
        if now.masked:
            raise RefusedError(f"client {self.index} has masked an update in round {self._last}; begin another round")
        self.code.field.checked(update, self.size)
        now.masked = True
        return self.code.field.sum([update, now.mask])

    def vouch(self, survivors: Iterable[int]) -> dict[int, bytes]:
        """What tells each other survivor that this client answers for these survivors alone.

        Raises:
            RefusedError: it has vouched for others in this round, or could not answer for these.
        """
        now, asked = self._now(), self._answerable(survivors)
        if now.vouched not in (None, asked):
            raise RefusedError(f"client {self.index} has vouched for other survivors in round {self._last}")
        now.vouched = asked
        return {client: self._voucher(now.keys[client], asked) for client in asked if client != self.index}

    def answer(self, survivors: Iterable[int], vouchers: Mapping[int, bytes] | None = None) -> Elements:
        """The sum of the survivors' shares that this client holds.

        Args:
            vouchers: what other clients gave for this one, by client; for a server that may deviate.

        Raises:
            RefusedError: it has answered in this round, there are fewer than U survivors, it has no share of one, or
                fewer than U clients, itself among them, vouch for these survivors.
        """
        now, asked = self._now(), self._answerable(survivors)
        if now.answered:
            raise RefusedError(f"client {self.index} has answered in round {self._last}, and answers once a round")
        if self.code.server == DEVIATING:
            self._require_vouchers(now, asked, vouchers or {})
        now.answered = True
        return self.code.field.sum([now.shares[client].elements for client in asked])

    def _now(self) -> _Round:
        if self._round is None:
            raise RefusedError(f"client {self.index} is in no round; begin one")
        return self._round

    def _answerable(self, survivors: Iterable[int]) -> frozenset[int]:
        asked, held = frozenset(survivors), self._now().shares
        if len(asked) < self.code.needed:
            raise RefusedError(f"survivors {sorted(asked)}: client {self.index} answers for {self.code.needed} or more")
        if missing := sorted(asked - held.keys()):
            raise RefusedError(f"client {self.index} has no share of clients {missing}; leave them out")
        return asked

    def _require_vouchers(self, now: _Round, asked: frozenset[int], vouchers: Mapping[int, bytes]) -> None:
        if now.vouched != asked:
            raise RefusedError(f"client {self.index} has not vouched for survivors {sorted(asked)}")
        agreed = {self.index} | {
            client
            for client, voucher in vouchers.items()
            if client in now.shares and hmac.compare_digest(voucher, self._voucher(now.shares[client].key, asked))
        }
        if len(agreed) < self.code.needed:
            raise RefusedError(f"clients {sorted(agreed)} alone vouch for these survivors: {self.code.needed} must")

    def _voucher(self, key: bytes, survivors: frozenset[int]) -> bytes:
        members = np.isin(np.arange(self.code.clients), list(survivors))
        body = self._last.to_bytes(_ROUND_BYTES, "little") + np.packbits(members).tobytes()
        return hmac.digest(key, body, "sha256")


@dataclass
class SecureSum:
    """The server's side of one round, which a crash ends: masks are used once.

    Raises:
        ValueError: `size` is out of its range.
    """

    code: MaskCode
    size: int
    """Elements of an update."""
    _masked: dict[int, Elements] = field(default_factory=dict, init=False, repr=False)
    _answers: dict[int, Elements] = field(default_factory=dict, init=False, repr=False)
    _survivors: tuple[int, ...] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        raise_all(whole("size", self.size, 1))

    def take_masked(self, client: int, masked: Elements) -> None:
        """
        Raises:
            ValueError: it comes late or twice, or is none of this size and field.
        """
        if self._survivors is not None:
            raise ValueError(f"client {client} comes late: this sum is of clients {list(self._survivors)}")
        self._take(self._masked, client, masked, self.size)

    def close(self) -> tuple[int, ...]:
        """Whose masked updates are there: the survivors, of whom the sum will be.

        Raises:
            TooFewError: there are fewer than U.
        """
        if len(self._masked) < self.code.needed:
            raise TooFewError(
                f"masked updates of clients {sorted(self._masked)} alone: {self.code.needed} are needed;"
                " begin a new round"
            )
        self._survivors = tuple(sorted(self._masked))
        return self._survivors

    def take_answer(self, client: int, answer: Elements) -> None:
        """
        Raises:
            ValueError: survivors are not known yet, it comes twice, or is none of this size and field.
        """
        if self._survivors is None:
            raise ValueError(f"client {client} answers before it can know for whom; close first")
        self._take(self._answers, client, answer, self.code.share_elements(self.size))

    def total(self) -> Elements:
        """The sum of the survivors' updates.

        Raises:
            TooFewError: fewer than U clients have answered.
            ValueError: an answer beyond U of them shows that one is wrong; of exactly U none can.
        """
        masks = self.code.recover(self._answers, self.size)
        return self.code.field.sum([*self._masked.values(), -masks])

    def _take(self, taken: dict[int, Elements], client: int, elements: Elements, count: int) -> None:
        if client not in range(self.code.clients) or client in taken:
            raise ValueError(f"client {client} is none of {self.code.clients}, or was heard already")
        try:
            taken[client] = self.code.field.checked(elements, count)
        except ValueError as error:
            raise ValueError(f"client {client}: {error}") from error
