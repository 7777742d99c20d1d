"""Workers of secure sums that die, or say what no sum can be made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from torch import Tensor

from testbed.core.errors import RunError
from testbed.worker.methods.federated.secure_aggregation.encryption import Sealer
from testbed.worker.methods.federated.secure_aggregation.messages import KEY, Messages
from testbed.worker.methods.federated.secure_aggregation.prime_field import MERSENNE_31, Elements
from testbed.worker.methods.federated.secure_aggregation.vector import Row
from testbed.worker.methods.parameter_server.rounds.exchanges import Answering, Said
from testbed.worker.methods.parameter_server.transport.frames import Coded, Frame, Kind, Payload
from testbed.worker.methods.parameter_server.transport.streams import send
from testbed.worker.methods.parameter_server.transport.tensor_schema import Schema
from tests.unit.worker.secure_net import Kept
from tests.unit.worker.server_net import KEY as KEY_OF_RUN
from tests.unit.worker.server_net import PACE, soon


class Dies(Kept):
    """Once it has given shares."""

    def clear(self, values: Sequence[Tensor], reference: Sequence[Tensor]) -> list[Tensor]:
        self.link.close()
        raise RunError("it is dead")


class DiesLater(Kept):
    """Once it has given its masked update."""

    def _vouch(self, round_: int, survivors: list[int], answering: Answering) -> dict[int, bytes] | None:
        self.link.close()
        raise RunError("it is dead")


class Longer(Kept):
    """Gives an element too much."""

    def after(self, round_: int, answering: Answering) -> None:
        more = Messages(self._messages.code, self._messages.size + 1)
        said = {"masked": bytes(4 * more.size), "held": more.bits(self._held)}
        answering.answer(round_, more.masked, said)
        answering.asked(round_, more.survivors)


class Padded(Kept):
    """Gives more bytes than its elements take."""

    def after(self, round_: int, answering: Answering) -> None:
        form, bits = self._messages.masked, self._messages.bits(self._held)
        elements = Coded(
            index=1, codec="raw", raw_bytes=4 * self._messages.size, data=bytes(4 * self._messages.size + 4)
        )
        tensors = Coded(index=0, codec="raw", raw_bytes=len(bits), data=bits), elements
        given: Any = {"kind": Kind.ANSWER, "sender": self._worker, "payload": Payload.DATA, "tensors": tensors}
        pieces = Frame(**given, schema_hash=form.hash, round=round_).pack(KEY_OF_RUN)
        send(self.link, pieces, answering._wire.expected(Kind.MODEL), deadline_s=soon(), pace=PACE)
        answering.asked(round_, self._messages.survivors)


class Beyond(Kept):
    """Gives elements that are none of the field."""

    def _masked(self, round_: int, row: Row) -> Elements | str:
        return np.full(len(row), MERSENNE_31)


class BeyondLater(Kept):
    """Answers with such elements."""

    def _vouch(self, round_: int, survivors: list[int], answering: Answering) -> dict[int, bytes] | None:
        vouchers = super()._vouch(round_, survivors, answering)
        form = self._messages.answer
        answering.answer(round_, form, {"answer": b"\xff" * form.raw_bytes})
        answering.asked(round_, form)
        return vouchers


class Twice(Kept):
    """Gives its masked update twice."""

    def _vouch(self, round_: int, survivors: list[int], answering: Answering) -> dict[int, bytes] | None:
        said = {"masked": bytes(4 * self._messages.size), "held": self._messages.bits(self._held)}
        answering.answer(round_, self._messages.masked, said)
        return super()._vouch(round_, survivors, answering)


class BadShares(Kept):
    """Gives shares that nobody can open."""

    def _sealed(self, round_: int, sealer: Sealer, keys: dict[int, bytes]) -> dict[int, bytes]:
        return {to: bytes([1]) * len(row) for to, row in super()._sealed(round_, sealer, keys).items()}


class NoKey(Kept):
    def before(self, round_: int, answering: Answering) -> None:
        answering.answer(round_, KEY, {"key": bytes(32)})
        answering.asked(round_, self._messages.keys)


class SmallOrder(Kept):
    """Its public key has nothing in common with any other."""

    def before(self, round_: int, answering: Answering) -> None:
        super().before(round_, cast(Answering, Forging(answering, self._worker)))


class Forging:
    """A worker's end of exchanges, by which another public key than its own goes out."""

    def __init__(self, answering: Answering, worker: int) -> None:
        self._answering, self._worker, self.work = answering, worker, answering.work

    def answer(self, round_: int, form: Schema, said: Said | str) -> None:
        if form is KEY and not isinstance(said, str):
            self._own, said = said["key"], {"key": bytes([1, *[0] * 31])}
        self._answering.answer(round_, form, said)

    def asked(self, round_: int, form: Schema) -> Said:
        said = dict(self._answering.asked(round_, form))
        if "keys" in said:
            at = 32 * self._worker
            said["keys"] = said["keys"][:at] + self._own + said["keys"][at + 32 :]
        return said
