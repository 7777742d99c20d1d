"""Decodes what some clients have sent while others' messages are still arriving."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from compressors.base.payload import PayloadError
from compressors.parts import codec_process
from compressors.parts.codec_process import CodecProcess
from testbed.worker.device.clock import PhaseClock
from testbed.worker.methods.parameter_server.messages.entries import Entry
from testbed.worker.methods.parameter_server.transport.elapsed import Elapsed
from testbed.worker.methods.parameter_server.transport.frame_errors import Refused
from testbed.worker.methods.parameter_server.transport.frames import Frame

DECOMPRESS = "decompress"
Decode = Callable[[int, Frame], tuple[list[Entry], list[Tensor]]]
"""Of a client and its frame: what its table says, and its tensors. Called by several threads at the same time."""


@dataclass(frozen=True)
class Decoded:
    frame: Frame
    entries: list[Entry]
    tensors: list[Tensor]
    decode_s: float
    """Emulated seconds that it took; those in which others were decoded too count in full."""


Ended = Decoded | Refused | PayloadError


class Decoders:
    """`count` threads of a server, each with a helper process of its own for what a C library decodes.

    They hide what decoding takes behind the messages that are still to come: where messages are larger than the kernel
    keeps of a connection, these move on meanwhile. Nothing is won where all messages arrive at once, but by as many
    decoders as there are cores to spare, and with one client never. In emulated time each is as fast as a core of its
    own, whatever the server's node has; all are paced by the machine's cores.

    What comes of it is the same, bit for bit. With a count of 0 the caller decodes, each message as it comes.
    """

    def __init__(self, count: int, clock: PhaseClock) -> None:
        self.count, self._clock = count, clock
        self._processes: list[CodecProcess] = []
        self._pool: ThreadPoolExecutor | None = None
        if count:
            self._pool = ThreadPoolExecutor(count, thread_name_prefix="decoder", initializer=self._begin)

    def each(self, coming: Iterator[tuple[int, Frame]], decode: Decode) -> Iterator[tuple[int, Ended]]:
        """Every client with what came of its message, in the order in which that is known.

        Raises:
            Exception: whatever `decode` raises that is no client's fault, as `CodecProcessError`.
        """
        under_way: dict[Future[Ended], int] = {}
        for client, frame in coming:
            if self._pool is None:
                with self._clock.phase(DECOMPRESS):
                    found = self._decoded(decode, client, frame)
                yield client, found
            else:
                under_way[self._pool.submit(self._paced, partial(self._decoded, decode, client, frame))] = client
        while under_way:
            with self._clock.phase(DECOMPRESS, waits=True):
                ready, _ = wait(under_way, return_when=FIRST_COMPLETED)
            for future in sorted(ready, key=lambda one: under_way[one]):
                yield under_way.pop(future), future.result()

    def close(self) -> None:
        """What is under way is still decoded; nobody asks for it."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        for process in self._processes:
            process.close()
        self._processes = []

    def _begin(self) -> None:
        """In each thread."""
        process = CodecProcess()
        self._processes.append(process)
        codec_process.use(process)

    def _decoded(self, decode: Decode, client: int, frame: Frame) -> Ended:
        elapsed = Elapsed(self._clock.dilation)
        try:
            entries, tensors = decode(client, frame)
        except (Refused, PayloadError) as error:
            return error.with_traceback(None)  # which would hold buffers
        return Decoded(frame, entries, tensors, elapsed.seconds())

    def _paced(self, work: Callable[[], Ended]) -> Ended:
        """As long on the wall as its CPU seconds are to take."""
        begun_s, elapsed = time.monotonic(), Elapsed(self._clock.dilation)
        found = work()
        left_s = begun_s + self._clock.dilation * elapsed.seconds() - time.monotonic()
        time.sleep(max(0.0, left_s))
        return found
