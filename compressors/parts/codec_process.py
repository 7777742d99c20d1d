"""C codecs behind a process: what they do to bytes from a network ends there, and never the rank.

A stream that passes its checksum may still make a C library crash, allocate without bound or never return. So streams
are coded in a helper process, one for each process that asks, started when first asked and again after its death. It
may map a multiple of what is to come out and no more (RLIMIT_AS), and is ended by the kernel when it has used its CPU
seconds; the wall has a limit too, wide enough for machines that are shared by many. Nothing of ours is imported there,
no torch above all: it costs about as much memory as numpy. The interpreter's lock is free meanwhile.

Bytes pass through a memfd, which both have from the start and which is emptied after each call; requests through a
socket, numbered as replies are. A call that an exception ends, such as one of a signal's handler, ends the helper with
it, so that no reply is left for the next call. The helper ends when a pipe is closed, thus with its parent, however
that ends; a fork of the parent gets a helper of its own. Its CPU seconds are added up in `cpu_s`, since they are none
of the caller's thread.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from compressors.base.payload import PayloadError, to_bytes

_SCRIPT = Path(__file__).with_name("codec_child.py")
_ENVIRONMENT = {"LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_KEPT_VARIABLE = "LONGHAUL_RUN"
"""By which all processes of a run are known; it is the one of the user's variables that the helper has."""
_LARGEST_REPLY = 1 << 16
MEMORY_BYTES, DECODE_MEMORY_FACTOR, ENCODE_MEMORY_FACTOR = 96 << 20, 6, 12
"""Memory that a call may map: a constant, and a multiple of its input and output. Measured: SZ3 decodes in 2.5 times
that, zstd encodes in 6.5 times at level 19."""
DECODE_CPU_S, DECODE_CPU_S_BYTE = 5.0, 2e-7
"""CPU seconds of a decoder at most: 30 times those of the slowest one, zfp with 160 MB/s, measured."""
ENCODE_CPU_S, ENCODE_CPU_S_BYTE = 30.0, 5e-6
"""Encoders meet no foreign bytes, and the highest levels are slow."""
WALL_FACTOR = 60
"""Wall seconds for each CPU second: dozens of ranks may share a core."""


KEPT_BYTES = 128 << 20
"""Memory that stays allocated between calls, since new pages cost more than copying into them."""


class CodecProcessError(RuntimeError):
    """The helper process cannot be started, lacks a library, cannot be limited, or ended while it encoded."""


class CodecProcess:
    """One helper, alive or not. Calls from several threads are answered one after another.

    Args:
        script: what it runs; tests have codecs of their own.
    """

    def __init__(self, script: Path = _SCRIPT) -> None:
        self._script = script
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._memory = self._lifeline = -1
        self._number = 0
        self.cpu_s = 0.0
        """CPU seconds the helper has used for calls that returned."""

    @property
    def pid(self) -> int | None:
        """Process id of the helper that was started last, if it was not found dead."""
        return self._process.pid if self._process else None

    def encode(self, codec: str, source: Tensor, capacity: int, /, **parameters: Any) -> Tensor:
        """Return the stream of `source`, contiguous, as 1-D uint8 of at most `capacity` bytes.

        Raises:
            CodecProcessError: the codec failed or is not installed, or the helper cannot do its work on this machine.
        """
        size = source.nbytes + capacity
        limits = MEMORY_BYTES + ENCODE_MEMORY_FACTOR * size, ENCODE_CPU_S + ENCODE_CPU_S_BYTE * size
        found, error = self._run(f"{codec}_encode", source, capacity, *limits, parameters)
        if found is None:
            raise CodecProcessError(f"{codec} could not encode {source.nbytes} bytes: {error}")
        return found

    def decode(self, codec: str, source: Tensor, size: int, /, **parameters: Any) -> Tensor:
        """Return the decoded bytes of the stream `source`, 1-D uint8: exactly `size` of them.

        Raises:
            PayloadError: the decoder refused it, died of it, or reached a limit.
            CodecProcessError: the codec is not installed, or the helper cannot do its work on this machine.
        """
        mapped = source.nbytes + size
        limits = MEMORY_BYTES + DECODE_MEMORY_FACTOR * mapped, DECODE_CPU_S + DECODE_CPU_S_BYTE * mapped
        found, error = self._run(f"{codec}_decode", source, size, *limits, parameters)
        if found is None:
            raise PayloadError(f"{codec} payload of {source.nbytes} bytes for {size}: {error}")
        if len(found) != size:
            raise PayloadError(f"{codec} payload: decodes to {len(found)} bytes, expected {size}")
        return found

    def close(self) -> None:
        """End the helper, if there is one. The next call starts another."""
        with self._lock:
            self._stop()

    def forget(self) -> None:
        """In a fork: the helper is the parent's, and must see its end when the parent ends."""
        self._lock = threading.Lock()
        if self._process is not None and self._socket is not None:
            self._let_go()
            self._process.returncode = 0  # nobody's child here, so nothing to wait for
        self._process = None
        self.cpu_s = 0.0

    def _run(
        self, op: str, source: Tensor, capacity: int, memory_bytes: int, cpu_s: float, parameters: dict[str, Any]
    ) -> tuple[Tensor | None, str]:
        """What came out, or None and why."""
        wall_s = WALL_FACTOR * cpu_s
        limits = {"memory_bytes": memory_bytes, "cpu_s": cpu_s, "wall_s": wall_s}
        with self._lock:
            self._number += 1
            request = {"op": op, "number": self._number, "size": source.nbytes, "capacity": capacity, **limits}
            try:
                message = json.dumps({**request, "parameters": parameters}).encode()
                answer = self._answer(message, source, capacity, wall_s)
                if answer is None:
                    self._stop(patience_s=0.0)
                    return None, f"no answer within {wall_s:g} s"
                if not answer:
                    allowed = f"{cpu_s:.0f} CPU seconds and {memory_bytes >> 20} MiB were allowed"
                    return None, f"it ended the process that ran it ({self._stop()}); {allowed}"
                return self._read(op, json.loads(answer), source.nbytes, capacity)
            except BaseException:
                # Whatever ended this call, a signal's handler for one: its reply may still come.
                self._stop(patience_s=0.0)
                raise

    def _answer(self, message: bytes, source: Tensor, capacity: int, wall_s: float) -> bytes | None:
        """The reply; empty where the helper ended, None where none came in time."""
        connection = self._ask(message, source, capacity)
        connection.settimeout(wall_s)
        try:
            return connection.recv(_LARGEST_REPLY)
        except TimeoutError:
            return None
        except OSError:
            return b""

    def _read(self, op: str, reply: dict[str, Any], size: int, capacity: int) -> tuple[Tensor | None, str]:
        """
        Raises:
            CodecProcessError: the reply is another call's, or no codec has been asked.
        """
        if reply["number"] != self._number:
            raise CodecProcessError(f"{op}: reply {reply['number']} came to call {self._number} of the helper process")
        found = None
        if "error" not in reply:
            self.cpu_s += reply["cpu_s"]
            found = torch.empty(min(reply["size"], capacity), dtype=torch.uint8)
            _move(os.preadv, self._memory, found, size)
        if size + capacity > KEPT_BYTES:
            os.ftruncate(self._memory, 0)
        if reply.get("missing"):
            raise CodecProcessError(f"{op}: its library cannot be loaded in the helper process: {reply['error']}")
        if reply.get("machine"):
            raise CodecProcessError(f"{op}: the helper process cannot limit itself on this machine: {reply['error']}")
        return found, reply.get("error", "")

    def _ask(self, message: bytes, source: Tensor, capacity: int) -> socket.socket:
        """Send the request; a helper that was ended from outside since the last one is replaced."""
        for _ in range(2):
            if self._socket is None:
                self._start()
            assert self._socket is not None
            needed = max(1, source.nbytes + capacity)
            try:
                if os.fstat(self._memory).st_size < needed:
                    os.ftruncate(self._memory, needed)
                _move(os.pwritev, self._memory, source, 0)
            except OSError as error:
                raise CodecProcessError(f"no {needed} bytes to share with the codec helper process: {error}") from error
            try:
                self._socket.send(message)
                return self._socket
            except OSError:
                ended = self._stop()
        raise CodecProcessError(f"the codec helper process ends as soon as it is started ({ended})")

    def _start(self) -> None:
        # Neither the user's variables, but one, nor packages that run code at start: -I, -S.
        environment = _ENVIRONMENT | {k: v for k, v in os.environ.items() if k == _KEPT_VARIABLE}
        paths = dict.fromkeys(sysconfig.get_path(name) for name in ("platlib", "purelib"))
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            try:
                connection, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                ours.callback(connection.close)
                theirs.callback(far.close)
                memory = os.memfd_create("codec", os.MFD_CLOEXEC)
                ours.callback(os.close, memory)
                end, lifeline = os.pipe()
                ours.callback(os.close, lifeline)
                theirs.callback(os.close, end)
                passed = (far.fileno(), memory, end)
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(self._script), *map(str, passed), *paths],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env=environment,
                    cwd="/",
                    pass_fds=passed,
                )
            except OSError as error:
                raise CodecProcessError(
                    f"the codec helper process cannot be started: {error}: {sys.executable}"
                ) from error
            self._socket, self._memory, self._lifeline = connection, memory, lifeline
            ours.pop_all()

    def _let_go(self) -> None:
        """Of all that is shared with the helper, which ends then."""
        assert self._socket is not None
        self._socket.close()
        os.close(self._memory)
        os.close(self._lifeline)
        self._socket = None

    def _stop(self, patience_s: float = 1.0) -> str:
        """How it ended: its end may be seen before it is over, and none outlives `patience_s`."""
        if self._process is None or self._socket is None:
            return ""
        self._let_go()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=patience_s)
        self._process.kill()
        code = self._process.wait()
        self._process = None
        return signal.Signals(-code).name if code < 0 else f"exit status {code}"


def _move(call: Any, descriptor: int, tensor: Tensor, offset: int) -> None:
    """All bytes of a contiguous tensor, to or from a file."""
    array: Any = to_bytes(tensor).numpy()
    view = memoryview(array)
    while view:
        count = call(descriptor, [view], offset)
        if count <= 0:
            raise CodecProcessError(f"{len(view)} bytes are missing in the memory shared with the codec helper process")
        view, offset = view[count:], offset + count


_ours = CodecProcess()
_of_thread = threading.local()


def use(process: CodecProcess) -> None:
    """From here on this thread's calls go to `process`, which its maker closes: other threads do not wait for them."""
    _of_thread.process = process


def encode(codec: str, source: Tensor, capacity: int, /, **parameters: Any) -> Tensor:
    """Encode by this thread's helper, or by the process's if it has none; see `CodecProcess.encode`."""
    return _current().encode(codec, source, capacity, **parameters)


def decode(codec: str, source: Tensor, size: int, /, **parameters: Any) -> Tensor:
    """Decode by this thread's helper, or by the process's if it has none; see `CodecProcess.decode`."""
    return _current().decode(codec, source, size, **parameters)


def _current() -> CodecProcess:
    found: CodecProcess = getattr(_of_thread, "process", _ours)
    return found


atexit.register(_ours.close)
os.register_at_fork(after_in_child=_ours.forget)


def cpu_s() -> float:
    """CPU seconds that this thread's helpers have used."""
    return _current().cpu_s
