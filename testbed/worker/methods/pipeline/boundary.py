"""What passes between two stages: activations one way, their gradients the other, each through a codec.

A message is the tensor itself where the codec sends it verbatim, the payload where its size is known beforehand, and
else a frame: the payload's size (int64), then the payload. The receiver has posted where it goes beforehand, with room
for the largest frame: gloo fills as much of it as was sent, and ends the process of a receiver with too little room,
so that a sender refuses what does not fit.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from compressors.base.compressor import SIZE_BYTES, Compressor, Context, Layout
from compressors.base.payload import PayloadError, from_bytes, to_bytes
from testbed.core.errors import InputError
from testbed.core.kinds import Kind
from testbed.core.parameters import choice
from testbed.worker.communication.communicator import Communicator
from testbed.worker.communication.transport import Arrivals, Peers, Waitable
from testbed.worker.device.clock import WAITING, PhaseClock
from testbed.worker.plugins import compressor_catalogue
from testbed.worker.plugins.factory import build

_HEADER_BYTES = 4096
"""A payload of more than these and twice the tensor does not come from a compressor."""


class _Sent:
    """A message on its way, of which gloo tells once that it is through: here all may ask, from any thread."""

    def __init__(self, work: Waitable) -> None:
        self._work: Waitable | None = work
        self._lock = threading.Lock()
        self._error: RuntimeError | None = None

    def wait(self) -> None:
        with self._lock:
            if self._work is not None:
                work, self._work = self._work, None
                try:
                    work.wait()
                except RuntimeError as error:
                    self._error = error
        if self._error is not None:
            raise self._error


@dataclass(frozen=True, kw_only=True)
class Passage:
    """One direction of one boundary, as both of its ends know it."""

    name: str
    """What passes, for messages."""
    sender: int
    receiver: int
    channel: int
    shape: tuple[int, ...]
    """Of one micro-batch's tensor, float32."""
    index: int
    """Among all passages, for the codec."""
    replica: int
    seed: int

    @property
    def layout(self) -> Layout:
        return Layout((self.shape,), self.index)

    def context(self, step: int, micro_batch: int) -> Context:
        """All shards of a replica draw alike."""
        stream = f"{self.replica}/{micro_batch}"
        return Context(layout=self.layout, route=None, seed=self.seed, step=step, rank=0, world_size=1, stream=stream)

    def room_bytes(self, codec: Compressor) -> int:
        """For the largest message."""
        if codec.traits.fixed_size:
            return codec.payload_bytes(self.layout, self.context(0, 0))
        return SIZE_BYTES + 8 * self.layout.numel + _HEADER_BYTES


class Sender:
    """Sends off, and never waits before `finish`."""

    def __init__(self, passage: Passage, codec: Compressor, comm: Communicator, clock: PhaseClock) -> None:
        self._passage, self._codec, self._comm, self._clock = passage, codec, comm, clock
        self._peers: Peers = comm.peers(passage.channel)
        self._under_way: list[_Sent] = []

    def send(self, tensor: Tensor, step: int, micro_batch: int) -> None:
        """
        Args:
            tensor: not to be changed before `finish`.
        """
        message = self._message(tensor.detach(), step, micro_batch)
        self._clock.mark()
        with self._named():
            sent = _Sent(self._peers.send(self._passage.receiver, message))
        self._under_way.append(sent)
        self._comm.stopwatch.follow(sent.wait)

    def finish(self) -> None:
        """
        Raises:
            CollectiveError: what was sent did not arrive.
        """
        with self._clock.phase(WAITING), self._named():
            for sent in self._under_way:
                sent.wait()
        self._under_way.clear()

    def _message(self, tensor: Tensor, step: int, micro_batch: int) -> Tensor:
        codec, passage = self._codec, self._passage
        if codec.traits.verbatim:
            return tensor.contiguous()
        with self._clock.phase("compress"), torch.no_grad():
            payload = codec.encode(tensor.reshape(-1), passage.context(step, micro_batch))
            if codec.traits.fixed_size:
                return payload
            frame = torch.cat([to_bytes(torch.tensor([len(payload)])), payload])
        if len(frame) > passage.room_bytes(codec):
            what = f"{type(codec).__name__} made {len(payload)} bytes of {tensor.numel()} values"
            raise self._comm.error(f"sending {passage.name}", ValueError(f"{what}, more than twice their own size"))
        return frame

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            passage = self._passage
            raise self._comm.error(f"sending {passage.name} to rank {passage.receiver}", error) from error


class Receiver:
    """Posts ahead where a step's messages are to go, and takes them in their order."""

    def __init__(self, passage: Passage, codec: Compressor, comm: Communicator, clock: PhaseClock) -> None:
        self._passage, self._codec, self._comm, self._clock = passage, codec, comm, clock
        self._peers: Peers = comm.peers(passage.channel)
        self._arrivals: Iterator[Tensor] = iter(())

    def begin(self, micro_batches: int) -> None:
        """So many are to come in this step."""
        places = (self._place() for _ in range(micro_batches))
        self._arrivals = iter(Arrivals(self._peers, self._passage.sender, places))

    def receive(self, step: int, micro_batch: int) -> Tensor:
        """
        Raises:
            CollectiveError: it did not come, or is none that the codec can have made.
        """
        passage, codec = self._passage, self._codec
        end = self._comm.stopwatch.start()
        try:
            with self._clock.phase(WAITING):
                message = next(self._arrivals)
        except RuntimeError as error:
            raise self._comm.error(self._what(micro_batch), error) from error
        finally:
            end()
        if codec.traits.verbatim:
            return message
        tensor = torch.empty(passage.shape)
        with self._clock.phase("decompress"):
            try:
                codec.decode(self._payload(message), tensor.view(-1), passage.context(step, micro_batch))
            except PayloadError as error:
                raise self._comm.error(self._what(micro_batch), error) from error
        return tensor

    def _what(self, micro_batch: int) -> str:
        return f"receiving {self._passage.name} of micro-batch {micro_batch + 1} from rank {self._passage.sender}"

    def _place(self) -> Tensor:
        if self._codec.traits.verbatim:
            return torch.empty(self._passage.shape)
        return torch.empty(self._passage.room_bytes(self._codec), dtype=torch.uint8)

    def _payload(self, message: Tensor) -> Tensor:
        if self._codec.traits.fixed_size:
            return message
        size = int(from_bytes(message[:SIZE_BYTES], torch.int64))
        if not 0 <= size <= len(message) - SIZE_BYTES:
            raise PayloadError(f"a frame of {size} bytes, where at most {len(message) - SIZE_BYTES} make sense")
        return message[SIZE_BYTES:][:size]


def finish_all(senders: Sequence[Sender]) -> None:
    for sender in senders:
        sender.finish()


# The codec of activations: a compressor by its name, or one that was made.

_INSTEAD = "use none, fp16, int8, topk or sz3"


@dataclass(frozen=True)
class ActivationCodec(Kind):
    """Compressors that serve point to point, by their names or made."""

    type_text = "name of a compressor, or a compressor, given as {_target_: …}"
    bases = (Compressor,)

    def faults(self, name: str, value: object, *, null: bool = False) -> Iterator[str]:
        try:
            codec(value)
        except ValueError as error:
            yield from str(error).splitlines()


def codec(asked: object) -> Compressor:
    """
    Raises:
        ValueError: it is none, or cannot serve point to point; all that is wrong, one a line.
    """
    if isinstance(asked, Compressor):
        made = asked
    else:
        if fault := choice("activations", asked, compressor_catalogue.names()):
            raise ValueError(f"{fault}; or a compressor, given as {{_target_: …}}")
        try:
            made = build("activations", compressor_catalogue.part(str(asked)), Compressor)
        except InputError as error:
            raise ValueError(str(error)) from error
    if faults := list(_faults(made)):
        raise ValueError("\n".join(faults))
    return made


def _faults(made: Compressor) -> Iterator[str]:
    name, traits = type(made).__name__, made.traits
    if not traits.point_to_point:
        yield f"activations={name}: works among all ranks, never point to point; {_INSTEAD}"
    elif traits.feedback == "builtin" or traits.owns != "nothing" or made.feedback not in ("auto", "off"):
        yield (
            f"activations={name} with feedback={made.feedback}: keeps what it leaves out for the next step, whose"
            f" activations are of other samples; {_INSTEAD}, with feedback=auto"
        )
