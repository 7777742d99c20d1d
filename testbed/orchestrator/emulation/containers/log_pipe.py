"""The log of one container, written by the run from a pipe: what runs in the container never holds the file.

Head and tail of the output are kept; between them the file says how much was cut. Whoever writes faster than the log is
read waits, as for a slow terminal. So a container can neither own a file of the host, nor make it executable, nor
reserve room in it, nor fill the disk.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import select
import termios
import threading
import time
from pathlib import Path
from typing import Final

HEAD_BYTES: Final = 1 << 23
"""Output from the first byte on that is kept as it is."""
TAIL_BYTES: Final = 1 << 20
"""Least of the last output that is kept beyond it."""
RATE_BYTE_S: Final = 1 << 23
"""Output of one container that is taken in a second, once it has had as much as a head at once."""
_PIPE_BYTES = 1 << 20
_PIECE_BYTES = 1 << 16
_SETTLE_S = 2.0
"""Longest wait until what a container has written is in its log."""
_END_S = 5.0
_POLL_S = 0.005


class RateLimit:
    """Tells how long to wait before more is taken: a token bucket."""

    def __init__(self, rate_byte_s: float, burst_bytes: float, now_s: float) -> None:
        self._rate_byte_s, self._burst_bytes = rate_byte_s, burst_bytes
        self._room_bytes, self._at_s = burst_bytes, now_s

    def wait_s(self, taken_bytes: int, now_s: float) -> float:
        """Return the seconds that whoever took so many bytes at `now_s` is to wait."""
        grown_bytes = self._rate_byte_s * (now_s - self._at_s)
        self._room_bytes = min(self._burst_bytes, self._room_bytes + grown_bytes) - taken_bytes
        self._at_s = now_s
        return max(0.0, -self._room_bytes / self._rate_byte_s)


class CappedFile:
    """A file that keeps the head and the tail of what is written to it, and says between them what was cut.

    At any time it can be read. It is opened once, and never through a link.
    """

    def __init__(self, path: Path, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o644)
        self._size_bytes = os.fstat(self._file).st_size
        self._head_bytes = max(head_bytes, self._size_bytes)
        """What was there before, of a node that comes back, is part of the head."""
        self._tail_bytes = tail_bytes
        self._tail = bytearray()
        self._cut_bytes = 0

    def write(self, data: bytes) -> None:
        """Append; what a full disk does not take is lost."""
        head = data[: max(0, self._head_bytes - self._size_bytes)]
        rest = data[len(head) :]
        self._append(head)
        if not rest:
            return
        self._tail += rest
        if len(self._tail) <= 2 * self._tail_bytes:
            self._append(rest)
            return
        self._cut_bytes += len(self._tail) - self._tail_bytes
        del self._tail[: -self._tail_bytes]
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, self._head_bytes)
        self._size_bytes = self._head_bytes
        self._append(f"\n[longhaul: {self._cut_bytes} bytes of output are cut here]\n".encode() + self._tail)

    def _append(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # the log is a help, the record is what counts
            os.pwrite(self._file, data, self._size_bytes)
        self._size_bytes += len(data)

    def close(self) -> None:
        os.close(self._file)


class LogPipe:
    """A pipe, once it is opened, and the thread that writes what comes out of it to `path`.

    The end for the container stays open here too, until `close`, so that one process may follow another.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ends: tuple[int, int] | None = None
        self._lock = threading.Lock()
        """Held between reading and writing."""
        self._is_closing = threading.Event()

    def open(self) -> int:
        """Return the descriptor that a container is to print to."""
        if self._ends is None:
            read_end, write_end = self._ends = os.pipe2(os.O_CLOEXEC)
            with contextlib.suppress(OSError):  # a caller who is not root may have had its share of pipes
                fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
            self._is_closing.clear()
            self._thread = threading.Thread(target=self._work, args=(read_end, CappedFile(self._path)), daemon=True)
            self._thread.start()
        return self._ends[1]

    def _work(self, read_end: int, file: CappedFile) -> None:
        limit = RateLimit(RATE_BYTE_S, HEAD_BYTES, time.monotonic())
        poll = select.poll()
        poll.register(read_end, select.POLLIN)
        data = b"begun"
        while data:
            poll.poll()
            with self._lock:
                data = os.read(read_end, _PIECE_BYTES)
                file.write(data)
            self._is_closing.wait(limit.wait_s(len(data), time.monotonic()))
        file.close()

    def settle(self) -> None:
        """Wait until what was written so far is in the file, but not for who goes on writing faster than it is read."""
        deadline_s, waiting = time.monotonic() + _SETTLE_S, array.array("i", [0])
        while time.monotonic() < deadline_s:
            with self._lock:
                if self._ends is None:
                    return
                fcntl.ioctl(self._ends[0], termios.FIONREAD, waiting)
            if not waiting[0]:
                return
            time.sleep(_POLL_S)

    def close(self) -> None:
        """End the log, once the container is gone."""
        self.settle()
        with self._lock:
            ends, self._ends = self._ends, None
        if ends is None:
            return
        read_end, write_end = ends
        self._is_closing.set()
        os.close(write_end)
        self._thread.join(_END_S)
        if not self._thread.is_alive():  # or a process has outlived its container, and the pipe is left to it
            os.close(read_end)
