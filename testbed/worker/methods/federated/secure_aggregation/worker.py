"""A worker's part of secure sums: what it exchanges with the server beside the model and its reports."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from testbed.core.errors import RunError
from testbed.worker.methods.federated.aggregation.state import FederatedState
from testbed.worker.methods.federated.secure_aggregation.encryption import PUBLIC_KEY_BYTES, Sealer, UnsealError
from testbed.worker.methods.federated.secure_aggregation.fixed_point import FixedPoint
from testbed.worker.methods.federated.secure_aggregation.messages import KEY, Messages, joined, rows
from testbed.worker.methods.federated.secure_aggregation.prime_field import Elements
from testbed.worker.methods.federated.secure_aggregation.secure import Secure
from testbed.worker.methods.federated.secure_aggregation.secure_sum import RefusedError, SecureClient
from testbed.worker.methods.federated.secure_aggregation.vector import Row, SecureVector
from testbed.worker.methods.parameter_server.rounds.exchanges import Answering


class SecureWorker:
    """A `testbed.worker.methods.parameter_server.rounds.exchanges.Exchanging`: `secure_messages` has what it says,
    `secure_sum` why.

    A worker that has come back is in no secure sum until the next round.

    Args:
        worker: its number, from 0, of `workers`.
        seed: of the run.
    """

    def __init__(
        self, worker: int, workers: int, secure: Secure, vector: SecureVector, state: FederatedState, seed: int
    ) -> None:
        self._worker, self._workers, self._secure, self._seed = worker, workers, secure, seed
        self._vector, self._state = vector, state
        self._fixed: FixedPoint = secure.fixed_point(workers)
        self._messages = Messages(secure.code(workers), vector.size)
        self._client = SecureClient(self._messages.code, worker, vector.size)
        self._begun: int | None = None
        """The round of which this worker has given shares."""
        self._held: set[int] = set()
        """Of whom it has one."""
        self._row: Row | None = None

    def before(self, round_: int, answering: Answering) -> None:
        """Give shares of this round's mask, and take those of the others."""
        messages, sealer = self._messages, Sealer(round_, self._worker)
        answering.answer(round_, KEY, {"key": sealer.public})
        said = answering.asked(round_, messages.keys)["keys"]
        keys = rows(said, range(self._workers), PUBLIC_KEY_BYTES)
        if keys.pop(self._worker, None) != sealer.public:
            raise RunError(f"round {round_}: the server tells others another public key of worker {self._worker}")
        form = messages.sealed(len(keys) + 1)
        with answering.work("compress"):
            sealed = self._sealed(round_, sealer, keys)
        answering.answer(round_, form, {"sealed": joined(sealed, keys, messages.sealed_bytes)})
        came = rows(answering.asked(round_, form)["sealed"], keys, messages.sealed_bytes)
        with answering.work("decompress"):
            self._held = {self._worker} | {one for one, row in came.items() if self._takes(sealer, one, keys[one], row)}
        self._begun = round_

    def clear(self, values: Sequence[Tensor], reference: Sequence[Tensor]) -> list[Tensor]:
        """Reports alone; what is to be summed is kept for `after`."""
        self._row = self._vector.row(values, reference, self._state.owners.tolist(), self._worker)
        return self._vector.clear(values, reference)

    def after(self, round_: int, answering: Answering) -> None:
        """Give the masked row, and then the sum of the survivors' shares."""
        row, self._row = self._row, None
        if self._begun != round_:
            return
        self._begun, messages = None, self._messages
        assert row is not None, "an update was sent"
        with answering.work("compress"):
            masked = self._masked(round_, row)
        if isinstance(masked, str):
            answering.answer(round_, messages.masked, masked)
            return
        said = {"masked": messages.field.to_bytes(masked), "held": messages.bits(self._held)}
        answering.answer(round_, messages.masked, said)
        survivors = messages.workers(answering.asked(round_, messages.survivors)["survivors"])
        vouchers = self._vouch(round_, survivors, answering) if messages.vouches else {}
        if vouchers is None:
            return
        try:
            with answering.work("compress"):
                answer = messages.field.to_bytes(self._client.answer(survivors, vouchers))
        except RefusedError as error:
            answering.answer(round_, messages.answer, str(error))
        else:
            answering.answer(round_, messages.answer, {"answer": answer})

    def _sealed(self, round_: int, sealer: Sealer, keys: dict[int, bytes]) -> dict[int, bytes]:
        """The share for each of those whose keys these are; none for whose is no key."""
        shares, found = self._client.begin(round_), {}
        for other, key in keys.items():
            try:
                found[other] = sealer.seal(self._messages.share_bytes(shares[other]), other, key)
            except UnsealError:
                pass  # it lacks this share, and will say so
        return found

    def _takes(self, sealer: Sealer, sender: int, key: bytes, sealed: bytes) -> bool:
        """Whether that is a share."""
        try:
            self._client.take_share(sender, self._messages.share(sealer.unseal(sealed, sender, key)))
        except ValueError:  # not sealed by it, or none of this code
            return False
        return True

    def _masked(self, round_: int, row: Row) -> Elements | str:
        """A text: it drops out, and why."""
        if self._worker in self._secure.dropped(self._seed, round_, self._workers):
            return f"drops out, as drop={self._secure.drop:g} asks"
        try:
            return self._client.mask(self._fixed.encode(row))
        except ValueError as error:
            return str(error)

    def _vouch(self, round_: int, survivors: list[int], answering: Answering) -> dict[int, bytes] | None:
        """What others vouch to this worker; None: it cannot answer for these."""
        form = self._messages.vouchers(len(survivors))
        others = [one for one in survivors if one != self._worker]
        try:
            own = self._client.vouch(survivors)
        except RefusedError as error:
            answering.answer(round_, form, str(error))
            return None
        row_bytes = form.raw_bytes // max(1, len(others))
        answering.answer(round_, form, {"vouchers": joined(own, others, row_bytes)})
        return rows(answering.asked(round_, form)["vouchers"], others, row_bytes)
