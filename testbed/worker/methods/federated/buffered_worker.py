"""A worker of buffered asynchronous learning: it runs the client that came with the model, sends, and gets the next."""

from __future__ import annotations

from testbed.worker.methods.federated.aggregation.state import AssignedState
from testbed.worker.methods.federated.client_sequence import ClientSequence
from testbed.worker.methods.parameter_server.client import Client


class BufferedWorker:
    """
    Args:
        client: its messages; `sequence` is its source.
    """

    def __init__(self, client: Client, state: AssignedState, sequence: ClientSequence) -> None:
        self._client, self._state, self._sequence = client, state, sequence
        self.version: int | None = None
        """Of the model that it has; None: none has come."""

    def receive(self) -> int:
        """Wait for a model, of whatever version, which is returned."""
        self.version = self._client.begin_any()
        self._sequence.at(self._state.run)
        return self.version

    def advance(self, version: int) -> tuple[float | None, int]:
        """Run clients until the model is of that version, or a later one.

        Returns:
            Their mean loss, by samples, and how many samples these are; None where the model is, without any.
        """
        loss, samples = 0.0, 0
        while (has := self.receive() if self.version is None else self.version) < version:
            self._sequence.step(None)
            loss += self._sequence.mean_loss * self._sequence.samples
            samples += self._sequence.samples
            self._client.end(has)
            self.receive()
        return (loss / samples if samples else None), samples

    def close(self) -> None:
        self._client.close()
