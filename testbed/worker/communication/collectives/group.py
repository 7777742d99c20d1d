"""Some ranks of a communicator as a communicator, for exchanges among them alone."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.worker.communication.communicator import Communicator
from testbed.worker.communication.pending import CollectiveError, Pending
from testbed.worker.communication.transport import Collective, Subset


class Group(Communicator):
    """Communicator for Longhaul's own collectives (`submit`), not gloo's; the parent counts bytes and time."""

    def __init__(self, parent: Communicator, members: Sequence[int], index: int, channel: int) -> None:
        """Take the members.

        Args:
            index: Place among `members` for which this rank plans; only that member submits.
            channel: See `Communicator.submit`.
        """
        super().__init__(index, len(members), parent.timeout_s)
        self._parent, self._members, self._channel = parent, members, channel
        self.networked, self.connections = parent.networked, parent.connections
        self.stopwatch = parent.stopwatch
        self.clock = parent.clock

    def submit(
        self, what: str, collective: Collective, *, channel: int = 0, among: tuple[int, ...] = (), share: float = 1.0
    ) -> Pending:
        assert channel == 0 and not among, "a group has one channel of its parent's"
        return self._parent.submit(
            what,
            lambda peers: collective(Subset(peers, self._members)),
            channel=self._channel,
            among=tuple(self._members),
            share=share,
        )

    def error(self, what: str, cause: BaseException) -> CollectiveError:
        return self._parent.error(what, cause)
