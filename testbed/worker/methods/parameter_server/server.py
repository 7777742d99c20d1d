"""The server's part of a round: it sends the model to all clients, and averages what they make of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from testbed.core.errors import RunError
from testbed.core.record.events.base import StepEvent
from testbed.core.record.events.server import LastModel, Round
from testbed.worker.device.clock import PhaseClock
from testbed.worker.methods.parameter_server.bounds.rounds import BoundSchedule, ClientFacts, RoundFacts
from testbed.worker.methods.parameter_server.membership.clients import ConnectedClients
from testbed.worker.methods.parameter_server.messages.coder import Coder
from testbed.worker.methods.parameter_server.messages.decoders import Decoders
from testbed.worker.methods.parameter_server.messages.entries import Encoded
from testbed.worker.methods.parameter_server.messages.wire import Facts, Wire, coded_bytes
from testbed.worker.methods.parameter_server.rounds.aggregator import Aggregator
from testbed.worker.methods.parameter_server.rounds.client_reports import ClientReports
from testbed.worker.methods.parameter_server.rounds.downlink import Downlink
from testbed.worker.methods.parameter_server.rounds.exchanges import Asking
from testbed.worker.methods.parameter_server.rounds.global_model import GlobalModel
from testbed.worker.methods.parameter_server.rounds.intake import Intake
from testbed.worker.methods.parameter_server.transport.frame_errors import Refusal, Refused
from testbed.worker.methods.parameter_server.transport.frames import SERVER, Buffer, Kind

MAX_RESTORES = 3


@dataclass(frozen=True, kw_only=True)
class Begun:
    """A round whose model is coded and may be with some clients: where another server takes the place of this one."""

    round: int
    whole: bool
    is_last: bool
    """There is nothing to collect in it."""
    clients: list[int]
    """Who had a seat."""


class Server:
    """What stays of a server from one round to the next.

    Args:
        up: of updates.
        decoders: of what clients send.
        step_s: emulated seconds of an optimizer's step, where the model takes one a round; None: as long as it takes.
    """

    def __init__(
        self,
        wire: Wire,
        up: Coder,
        downlink: Downlink,
        model: GlobalModel,
        connected: ConnectedClients,
        schedule: BoundSchedule,
        *,
        is_bounded: bool,
        is_gated: bool,
        aggregator: Aggregator,
        decoders: Decoders,
        clock: PhaseClock,
        step_s: float | None,
        record: Callable[[StepEvent], None],
    ) -> None:
        """
        Args:
            record: is given the event of each round.
            is_bounded: whether the schedule of bounds has anything to say.
            is_gated: whether anybody may send raw what it has set bounds for.
        """
        self._wire, self._downlink, self._model, self.connected = wire, downlink, model, connected
        self.schedule, self._is_bounded, self._is_gated = schedule, is_bounded, is_gated
        self._decoders, self._clock, self._step_s, self._record = decoders, clock, step_s, record
        self._intake, self._aggregator = Intake(wire, up, connected, decoders, clock, aggregator), aggregator
        aggregator.meet(Asking(wire, connected, clock))
        self._update_rms: list[float] | None = None
        self._samples: dict[int, int] = {}
        """Of each client, in the last round."""
        self._losses: dict[int, float] = {}
        """Likewise."""
        self._decode_s = 0.0
        """Emulated seconds that decoding the last round's updates takes, were they all compressed."""
        self._ended = 0
        """Rounds of which something came: those that the schedule is told of."""
        self._opened: dict[str, Any] = {}
        """Fields of the round's event that are known since it began."""
        self.keep: Callable[[], None] | None = None
        """Called before a model is sent, so that another server can go on from what `state_dict` is then."""
        self.begun: Begun | None = None
        self._taken: Begun | None = None
        """Of a server that takes the place of another, until it has its clients."""

    def take_over(self, state: dict[str, Any], begun: Begun) -> None:
        """Go on in the round that another server had begun; clients who come again are let in when it is collected.

        Args:
            state: of the other's `state_dict` then.
        """
        self.load_state_dict(state)
        self.begun = self._taken = begun

    def begin(self, round_: int) -> None:
        """Send the model to all clients, those too who have come back meanwhile.

        Raises:
            RunError: there is no client any more, or the training diverges again and again.
        """
        if self._taken is not None:  # it is the round that the other one had begun
            return
        newcomers = self.connected.let_in()
        self._aggregator.before(round_, [client for client in self.connected.clients if client not in newcomers])
        for client in newcomers:
            self._losses.pop(client, None)  # of a former life
        self._go_back_if_due(round_)
        self._model.begin()
        whole = self.schedule.restore
        with self._clock.phase("compress"):
            downlink = self._downlink
            encoded = downlink.whole(round_) if whole else downlink.latest(round_, self._update_rms)
            introduction = downlink.introduction(round_) if newcomers and not whole else encoded
            messages = {one: introduction if one in newcomers else encoded for one in self.connected.clients}
        self._opened = {
            "round": round_,
            "alpha": self.schedule.alpha if self._is_bounded else None,
            "model_bytes": coded_bytes(encoded.entries),
            "whole": whole,
            "back": sorted(newcomers),
        }
        self._kept(round_, whole=whole)
        self._send(round_, messages, self._alphas(), whole=whole)
        self.connected.require_some()

    def collect(self, round_: int) -> None:
        """Average what clients send, and make it the model.

        Raises:
            RunError: nobody has sent anything that can be used.
        """
        if self._taken is not None and self._taken.is_last:
            return
        self._let_back_in()
        average, reports = self._intake.take(round_, self._downlink.epoch, self._downlink.reference)
        counted = self._aggregator.after(round_, self._downlink.reference)
        if counted is not None:
            reports = reports.only(counted)
        self.connected.require_some()
        if self._downlink.gate is not None:
            self._downlink.gate.arrived(reports.model_decode_s)
        self._decode_s = reports.decode_s(self._decoders.count)
        with self._clock.phase("optimizer", self._step_s):
            self._model.move(average.mean(), self._downlink.reference)
        self._end(round_, reports)

    def send_last(self, round_: int) -> None:
        """The model as it is, bit for bit, which all ranks end with."""
        if self._taken is None:
            self._go_back_if_due(round_)
            with self._clock.phase("compress"):
                encoded = self._downlink.whole(round_)
            clients = self.connected.clients
            self._opened = {"round": round_, "model_bytes": coded_bytes(encoded.entries)}
            self._kept(round_, whole=True, is_last=True)
            self._send(round_, dict.fromkeys(clients, encoded), dict.fromkeys(clients, 0.0), whole=True)
            self.connected.require_some()
        else:
            self._let_back_in()  # nobody, if all had it and are done
        self._record(LastModel(**self._opened, left=dict(self.connected.left)))
        self.close()

    def close(self) -> None:
        self.connected.close()
        self._decoders.close()

    def state_dict(self) -> dict[str, Any]:
        return {
            "model": self._model.state_dict(),
            "downlink": self._downlink.state_dict(),
            "schedule": self.schedule.state_dict(),
            "update_rms": self._update_rms,
            "samples": self._samples,
            "losses": self._losses,
            "ended": self._ended,
            "left": dict(self.connected.left),
            "opened": dict(self._opened),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._model.load_state_dict(state["model"])
        self._downlink.load_state_dict(state["downlink"])
        self.schedule.load_state_dict(state["schedule"])
        self._update_rms = state["update_rms"]
        self._samples, self._losses, self.connected.left = state["samples"], state["losses"], state["left"]
        self._ended, self._opened = state["ended"], state["opened"]

    def _kept(self, round_: int, *, whole: bool, is_last: bool = False) -> None:
        self.begun = Begun(round=round_, whole=whole, is_last=is_last, clients=self.connected.clients)
        if self.keep is not None:
            with self._clock.phase("checkpoint"):
                self.keep()

    def _let_back_in(self) -> None:
        """Clients of the server that was here before: who lacks the model that it had begun to send gets it, bit for
        bit, and who has it goes on with it."""
        begun, self._taken = self._taken, None
        if begun is None:
            return
        lacking = []
        for client, hello in self.connected.let_back_in(begun.clients, is_last=begun.is_last).items():
            if hello.round and client not in begun.clients:
                refused = Refused(Refusal.LATE, found="a client that was put out", asked="one that had a seat")
                self.connected.let_go(client, refused, self._wire.expected(Kind.HELLO))
            elif hello.round <= begun.round:
                lacking.append(client)
            elif (hello.round - 1, hello.epoch) != (begun.round, self._downlink.epoch):
                refused = Refused(Refusal.ROUND, found=hello.round - 1, asked=begun.round)
                self.connected.let_go(client, refused, self._wire.expected(Kind.HELLO))
        if lacking:
            with self._clock.phase("compress"):
                again = self._downlink.whole_again if begun.whole else self._downlink.introduction
                encoded = again(begun.round)
            alphas = dict.fromkeys(lacking, 0.0) if begun.is_last else self._alphas()
            self._send(begun.round, dict.fromkeys(lacking, encoded), alphas, whole=begun.whole)

    def _go_back_if_due(self, round_: int) -> None:
        restores = self.schedule.restores
        if restores > MAX_RESTORES:
            raise RunError(
                f"round {round_}: the training has diverged {restores} times in a row, the last time with all that is"
                " sent lossless; compression does not cause it: lower the learning rate"
            )
        if self.schedule.restore:
            self._model.go_back()

    def _send(self, round_: int, messages: dict[int, Encoded], alphas: dict[int, float], *, whole: bool) -> None:
        """
        Args:
            messages: of each client, by which most are the same.
        """
        frames: dict[tuple[int, float], list[Buffer]] = {}
        with self._clock.phase("compress"):
            for client, encoded in messages.items():
                facts = Facts(epoch=self._downlink.epoch, alpha=alphas[client], decode_s=self._decode_s)
                if (id(encoded), facts.alpha) not in frames:
                    packed = self._wire.pack(Kind.MODEL, SERVER, round_, encoded, facts, whole=whole)
                    frames[id(encoded), facts.alpha] = packed
        if self._downlink.gate is not None:
            self._downlink.gate.sends(self.connected.connections)
        self.connected.send({client: frames[id(one), alphas[client]] for client, one in messages.items()})

    def _alphas(self) -> dict[int, float]:
        """Of each client; 0: what it sends is to be lossless. By its part in the last mean, as others on average
        if it had none, or alike before any; and by its loss there."""
        clients = self.connected.clients
        if self.schedule.lossless_uplink:
            return dict.fromkeys(clients, 0.0)
        usual = max(1, sum(self._samples.values()) // max(1, len(self._samples)))
        samples = [self._samples.get(client) or usual for client in clients]
        known = [
            ClientFacts(weight=count / sum(samples), train_loss=self._losses.get(client))
            for client, count in zip(clients, samples, strict=True)
        ]
        return dict(zip(clients, self.schedule.client_alphas(known), strict=True))

    def _end(self, round_: int, reports: ClientReports) -> None:
        stepped = self._model.step_rms
        self._update_rms = reports.mean_rms if stepped is None else stepped
        self._samples, self._losses = reports.samples, reports.losses
        loss, loss_encoded = self._downlink.losses
        self.schedule.advance(
            RoundFacts(
                round=self._ended,
                train_loss=reports.train_loss,
                probe_loss=loss,
                probe_loss_encoded=loss_encoded,
                finite=self._model.finite,
                raw=self._is_gated and not (self._downlink.is_compressed or reports.decoding_s),
            )
        )
        self._ended += 1
        if self.schedule.good:
            self._model.keep()
        self._record(
            Round(
                **self._opened,
                clients=len(reports.samples),
                train_loss=reports.train_loss,
                update_bytes=reports.coded_bytes,
                left=dict(self.connected.left),
                bound=self.schedule.note() if self._is_bounded else None,
            )
        )
