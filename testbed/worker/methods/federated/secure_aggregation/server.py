"""A server that learns its workers' sum alone: the federated server, with its half of secure sums."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from testbed.core.errors import RunError
from testbed.core.files import printable
from testbed.core.kinds import shown
from testbed.core.record.events.base import StepEvent
from testbed.core.record.events.server import SecureRound
from testbed.worker.methods.federated.aggregation.rules import Rule
from testbed.worker.methods.federated.aggregation.state import FederatedState
from testbed.worker.methods.federated.aggregation.weighting import Sent
from testbed.worker.methods.federated.fleet import Fleet
from testbed.worker.methods.federated.secure_aggregation.encryption import PUBLIC_KEY_BYTES
from testbed.worker.methods.federated.secure_aggregation.mask_code import TooFewError
from testbed.worker.methods.federated.secure_aggregation.messages import KEY, Messages, joined, rows
from testbed.worker.methods.federated.secure_aggregation.secure import Secure
from testbed.worker.methods.federated.secure_aggregation.secure_sum import SecureSum
from testbed.worker.methods.federated.secure_aggregation.vector import SecureVector
from testbed.worker.methods.federated.server_model import Federation, Gathered, Places
from testbed.worker.methods.parameter_server.messages.schema import Schema
from testbed.worker.methods.parameter_server.rounds.aggregator import Mean
from testbed.worker.methods.parameter_server.rounds.exchanges import Asking, Said
from testbed.worker.methods.parameter_server.transport.tensor_schema import Schema as Form


class SecureGathered(Gathered):
    """A round's mean, of the survivors alone: their reports, and the sum of what they have masked."""

    def __init__(self, schema: Schema, places: Places, fleet: Fleet, rule: Rule) -> None:
        super().__init__(schema, places, fleet, rule, None)
        self._means: Mapping[int, Tensor] = {}

    def recovered(self, survivors: Collection[int], means: Mapping[int, Tensor]) -> None:
        """
        Args:
            means: by place in the schema, of all of the model.
        """
        self._came = {worker: tensors for worker, tensors in self._came.items() if worker in survivors}
        self._means = means

    def mean(self) -> list[Tensor]:
        return [self._means.get(place, value) for place, value in enumerate(super().mean())]

    def _total(self, sent: Mapping[int, list[Sent]]) -> list[Tensor]:
        return [self._means[place] for place in self._places.learning]


@dataclass
class _Round:
    number: int
    sum: SecureSum
    shares_s: float = 0.0
    bytes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("share", "masked", "answer"), 0))
    there: list[int] = field(default_factory=list)
    """Who has given shares."""
    dropped: dict[int, str] = field(default_factory=dict)
    """Who has no part in the sum, or in its recovery, and why."""


class SecureFederation(Federation):
    """Of a federated server that sees sums alone.

    Args:
        workers: how many the run has.
        record: is given the event of each round.
    """

    def __init__(
        self,
        state: FederatedState,
        fleet: Fleet,
        rule: Rule,
        secure: Secure,
        vector: SecureVector,
        workers: int,
        record: Callable[[StepEvent], None],
    ) -> None:
        super().__init__(state, fleet, rule, None)
        self._fixed, self._vector = secure.fixed_point(workers), vector
        self._messages = Messages(secure.code(workers), vector.size)
        self._privacy, self._workers, self._record = secure.privacy, workers, record
        self._asking: Asking | None = None
        self._gathered: SecureGathered | None = None
        self._now: _Round | None = None

    def mean(self, schema: Schema, clients: Sequence[int]) -> Mean:
        self._gathered = SecureGathered(schema, Places(schema, self._state), self._fleet, self._rule)
        return self._gathered

    def meet(self, asking: Asking) -> None:
        self._asking = asking

    def before(self, round_: int, clients: Collection[int]) -> None:
        """Carry the workers' shares.

        Raises:
            RunError: too few of them give any.
        """
        asking, messages, begun_s = self._met, self._messages, time.monotonic()
        now = self._now = _Round(round_, SecureSum(messages.code, messages.size))
        keys = {worker: said["key"] for worker, said in self._answers(KEY, clients).items()}
        for worker in [one for one, key in keys.items() if not any(key)]:
            del keys[worker]
            self._out(now, worker, KEY, "a key of zeros", "a public key")
        self._require(len(keys), "give a public key")
        told = {"keys": joined(keys, range(self._workers), PUBLIC_KEY_BYTES)}
        asking.ask(round_, messages.keys, dict.fromkeys(keys, told))
        there = sorted(keys)
        form = messages.sealed(len(there))
        given = {
            worker: rows(said["sealed"], _others(there, worker), messages.sealed_bytes)
            for worker, said in self._answers(form, there).items()
        }
        now.there = sorted(given)
        self._require(len(given), "give shares")
        now.bytes["share"] = form.raw_bytes * len(given)
        asking.ask(round_, form, {worker: {"sealed": self._for(worker, given, there)} for worker in given})
        now.shares_s = (time.monotonic() - begun_s) / asking.dilation

    def after(self, round_: int, reference: Sequence[Tensor]) -> Collection[int]:
        """Take the masked rows, and recover what they sum to; whose they are.

        Raises:
            RunError: too few are left.
        """
        now, asking, gathered = self._now, self._met, self._gathered
        assert now is not None and now.number == round_ and gathered is not None, "the round has begun"
        self._take_masked(now)
        begun_s = time.monotonic()
        try:
            survivors = now.sum.close()
            told = {"survivors": self._messages.bits(survivors)}
            asking.ask(round_, self._messages.survivors, dict.fromkeys(survivors, told))
            self._take_answers(now, self._vouched(now, survivors) if self._messages.vouches else survivors)
            with asking.work("decompress"):
                summed = self._fixed.decode(now.sum.total())
                owners = self._fleet.owners
                gathered.recovered(survivors, self._vector.means(summed, reference, owners, survivors))
        except (TooFewError, ValueError) as error:
            raise RunError(f"round {round_}: secure sum: {error}", *_told(now.dropped)) from error
        recovery_s = (time.monotonic() - begun_s) / asking.dilation
        self._now = None
        self._record(
            SecureRound(
                round=round_,
                workers=len(now.there),
                survivors=list(survivors),
                dropped={str(worker): why for worker, why in sorted(now.dropped.items())},
                shares_s=now.shares_s,
                recovery_s=recovery_s,
                **{f"{name}_bytes": count for name, count in now.bytes.items()},
            )
        )
        return survivors

    @property
    def _met(self) -> Asking:
        assert self._asking is not None, "a server has met it"
        return self._asking

    def _answers(self, form: Form, workers: Collection[int]) -> dict[int, Said]:
        """Of those that have one; why the others have none is kept."""
        now, asking, found = self._now, self._met, dict[int, Said]()
        assert now is not None, "a round has begun"
        for worker, said in asking.answers(now.number, form, workers):
            if isinstance(said, str):
                now.dropped[worker] = printable(shown(said))
            else:
                found[worker] = said
        for worker in set(workers) - found.keys() - now.dropped.keys():
            now.dropped[worker] = "is out"
        return dict(sorted(found.items()))

    def _require(self, count: int, what: str) -> None:
        now, needed = self._now, self._messages.code.needed
        assert now is not None, "a round has begun"
        if count < needed:
            told = f"round {now.number}: secure sum: {count} workers {what}, and {needed} are needed"
            raise RunError(told, *_told(now.dropped))

    def _for(self, worker: int, given: Mapping[int, dict[int, bytes]], there: list[int]) -> bytes:
        """What each other one has given for it."""
        own = {sender: sealed[worker] for sender, sealed in given.items() if worker in sealed}
        return joined(own, _others(there, worker), self._messages.sealed_bytes)

    def _take_masked(self, now: _Round) -> None:
        """Of all but those whose shares could not be opened by more workers than may lie about that."""
        messages, asking = self._messages, self._met
        came = self._answers(messages.masked, now.there)
        lacking = dict.fromkeys(came, 0)
        for said in came.values():
            for worker in came.keys() - set(messages.workers(said["held"])):
                lacking[worker] += 1
        for worker, said in came.items():
            if lacking[worker] > self._privacy:
                told = f"shares that {lacking[worker]} workers cannot open"
                self._out(now, worker, messages.masked, told, "shares that open")
                continue
            try:
                with asking.work("decompress"):
                    now.sum.take_masked(worker, messages.elements(said["masked"], messages.size))
                now.bytes["masked"] += len(said["masked"])
            except ValueError as error:
                self._out(now, worker, messages.masked, error, "elements of the prime field")

    def _vouched(self, now: _Round, survivors: Sequence[int]) -> list[int]:
        """Who vouches for these, and has what the others vouch to it."""
        form = self._messages.vouchers(len(survivors))
        row_bytes = form.raw_bytes // max(1, len(survivors) - 1)
        given = {
            worker: rows(said["vouchers"], _others(survivors, worker), row_bytes)
            for worker, said in self._answers(form, survivors).items()
        }
        self._require(len(given), "vouch for the same survivors")
        told = {}
        for worker in given:
            own = {sender: vouchers[worker] for sender, vouchers in given.items() if worker in vouchers}
            told[worker] = {"vouchers": joined(own, _others(survivors, worker), row_bytes)}
        self._met.ask(now.number, form, told)
        return list(given)

    def _take_answers(self, now: _Round, workers: Collection[int]) -> None:
        messages = self._messages
        for worker, said in self._answers(messages.answer, workers).items():
            count = messages.code.share_elements(messages.size)
            try:
                now.sum.take_answer(worker, messages.elements(said["answer"], count))
                now.bytes["answer"] += len(said["answer"])
            except ValueError as error:
                self._out(now, worker, messages.answer, error, "elements of the prime field")

    def _out(self, now: _Round, worker: int, form: Form, found: object, asked: str) -> None:
        now.dropped[worker] = printable(shown(found))
        self._met.refuse(worker, now.number, form, found=found, asked=asked)


def _others(workers: Collection[int], own: int) -> list[int]:
    return [worker for worker in workers if worker != own]


def _told(dropped: Mapping[int, str]) -> list[str]:
    return [f"worker {worker}: {why}" for worker, why in sorted(dropped.items())]
