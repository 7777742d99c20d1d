"""What clients send in a round: waited for, decoded, and averaged."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from testbed.worker.device.clock import PhaseClock
from testbed.worker.methods.parameter_server.membership.clients import ConnectedClients
from testbed.worker.methods.parameter_server.messages.coder import Coder
from testbed.worker.methods.parameter_server.messages.decoders import DECOMPRESS, Decoded, Decoders
from testbed.worker.methods.parameter_server.messages.entries import Entry
from testbed.worker.methods.parameter_server.messages.wire import Wire, entries_of
from testbed.worker.methods.parameter_server.rounds.aggregator import Aggregator, Mean
from testbed.worker.methods.parameter_server.rounds.client_reports import ClientReports
from testbed.worker.methods.parameter_server.transport.frames import Frame, Kind


class Intake:
    """Of a server, of all clients or of a region's.

    Args:
        up: of updates.
        aggregator: whose mean it is.
    """

    def __init__(
        self,
        wire: Wire,
        up: Coder,
        connected: ConnectedClients,
        decoders: Decoders,
        clock: PhaseClock,
        aggregator: Aggregator | None = None,
    ) -> None:
        self._wire, self._up, self._connected, self._decoders, self._clock = wire, up, connected, decoders, clock
        self._aggregator = aggregator or Aggregator()

    def take(self, round_: int, epoch: int, reference: Sequence[Tensor]) -> tuple[Mean, ClientReports]:
        """The updates of all clients; whose cannot be used, or does not come, is out. There may be none in the end.

        Args:
            epoch, reference: of what clients have, on which updates hang.
        """
        average, reports = self._aggregator.mean(self._wire.schema, self._connected.clients), ClientReports()
        expected = self._wire.expected(Kind.UPDATE, round_, epoch)

        def decode(client: int, frame: Frame) -> tuple[list[Entry], list[Tensor]]:
            entries = entries_of(frame)
            tensors = self._up.decode(entries, reference, origin=self._wire.origin(client, frame.round))
            self._aggregator.check(client, frame.samples, tensors)
            return entries, tensors

        for client, end in self._decoders.each(self._connected.frames(expected), decode):
            if isinstance(end, Decoded):
                with self._clock.phase(DECOMPRESS):
                    average.add(client, end.frame.samples, end.tensors)
                reports.add(client, end)
            else:
                self._connected.let_go(client, end, expected)
        return average, reports
