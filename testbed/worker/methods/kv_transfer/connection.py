"""The line between the rank that decodes and the one that keeps keys and values, and the messages on it.

One TCP connection, or as many as the run asks for, which share all frames; gloo's own are not used: gloo has a message
asked for before it sends it, which over a wide area is a round trip that the method does not have. A frame is its
length, 4 bytes, little-endian, and so many bytes. Frames from the near side begin with a byte:

    0   a text begins: the far side computes its beginning, and answers with what its selector sets up
    1   questions: how many, 1 byte, and each as a blob of `messages`; their answers come as one frame of blobs
    2   a message without an answer, as it is
    3   the text is at its end
"""

from __future__ import annotations

import contextlib
import enum
import os
import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import NamedTuple

import torch

from compressors.base.payload import PayloadError
from testbed.worker.communication.communicator import Communicator
from testbed.worker.communication.stripes import Stripes
from testbed.worker.methods.kv_transfer.cache.messages import decode_blobs, encode_blobs

_SIZE = struct.Struct("<I")
FRAME_BYTES = _SIZE.size
"""Before each frame."""
NEAR, FAR = 0, 1
"""Ranks."""
_INVITATION = struct.Struct("<32sH")
_KEY_BYTES, _HELLO_BYTES = 32, 33
_READ_BYTES = 2**18
_MAX_QUESTIONS = 255


class RequestKind(enum.IntEnum):
    BEGIN = 0
    QUESTIONS = 1
    MESSAGE = 2
    END = 3


class CacheConnection:
    """One end. It counts what it sends for the communicator, and waits for nothing for longer than the run's timeout.

    While it sends it takes what comes in, so that two ends which send at once do not wait for each other.
    """

    def __init__(self, connections: Sequence[socket.socket], comm: Communicator) -> None:
        self._stripes, self._comm = Stripes(connections), comm
        self._read = bytearray()
        self.sent_bytes = 0
        self.received_bytes = 0

    def send(self, frame: bytes) -> None:
        """
        Raises:
            CollectiveError: the other rank is gone, or takes nothing.
        """
        left = memoryview(_SIZE.pack(len(frame)) + frame)
        try:
            while left:
                readable, writable = self._wait(sends=True)
                if readable:
                    self._fill()
                if writable:
                    count = self._stripes.send(left)
                    left = left[count:]
                    self.sent_bytes += count
                    self._comm.charge(count)
        except OSError as error:
            raise self._error(f"sending {len(frame)} bytes to", error) from error

    def receive(self) -> bytes:
        """The next frame.

        Raises:
            CollectiveError: the other rank is gone, or nothing came of it.
        """
        try:
            self._fill_to(FRAME_BYTES)
            size = FRAME_BYTES + _SIZE.unpack_from(self._read)[0]
            self._fill_to(size)
        except OSError as error:
            raise self._error("waiting for", error) from error
        frame = bytes(memoryview(self._read)[FRAME_BYTES:size])
        del self._read[:size]
        self.received_bytes += size
        return frame

    def close(self) -> None:
        self._stripes.close()

    def _fill_to(self, size_bytes: int) -> None:
        while len(self._read) < size_bytes:
            self._wait()
            self._fill()

    def _fill(self) -> None:
        some = self._stripes.receive(_READ_BYTES)
        if not some:
            raise ConnectionResetError("it closed the connection")
        self._read += some

    def _wait(self, *, sends: bool = False) -> tuple[bool, bool]:
        """Whether something is there to be read, and whether more can be sent."""
        leaves_on = [self._stripes.sends_on] if sends else []
        readable, writable, _ = select.select([self._stripes.receives_on], leaves_on, [], self._comm.timeout_s)
        if not (readable or writable):
            raise TimeoutError("nothing moved")
        return bool(readable), bool(writable)

    def _error(self, what: str, cause: OSError) -> Exception:
        peer, does = (FAR, "keeps") if self._comm.rank == NEAR else (NEAR, "asks for")
        return self._comm.error(f"{what} rank {peer}, which {does} keys and values,", cause)


def connect(comm: Communicator) -> CacheConnection:
    """Of both ranks at once. The near one listens; who comes without the run's key is sent away.

    Raises:
        CollectiveError: the other rank did not come.
    """
    found = _let_in(comm) if comm.rank == NEAR else _come(comm)
    for connection in found:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return CacheConnection(found, comm)


def _let_in(comm: Communicator) -> list[socket.socket]:
    key = os.urandom(_KEY_BYTES)
    deadline_s = time.monotonic() + comm.timeout_s
    try:
        with socket.create_server((comm.address, 0), family=_family(comm.address)) as listener:
            told = _INVITATION.pack(key, listener.getsockname()[1])
            comm.broadcast(torch.frombuffer(bytearray(told), dtype=torch.uint8), source=NEAR, control=True).wait()
            found: dict[int, socket.socket] = {}
            while len(found) < comm.connections.count:
                listener.settimeout(max(deadline_s - time.monotonic(), 1e-3))
                newcomer, _ = listener.accept()
                newcomer.settimeout(max(deadline_s - time.monotonic(), 1e-3))
                said = _said(newcomer)
                if said[:_KEY_BYTES] == key and len(said) == _HELLO_BYTES and said[_KEY_BYTES] not in found:
                    found[said[_KEY_BYTES]] = newcomer
                else:
                    newcomer.close()
            return [found[number] for number in sorted(found)]
    except OSError as error:
        raise comm.error(f"waiting for rank {FAR} at {comm.address}", error) from error


def _come(comm: Communicator) -> list[socket.socket]:
    told = torch.zeros(_INVITATION.size, dtype=torch.uint8)
    comm.broadcast(told, source=NEAR, control=True).wait()
    key, port = _INVITATION.unpack(bytes(told.tolist()))
    try:
        with contextlib.ExitStack() as stack:
            found = [
                stack.enter_context(socket.create_connection((comm.address, port), timeout=comm.timeout_s))
                for _ in range(comm.connections.count)
            ]
            for number, connection in enumerate(found):
                connection.sendall(key + bytes([number]))
            stack.pop_all()
    except OSError as error:
        raise comm.error(f"connecting to rank {NEAR} at {comm.address} port {port}", error) from error
    return found


def _said(newcomer: socket.socket) -> bytes:
    """What it says first, the key and which connection it is; less where it says no more."""
    said = b""
    try:
        while len(said) < _HELLO_BYTES and (some := newcomer.recv(_HELLO_BYTES - len(said))):
            said += some
    except OSError:
        return b""
    return said


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


class Request(NamedTuple):
    """A frame of the near side."""

    kind: RequestKind
    messages: list[bytes]


def questions_frame(messages: Sequence[bytes]) -> bytes:
    """
    Raises:
        ValueError: there are too many.
    """
    if not 0 < len(messages) <= _MAX_QUESTIONS:
        raise ValueError(f"{len(messages)} questions: must be from 1 to {_MAX_QUESTIONS} that travel together")
    return bytes([RequestKind.QUESTIONS, len(messages)]) + encode_blobs(messages)


def message_frame(message: bytes) -> bytes:
    return bytes([RequestKind.MESSAGE]) + message


BEGIN_FRAME, END_FRAME = bytes([RequestKind.BEGIN]), bytes([RequestKind.END])


def decode_request(frame: bytes) -> Request:
    """
    Raises:
        PayloadError: the frame is none of the near side's.
    """
    if not frame or frame[0] not in list(RequestKind) or (frame[0] == RequestKind.QUESTIONS and len(frame) < 2):
        raise PayloadError(f"KV request: a frame of {len(frame)} bytes that begins with {frame[:1].hex() or 'nothing'}")
    if frame[0] == RequestKind.QUESTIONS:
        return Request(RequestKind.QUESTIONS, decode_blobs(frame, frame[1], 2))
    return Request(RequestKind(frame[0]), [frame[1:]] if frame[0] == RequestKind.MESSAGE else [])
