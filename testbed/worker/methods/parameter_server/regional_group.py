"""A region whose clients have several rounds of their own for each of rank 0's: hierarchical federated averaging."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from testbed.core.record.events.base import StepEvent
from testbed.worker.device.clock import PhaseClock
from testbed.worker.device.stopwatch import Stopwatch
from testbed.worker.methods.parameter_server.bounds.baselines import OpenLoop
from testbed.worker.methods.parameter_server.membership.clients import ConnectedClients
from testbed.worker.methods.parameter_server.messages.coder import Coder
from testbed.worker.methods.parameter_server.messages.decoders import Decoders
from testbed.worker.methods.parameter_server.messages.plan import Plan
from testbed.worker.methods.parameter_server.messages.schema import Schema
from testbed.worker.methods.parameter_server.messages.wire import Facts, Wire, coded_bytes
from testbed.worker.methods.parameter_server.region import Region, ServingClient
from testbed.worker.methods.parameter_server.rounds.aggregator import Aggregator
from testbed.worker.methods.parameter_server.rounds.client_reports import ClientReports
from testbed.worker.methods.parameter_server.rounds.downlink import Downlink
from testbed.worker.methods.parameter_server.rounds.global_model import GlobalModel
from testbed.worker.methods.parameter_server.transport.connection import Connection
from testbed.worker.methods.parameter_server.transport.frames import SERVER, Kind


class Group(Region):
    """The clients of a region, to a server that has a model of their own for them.

    Liu et al., "Client-Edge-Cloud Hierarchical Federated Learning", ICC 2020, arXiv:1905.06641 (HierFAVG): a group
    averages after every round of its clients, and all groups together after so many of these. What a group sends then
    is what all its rounds have changed, with the samples of all of them as its weight.

    What it sends its clients hangs on what it sent them last, not on what rank 0 did: so it encodes models itself,
    within the bounds that rank 0 has told with the last one.

    Args:
        wire, and what follows: as of `Region`.
        basis: of the schedule of bounds.
        model: this rank's.
    """

    def __init__(
        self,
        wire: Wire,
        up: Coder,
        down: Plan,
        connected: ConnectedClients,
        decoders: Decoders,
        *,
        clock: PhaseClock,
        name: str,
        basis: str,
        model: GlobalModel,
        aggregator: Aggregator | None = None,
    ) -> None:
        super().__init__(wire, up, down, connected, decoders, clock=clock, name=name, aggregator=aggregator)
        self._bound, self._model, self._payload = _FromRoot(basis), model, up.plan.payload
        coder = Coder(wire.schema, copy.deepcopy(down))
        self._downlink = Downlink(wire, coder, self._bound, model, _asks_nobody)
        self._is_whole = False
        """Whether the next model is to hang on nothing."""
        self._update_rms: list[float] | None = None
        self._all_samples, self._all_losses = 0, 0.0

    def follow(self, reference: Sequence[Tensor], alpha: float) -> None:
        """Begin with rank 0's model, and with its bounds."""
        self._model.take_over(reference)
        self._bound.alpha = alpha

    def send(self, round_: int, *, lets_in: bool = True) -> dict[str, Any]:
        """The group's model to all its clients; the fields of its event that are known by now.

        Raises:
            Left: there is none any more.
        """
        newcomers = self.connected.let_in() if lets_in else set()
        downlink, is_whole = self._downlink, self._is_whole
        with self._clock.phase("compress"):
            encoded = downlink.whole(round_) if is_whole else downlink.latest(round_, self._update_rms)
            facts = Facts(epoch=downlink.epoch, alpha=self._bound.alpha)
            pieces = self._wire.pack(Kind.MODEL, SERVER, round_, encoded, facts, whole=is_whole)
            frames = dict.fromkeys(self.connected.clients, pieces)
            if newcomers and not is_whole:
                introduction = downlink.introduction(round_)
                introducing = self._wire.pack(Kind.MODEL, SERVER, round_, introduction, facts)
                frames |= dict.fromkeys(newcomers, introducing)
        self._is_whole = False
        self.connected.send(frames)
        self.require_some()
        size_bytes = coded_bytes(encoded.entries)
        return {"round": round_, "region": self.name, "model_bytes": size_bytes, "back": sorted(newcomers)}

    def average(self, round_: int) -> ClientReports:
        """Wait for what all clients send, and make its mean the group's model.

        Raises:
            Left: there is none that could be used.
        """
        reports = self.gather(round_, self._downlink.epoch, self._downlink.reference)
        with self._clock.phase("optimizer"):
            self._model.move(self._mean, self._downlink.reference)
        self._update_rms = reports.mean_rms
        samples = sum(reports.samples.values())
        self._all_samples += samples
        self._all_losses += samples * reports.train_loss
        return reports

    def begin(self) -> None:
        """A round of rank 0's does."""
        super().begin()
        self._all_samples, self._all_losses = 0, 0.0

    def forget(self) -> None:
        """What comes from rank 0 hangs on nothing; so does what goes to clients then."""
        self._is_whole = True

    @property
    def samples(self) -> int:
        return self._all_samples

    @property
    def mean_loss(self) -> float:
        return self._all_losses / self._all_samples

    def result(self, schema: Schema, reference: Sequence[Tensor]) -> list[Tensor]:
        values = self._model.values
        return schema.delta(values, reference) if self._payload == "delta" else list(values)


class GroupServer(ServingClient):
    """The client whose updates are what a group's rounds have come to. Rounds are the group's, `group_rounds` of which
    make one of rank 0's.

    Args:
        group: its clients.
        group_rounds: of the group, for each of rank 0's.
        number, and what follows: as of `ServingClient`.
    """

    def __init__(
        self,
        group: Group,
        group_rounds: int,
        number: int,
        model: nn.Module,
        wire: Wire,
        up: Coder,
        down: Coder,
        *,
        basis: str,
        connection: Connection,
        patience_s: float,
        clock: PhaseClock,
        stopwatch: Stopwatch,
        record: Callable[[StepEvent], None],
    ) -> None:
        super().__init__(
            *(group, number, model, wire, up, down),
            basis=basis,
            connection=connection,
            patience_s=patience_s,
            clock=clock,
            stopwatch=stopwatch,
            record=record,
        )
        self._group, self._rounds = group, group_rounds
        self._open: int | None = None
        """Rank 0's round, as long as its update is not sent."""

    def begin(self, round_: int) -> None:
        """Let the group have its model, which is rank 0's where a round of rank 0's begins.

        Raises:
            Left: the group has no client any more.
        """
        if round_ % self._rounds == 0:
            self._open = round_ // self._rounds
            super().begin(self._open)
            self._group.follow(self.reference, self._alpha)
        self._opened = self._group.send(round_)

    def end(self, round_: int) -> None:
        """Average what the group sends; after the last of its rounds, send what they have come to.

        Raises:
            Left: nobody there has sent anything that can be used.
        """
        reports = self._group.average(round_)
        is_last = round_ % self._rounds == self._rounds - 1
        if is_last:
            self._send_update()
        self._ended(reports, self.coded_bytes if is_last else 0)

    def take_last(self, round_: int) -> None:
        """What was begun is ended first: a run may stop between two of rank 0's rounds."""
        if self._open is not None:
            self._send_update()
        super().begin(-(-round_ // self._rounds))
        self._group.follow(self.reference, 0.0)
        self._group.send(round_, lets_in=False)
        self.close()

    def _send_update(self) -> None:
        assert self._open is not None, "a model came first"
        super().end(self._open)
        self._open = None


class _FromRoot(OpenLoop):
    """A schedule that goes by what rank 0 says; alpha 0: nothing may be lost."""

    def __init__(self, basis: str) -> None:
        super().__init__(0.0, basis)

    @property
    def lossless(self) -> bool:
        return self.alpha == 0


def _asks_nobody() -> float:
    raise RuntimeError("rank 0 tries models, not the server of a region")
