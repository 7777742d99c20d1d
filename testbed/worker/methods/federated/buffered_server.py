"""The server of buffered asynchronous learning: whoever sends gets the newest model and another client at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from compressors.base.payload import PayloadError
from testbed.core.record.events.base import StepEvent
from testbed.core.record.events.server import FedbuffVersion, LastModel
from testbed.worker.device.clock import PhaseClock
from testbed.worker.methods.federated.aggregation.fedbuff import FedBuff
from testbed.worker.methods.federated.aggregation.fold import Update
from testbed.worker.methods.federated.aggregation.state import NOBODY, AssignedState
from testbed.worker.methods.federated.clients.population import Population
from testbed.worker.methods.federated.dispatch import Dispatch, Task
from testbed.worker.methods.parameter_server.membership.lanes import Lanes
from testbed.worker.methods.parameter_server.messages import lossless
from testbed.worker.methods.parameter_server.messages.coder import Coder
from testbed.worker.methods.parameter_server.messages.entries import Encoded, Entry
from testbed.worker.methods.parameter_server.messages.schema import DISCRETE
from testbed.worker.methods.parameter_server.messages.wire import Facts, Wire, coded_bytes, entries_of
from testbed.worker.methods.parameter_server.transport.frame_errors import Refusal, Refused
from testbed.worker.methods.parameter_server.transport.frames import SERVER, Frame, Kind


@dataclass(frozen=True, kw_only=True)
class _Came:
    """What waits in the buffer, beside what is summed there."""

    task: Task
    samples: int
    train_loss: float
    elapsed_s: float
    update_bytes: int
    statistics: list[Tensor]
    """The model's buffers."""


class BufferedServer:
    """Models go down whole, bit for bit, so that each hangs on nothing; a model's round is its version.

    Args:
        up, down: coders of updates and of models; what is sent down is lossless.
        alpha: above 0, so that updates go through their codec.
        record: is given the event of each version.
    """

    def __init__(
        self,
        wire: Wire,
        up: Coder,
        down: Coder,
        state: AssignedState,
        buffer: FedBuff,
        dispatch: Dispatch,
        population: Population,
        lanes: Lanes,
        clock: PhaseClock,
        *,
        alpha: float,
        record: Callable[[StepEvent], None],
    ) -> None:
        self._wire, self._up, self._down, self._state = wire, up, down, state
        self._buffer, self._dispatch, self._population = buffer, dispatch, population
        self._lanes, self._clock, self._alpha, self._record = lanes, clock, alpha, record
        names: dict[int, str] = {}
        for name, tensor in state.state_dict(keep_vars=True).items():
            names.setdefault(id(tensor), name)  # of what is tied the first, by which it travels
        index = {item.name: place for place, item in enumerate(wire.schema.items)}
        self._learning, self._statistics, (self._task, self._elapsed_s) = (
            [index[names[id(one)]] for one in tensors if names.get(id(one)) in index]
            for tensors in (state.learning, (*state.statistics, *state.discrete), (state.task, state.elapsed_s))
        )
        self._values = wire.schema.take(state)
        """Never changed in place: messages under way share their memory."""
        self._encoded: Encoded | None = None
        """Of these values; None: they have not been yet."""
        self._sent: dict[int, Sequence[Tensor]] = {}
        """By worker what it has, on which its update hangs."""
        self._came: list[_Came] = []
        self._model_bytes = 0

    def advance(self) -> None:
        """Until the model has changed once more; who has sent the last of what that takes has it then.

        Raises:
            RunError: no worker is left.
        """
        for worker in self._lanes.let_in() & self._dispatch.tasks.keys():
            self._dispatch.take(worker)
        self._free_gone()
        version = self._buffer.version
        for worker in self._lanes.connected.clients:
            if worker not in self._dispatch.tasks:
                self._give(worker)
        while self._buffer.version == version:
            found = self._lanes.next()
            self._free_gone()
            self._lanes.connected.require_some()
            assert found is not None, "something is due from each that has a seat"
            worker, frame = found
            if self._take(worker, frame):
                self._give(worker)

    def finish(self) -> None:
        """Who has no model of the last version gets it once its client is done, of which nothing comes then.

        Raises:
            RunError: no worker is left.
        """
        version = self._buffer.version
        for worker, task in list(self._dispatch.tasks.items()):
            if task.version == version:
                self._dispatch.take(worker)
                self._lanes.release(worker)
        while (found := self._lanes.next()) is not None:
            worker, _ = found
            self._dispatch.take(worker)
            self._send(worker, None)
        self._free_gone()
        connected = self._lanes.connected
        connected.require_some()
        model_bytes = coded_bytes(self._model().entries)
        self._record(LastModel(round=version, model_bytes=model_bytes, left=dict(connected.left)))
        self._lanes.close()

    def _free_gone(self) -> None:
        """Clients of workers that are out, which may have come back since."""
        seated = set(self._lanes.connected.clients)
        for worker in self._dispatch.tasks.keys() - seated:
            self._dispatch.take(worker)
            self._sent.pop(worker, None)

    def _give(self, worker: int) -> None:
        self._send(worker, self._dispatch.give(worker, self._buffer.version))

    def _send(self, worker: int, task: Task | None) -> None:
        """The newest model; with None no client to run, after which nothing comes back."""
        with self._clock.phase("compress"):
            model, place, version = self._model(), self._task, self._buffer.version
            value = torch.tensor([NOBODY, 0] if task is None else [task.client, task.run])
            codec, payload = lossless.pack(value, constants=False, zstd=False)
            entries, has = list(model.entries), list(self._values)
            entries[place] = Entry(
                index=place, codec=codec, bound=0.0, update_rms=0.0, raw_bytes=value.nbytes, payload=payload
            )
            has[place] = value
            facts = Facts(alpha=self._alpha)
            pieces = self._wire.pack(Kind.MODEL, SERVER, version, Encoded(entries, None, []), facts)
        self._model_bytes += coded_bytes(entries)
        self._sent[worker] = has
        expected = None if task is None else self._wire.expected(Kind.UPDATE, version, facts.epoch)
        self._lanes.send(worker, pieces, expected)

    def _model(self) -> Encoded:
        if self._encoded is None:
            origin = self._wire.origin(SERVER, self._buffer.version)
            self._encoded = self._down.encode(self._values, None, bounds=None, origin=origin, decoded=False)
        return self._encoded

    def _take(self, worker: int, frame: Frame) -> bool:
        """Whether its update is of use; it is out otherwise."""
        task = self._dispatch.take(worker)
        try:
            with self._clock.phase("decompress"):
                tensors = self._decoded(worker, frame, task)
        except (Refused, PayloadError) as error:
            expected = self._wire.expected(Kind.UPDATE, task.version)
            self._lanes.connected.let_go(worker, error.with_traceback(None), expected)  # which would hold buffers
            self._lanes.connected.require_some()
            return False
        with self._clock.phase("optimizer"):
            self._add(task, frame, tensors)
        return True

    def _add(self, task: Task, frame: Frame, tensors: Sequence[Tensor]) -> None:
        self._came.append(
            _Came(
                task=task,
                samples=frame.samples,
                train_loss=frame.train_loss,
                elapsed_s=float(tensors[self._elapsed_s]),
                update_bytes=coded_bytes(entries_of(frame)),
                statistics=[tensors[place] for place in self._statistics],
            )
        )
        change = self._buffer.add(
            Update(
                client=task.client,
                weight=frame.samples,
                steps=self._population.steps(task.client),
                staleness=self._buffer.staleness(task.version),
                delta=[tensors[place] for place in self._learning],
            )
        )
        if change is not None:
            self._move(change)

    def _decoded(self, worker: int, frame: Frame, task: Task) -> list[Tensor]:
        """
        Raises:
            Refused, PayloadError: it is no update of this task's.
        """
        reference, origin = self._sent.pop(worker), self._wire.origin(worker, frame.round)
        if frame.samples != (samples := self._population.samples(task.client)):
            raise Refused(Refusal.NUMBER, found=f"{frame.samples} samples", asked=f"{samples}")
        tensors = self._up.decode(entries_of(frame), reference, origin=origin)
        if (ran := tensors[self._task].tolist()) != [task.client, task.run]:
            raise Refused(Refusal.NUMBER, found=f"client and run {ran}", asked=f"{[task.client, task.run]}")
        if not 0 < (elapsed_s := float(tensors[self._elapsed_s])) < math.inf:
            raise Refused(Refusal.NUMBER, found=f"{elapsed_s} s of training", asked="above 0 and finite")
        return tensors

    def _move(self, change: Sequence[Tensor]) -> None:
        came, self._came = self._came, []
        values = list(self._values)
        for place, step in zip(self._learning, change, strict=True):
            values[place] = values[place].double() + step
        for number, place in enumerate(self._statistics):
            values[place] = _combined(came, number, is_discrete=self._wire.schema.items[place].kind == DISCRETE)
        self._wire.schema.put(self._state, values)
        self._values, self._encoded = self._wire.schema.take(self._state), None
        self._record(self._event(came))
        self._model_bytes = 0

    def _event(self, came: Sequence[_Came]) -> FedbuffVersion:
        version, samples = self._buffer.version, sum(one.samples for one in came)
        staleness = [version - 1 - one.task.version for one in came]
        return FedbuffVersion(
            version=version,
            clients=[one.task.client for one in came],
            workers=len(self._lanes.connected.clients),
            staleness_mean=sum(staleness) / len(came),
            staleness_max=max(staleness),
            train_loss=math.fsum(one.samples * one.train_loss for one in came) / samples,
            model_bytes=self._model_bytes,
            update_bytes=sum(one.update_bytes for one in came),
            all_clients_s=math.fsum(one.elapsed_s for one in came),
            longest_client_s=max(one.elapsed_s for one in came),
            left=dict(self._lanes.connected.left),
        )


def _combined(came: Sequence[_Came], number: int, *, is_discrete: bool) -> Tensor:
    """One of the model's buffers: its mean by samples; of what has no fractions that of most samples."""
    if is_discrete:
        return max(came, key=lambda one: one.samples).statistics[number]
    weights = torch.tensor([one.samples for one in came], dtype=torch.float64)
    each = torch.stack([one.statistics[number].double() for one in came], dim=-1)
    return (each * weights).sum(-1) / weights.sum()
