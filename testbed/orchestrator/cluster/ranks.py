"""The ranks of a run that somebody else has started: who has come, what each says, and the one that is gone."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

from testbed.core.errors import RunError
from testbed.core.record.telemetry import Channel, Welcome
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.run.workers.intake import Inbox, Intake
from testbed.orchestrator.run.workers.membership import Membership

_POLL_S = 0.2
_BLAME_S = 2.0
"""How long a rank's complaint waits for news of one that is gone without a word."""

Message = dict[str, Any]
GONE = "gone"


class Ranks:
    """Listens where ranks are told to come.

    A context manager: leaving it closes all connections, and so ends who is left.

    Args:
        address, port: of this machine; ranks meet each other at the port after it.
        job: what a rank names in its hello to be one of this run's.
        profile: of the device, as of `core.device.profile`.
        accelerated: each computes on an accelerator, and one that does not is put out; otherwise none does.

    Raises:
        OSError: it cannot be listened there.
    """

    def __init__(
        self,
        spec: RunSpec,
        address: str,
        port: int,
        job: str,
        profile: dict[str, Any] | None,
        *,
        accelerated: bool = False,
    ) -> None:
        self.spec = spec
        self.nodes = [node.name for node in spec.topology.nodes]
        self.hosts: dict[int, str] = {}
        """By rank, as each names its machine."""
        self.accelerators: dict[int, str | None] = {}
        """By rank, as each names its own; None: it computes on the processor."""
        self._accelerated = accelerated
        self._address, self._port, self._job, self._profile = address, port, job, profile
        self._channels: dict[int, Channel] = {}
        self._messages: Inbox[tuple[int, Message]] = Inbox()
        self._membership = Membership(self.nodes, patience_s=spec.timeout_s)
        self._has_begun = False
        self._server = socket.create_server(("", port), backlog=spec.workers)

    def __enter__(self) -> Ranks:
        threading.Thread(target=self._accept, name="accept", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends who is left, and frees the port: `torchrun` may begin anew at once."""
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # by itself `close` frees nothing while a thread waits in `accept`
        self._server.close()
        for channel in list(self._channels.values()):
            with contextlib.suppress(OSError):
                channel.connection.shutdown(socket.SHUT_RDWR)
            channel.connection.close()

    @property
    def missing(self) -> list[int]:
        return [rank for rank in range(self.spec.workers) if rank not in self._channels]

    @property
    def all_done(self) -> bool:
        return self._membership.all_done

    def go(self, lead_s: float) -> None:
        """Step 1 begins after `lead_s` on every machine's own clock, counted from when it hears of it."""
        self._has_begun = True
        for rank, channel in self._channels.items():
            try:
                channel.send({"event": "go", "lead_s": lead_s})
            except OSError as error:
                raise RunError(f"{self._named(rank)} did not take the word to begin: {error}") from error

    def next_message(self) -> Message | None:
        """What any rank says that belongs to the record, or that one was lost; None after a moment without.

        Raises:
            RunError: one without which the run cannot go on has reported a fault, or is gone.
        """
        if (lost := self._membership.take_loss()) is not None:
            return lost[1]
        if self._membership.forsaken:
            raise RunError(
                "; ".join([f"{self._named(0)} neither went on nor ended alone", *self._membership.told_losses])
            )
        try:
            rank, message = self._messages.get(timeout=_POLL_S)
        except queue.Empty:
            return None
        event, node = message["event"], self.nodes[rank]
        if event not in (GONE, "fault", "leaving"):
            self._membership.hear(node, message)
            return message
        if self._membership.has_ended(node):
            return None
        if self._has_begun and self._membership.outlives(node):
            self._membership.lose(node, message["message"], says_so=event == "leaving")
            return None
        raise RunError(self._blamed(rank, message))

    def _blamed(self, rank: int, message: Message) -> str:
        """Of several that end, first who is gone without a word: the others complain of that."""
        told = {rank: message}
        deadline_s = time.monotonic() + _BLAME_S
        while message["event"] != GONE and (left_s := deadline_s - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                other, said = self._messages.get(timeout=left_s)
                if said["event"] == GONE and other not in told and not self._membership.has_ended(self.nodes[other]):
                    rank, message = other, said
                elif said["event"] == "fault":
                    told.setdefault(other, said)
        return f"{self._named(rank)}: {message['message']}"

    def _named(self, rank: int) -> str:
        return f"worker {rank} on {self.nodes[rank]} ({self.hosts.get(rank, 'never came')})"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                threading.Thread(target=self._listen, args=(Channel(connection),), daemon=True).start()

    def _listen(self, channel: Channel) -> None:
        rank = None
        why = "its connection is closed: it has ended without a word, or its machine is gone"
        try:
            hello = channel.receive()
            rank = None if hello is None else self._rank_of(hello)
            if rank is None:
                channel.connection.close()  # a stranger's
                return
            self._channels[rank] = channel
            if (self.accelerators[rank] is not None) != self._accelerated:
                # gloo and NCCL would wait for each other
                raise ValueError(f"{self._unlike(rank)}; give --accelerator alike on all machines")
            channel.send_welcome(self._welcome(rank))
            intake = Intake(rank, self.nodes[rank], self.spec.steps)
            for message in channel.messages():
                for taken in intake.taken(message, channel.line_bytes):
                    self._messages.put((rank, taken), channel.line_bytes)
        except (OSError, ValueError) as error:
            why = f"sent {error}" if isinstance(error, ValueError) else f"its connection broke: {error}"
        if rank is not None:
            self._messages.put((rank, {"event": GONE, "message": why}))

    def _rank_of(self, hello: Mapping[str, Any]) -> int | None:
        rank = hello.get("rank")
        if hello.get("event") != "hello" or hello.get("job") != self._job or not isinstance(rank, int):
            return None
        if not 0 <= rank < self.spec.workers or rank in self._channels:
            return None
        self.hosts[rank] = str(hello.get("host"))[:80]
        accelerator = hello.get("accelerator")
        self.accelerators[rank] = None if accelerator is None else str(accelerator)[:80]
        return rank

    def _unlike(self, rank: int) -> str:
        found = self.accelerators[rank] or "the processor"
        return f"that it computes on {found}, where rank 0 has {'an accelerator' if self._accelerated else 'none'}"

    def _welcome(self, rank: int) -> Welcome:
        return Welcome(
            spec={**self.spec.to_json(), "events": []},
            rank=rank,
            world_size=self.spec.workers,
            interface="",  # each finds its own
            master_address=self._address,
            master_port=self._port + 1,
            profile=self._profile,
        )
