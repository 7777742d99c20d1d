"""A region's server: of rank 0 a client, of the others in its region the server. It trains on nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from testbed.core.errors import Left
from testbed.core.record.events.base import StepEvent
from testbed.core.record.events.server import RegionRound
from testbed.worker.device.clock import PhaseClock
from testbed.worker.device.stopwatch import Stopwatch
from testbed.worker.methods.parameter_server.client import Client
from testbed.worker.methods.parameter_server.membership.clients import ConnectedClients
from testbed.worker.methods.parameter_server.messages.coder import Coder
from testbed.worker.methods.parameter_server.messages.decoders import Decoders
from testbed.worker.methods.parameter_server.messages.plan import Plan
from testbed.worker.methods.parameter_server.messages.schema import Schema
from testbed.worker.methods.parameter_server.messages.wire import Facts, Wire, coded_bytes, entries_of
from testbed.worker.methods.parameter_server.rounds.aggregator import Aggregator
from testbed.worker.methods.parameter_server.rounds.client_reports import ClientReports
from testbed.worker.methods.parameter_server.rounds.downlink import introduction
from testbed.worker.methods.parameter_server.rounds.intake import Intake
from testbed.worker.methods.parameter_server.transport.connection import Connection
from testbed.worker.methods.parameter_server.transport.frames import SERVER, Frame, Kind


class Region:
    """The clients of a region, to whoever serves them: what it sends them, and the mean of what they send.

    A model goes to them as rank 0 has packed it, so that they check its code and decode it as if they had it from
    there. The mean of their updates, weighted by samples, weighs as much as all of them, so that the mean of regions'
    means is that of all clients.

    Args:
        up: of clients' updates.
        down: of models.
        name: of the region, for messages.
        aggregator: bounds what a client may weigh.
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
        aggregator: Aggregator | None = None,
    ) -> None:
        self._wire, self._down, self.connected, self._clock, self.name = wire, down, connected, clock, name
        self._decoders, self._intake = decoders, Intake(wire, up, connected, decoders, clock, aggregator)
        self._newcomers: set[int] = set()
        self._reports: ClientReports | None = None
        self._mean: list[Tensor] = []

    def relay(self, frame: Frame, *, lets_in: bool, is_whole: bool) -> set[int]:
        """Send a model on, bit for bit; who has come back to the region, and is to be introduced.

        Args:
            lets_in: whether whoever has come back takes part from now on.
            is_whole: whether it hangs on nothing, and does as an introduction.
        """
        newcomers = self.connected.let_in() if lets_in else set()
        self._newcomers = set() if is_whole else newcomers
        with self._clock.phase("compress"):
            pieces = frame.pack(self._wire.key)  # the bytes that came: a frame has nothing that is not in its fields
        self.connected.send({client: pieces for client in self.connected.clients if client not in self._newcomers})
        return newcomers

    def introduce(self, frame: Frame, reference: Sequence[Tensor]) -> None:
        """Send those who came back what the others have now, by a frame of their own.

        Args:
            frame: what the others were sent.
            reference: what they made of it.
        """
        present = [client for client in self.connected.clients if client in self._newcomers]
        if present:
            with self._clock.phase("compress"):
                encoded = introduction(self._wire, self._down, reference, frame.round)
                facts = Facts(epoch=frame.epoch, alpha=frame.alpha, decode_s=frame.decode_s)
                pieces = self._wire.pack(Kind.MODEL, SERVER, frame.round, encoded, facts)
            self.connected.send(dict.fromkeys(present, pieces))
        self._newcomers = set()

    def gather(self, round_: int, epoch: int, reference: Sequence[Tensor]) -> ClientReports:
        """Wait for the updates of all clients; what they say of them.

        Raises:
            Left: there is none that could be used.
        """
        average, reports = self._intake.take(round_, epoch, reference)
        self.require_some()
        with self._clock.phase("decompress"):
            self._mean, self._reports = average.mean(), reports
        return reports

    def require_some(self) -> None:
        """
        Raises:
            Left: all clients are out; says why of each.
        """
        if not self.connected.clients:
            why = [f"client {one}: {reason}" for one, reason in self.connected.left.items()]
            raise Left(f"region {self.name}: no client is left", *why)

    def close(self) -> None:
        self.connected.close()
        self._decoders.close()

    def begin(self) -> None:
        """Of `Source`."""
        self._reports, self._mean = None, []

    def forget(self) -> None:
        """Nothing: momenta are its clients', who are told by the same frame."""

    @property
    def samples(self) -> int:
        return sum(self._gathered.samples.values())

    @property
    def mean_loss(self) -> float:
        return self._gathered.train_loss

    @property
    def gradient_squares(self) -> None:
        """Its clients have sent none, so that its mean is bounded alike in all tensors."""

    def result(self, schema: Schema, reference: Sequence[Tensor]) -> list[Tensor]:
        """The mean of what was gathered, which is of the uplink's payload as its parts are."""
        assert self._reports is not None, "asked for once all is there"
        return self._mean

    @property
    def _gathered(self) -> ClientReports:
        assert self._reports is not None, "asked for once all is there"
        return self._reports


class ServingClient(Client):
    """One that trains on nothing: its updates are what a region comes to, of whose rounds it keeps a note.

    Args:
        region: its clients.
        number, and what follows: as of `Client`.
        record: is given the event of each round.
    """

    def __init__(
        self,
        region: Region,
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
            *(number, model, wire, up, down, region),
            basis=basis,
            connection=connection,
            patience_s=patience_s,
            clock=clock,
            stopwatch=stopwatch,
        )
        self._region, self._record = region, record
        self._opened: dict[str, Any] = {}
        """Fields of the round's event that are known since it began."""

    def close(self) -> None:
        super().close()
        self._region.close()

    def _ended(self, reports: ClientReports, sent_bytes: int) -> None:
        """A round of the region's has."""
        self._record(
            RegionRound(
                **self._opened,
                clients=len(reports.samples),
                train_loss=reports.train_loss,
                update_bytes=reports.coded_bytes,
                sent_bytes=sent_bytes,
                left=dict(self._region.connected.left),
            )
        )


class RegionServer(ServingClient):
    """The client whose updates are a region's. Of an update's error, its own encoding of the mean comes on top."""

    _is_last = False
    """Whether the next model is the last, of which nobody begins with anything."""
    _relayed: Frame | None = None

    def begin(self, round_: int) -> None:
        """Take the model over, and let the region have it; it goes there first.

        Raises:
            Left: the region has no client any more.
        """
        super().begin(round_)
        assert self._relayed is not None, "it has come"
        self._region.introduce(self._relayed, self.reference)
        self._relayed = None
        self._region.require_some()

    def end(self, round_: int) -> None:
        """Gather what the region sends, and send its mean.

        Raises:
            Left: nobody there has sent anything that can be used.
        """
        assert self._epoch is not None, "a model came first"
        reports = self._region.gather(round_, self._epoch, self.reference)
        super().end(round_)
        self._ended(reports, self.coded_bytes)

    def take_last(self, round_: int) -> None:
        self._is_last = True
        super().take_last(round_)

    def _receive(self, round_: int | None) -> Frame:
        self._relayed = frame = super()._receive(round_)
        is_whole = self._wire.is_whole(frame, self._epoch)
        newcomers = self._region.relay(frame, lets_in=not self._is_last, is_whole=is_whole)
        self._opened = {
            "round": frame.round,
            "region": self._region.name,
            "model_bytes": coded_bytes(entries_of(frame)),
            "back": sorted(newcomers),
        }
        return frame
