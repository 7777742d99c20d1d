"""What clients and a parameter server send each other: one frame, with all tensors in it, a direction and a round.

All numbers are in network byte order. A frame is a header, a table, a payload, and a code over all that precedes it:

| part | bytes | holds |
|---|---|---|
| header | 96 | magic `LHMS`, version u8, kind u8, payload kind u8, reason u8, sender u32, round u32, epoch u32, |
|        |    | tensors u32, payload bytes u64, schema hash 32 bytes, samples u64, alpha f64, train loss f64, |
|        |    | decode seconds f64 |
| table | 52 a tensor | index u32, codec (ASCII, zeros behind it) 16 bytes, bound f64, update RMS f64, raw bytes u64, |
|       |             | coded bytes u64 |
| payload | their sum | tensors as coded, in the order of the table; in a frame without tensors a text in UTF-8 |
| code | 16 | BLAKE2b keyed by the run's key |

so that a frame of n tensors is 112 + 52 n bytes longer than they are as coded: `frame_bytes`. Nothing in it is pickled.
`testbed.worker.methods.parameter_server.transport.frame_parser` reads what others have sent.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from testbed.core.kinds import shown
from testbed.worker.methods.parameter_server.transport.frame_errors import Refusal
from testbed.worker.methods.parameter_server.transport.tensor_schema import HASH_BYTES

MAGIC, VERSION = b"LHMS", 1
SERVER = 2**32 - 1
"""The server's number as a sender; clients count from 0."""
MAX_EXTRA_BYTES = 4096
"""By which a codec may make a tensor longer than it is raw; what is longer is sent raw."""
MAX_TEXT_BYTES = 4096
CODEC_CHARACTERS = 16
HEADER = struct.Struct(f"!4sBBBBIIIIQ{HASH_BYTES}sQddd")
ENTRY = struct.Struct(f"!I{CODEC_CHARACTERS}sddQQ")
HEADER_BYTES, ENTRY_BYTES, MAC_BYTES = HEADER.size, ENTRY.size, 16
NO_REASON = 0

Buffer = bytes | bytearray | memoryview


class Kind(IntEnum):
    HELLO = 1
    """A client joins, or joins again; its round is one above that of the model it has, 0 where it has none."""
    MODEL = 2
    """Server to client."""
    UPDATE = 3
    """Client to server."""
    REFUSAL = 4
    """Why the sender closes the connection; may come at any time."""
    BYE = 5
    """The sender leaves in good order; may come at any time."""
    ASK = 6
    """Server to client, in an exchange within a round: see
    `testbed.worker.methods.parameter_server.rounds.exchanges`."""
    ANSWER = 7
    """Client to server, likewise; asked for or not. Without tensors: it has none, and a text may say why."""


class Payload(IntEnum):
    """What the tensors of a frame are."""

    NOTHING = 0
    """There are none; a text may be."""
    PARAMS = 1
    DELTA = 2
    """To be added to the reference of the frame's epoch; by a client that has come back, and has none, to nothing."""
    GRAD = 3
    DATA = 4
    """Nothing of a model: of ASK and ANSWER, whose schema says what."""


@dataclass(frozen=True, kw_only=True)
class Coded:
    """A tensor as a codec left it."""

    index: int
    """Its place in the schema."""
    codec: str
    bound: float = 0.0
    """Of the absolute error; 0 where nothing is lost."""
    update_rms: float = 0.0
    """Root mean square of what a round of training changed."""
    raw_bytes: int
    data: Buffer
    """Contiguous; of a frame that was read, a view of what was received."""


@dataclass(frozen=True, kw_only=True)
class Frame:
    """
    Attributes:
        round: that it belongs to; counts where kind is MODEL, UPDATE, ASK or ANSWER.
        epoch: of the reference: how often all of a model has been sent anew. Deltas and gradients hang on one, and so
            do parameters of the receiver's own epoch, some of which may be said to be unchanged. A model of another
            epoch is whole and exact, and hangs on nothing: whoever takes it forgets what it kept of those before.
        samples: the weight of an update in the mean.
        alpha: noise over update, root mean squares: what bounds follow from in this round.
        decode_s: emulated seconds that the sender takes to decode what the receiver sends; 0: it does not say.
    """

    kind: Kind
    sender: int
    schema_hash: bytes
    round: int = 0
    epoch: int = 0
    payload: Payload = Payload.NOTHING
    tensors: tuple[Coded, ...] = ()
    samples: int = 0
    alpha: float = 0.0
    train_loss: float = 0.0
    decode_s: float = 0.0
    reason: Refusal | None = None
    text: str = ""

    def pack(self, key: bytes) -> list[Buffer]:
        """What to send, one behind the other; tensors are not copied.

        Raises:
            ValueError: a number has no place in its field, a codec's name is no ASCII or above 16 characters, the text
                is above 4096 bytes, or stands beside tensors.
        """
        coded = [_flat(tensor.data) for tensor in self.tensors]
        text = self.text.encode()
        if len(text) > MAX_TEXT_BYTES or (text and coded):
            raise ValueError(f"text of {len(text)} bytes: must be at most {MAX_TEXT_BYTES}, and without tensors")
        if (text and self.payload is not Payload.NOTHING) or (coded and self.payload is Payload.NOTHING):
            raise ValueError(f"payload={self.payload.name}: must be NOTHING for a text, and not for tensors")
        payload: list[Buffer] = [view for view in coded if view.nbytes] or ([text] if text else [])
        reason = self.reason.code if self.reason else NO_REASON
        try:
            header = HEADER.pack(
                *(MAGIC, VERSION, self.kind, self.payload, reason, self.sender, self.round, self.epoch),
                *(len(coded), sum(map(len, payload)), self.schema_hash, self.samples),
                *(self.alpha, self.train_loss, self.decode_s),
            )
            table = [
                ENTRY.pack(one.index, _codec_field(one.codec), one.bound, one.update_rms, one.raw_bytes, view.nbytes)
                for one, view in zip(self.tensors, coded, strict=True)
            ]
        except struct.error as error:
            raise ValueError(f"a frame's fields cannot hold these numbers: {error}") from error
        pieces: list[Buffer] = [b"".join([header, *table]), *payload]
        return [*pieces, authentication_code(key, pieces)]


def frame_bytes(tensors: int, payload_bytes: int) -> int:
    """Of a whole frame, with so many tensors, or of one with a text, of `payload_bytes` in all."""
    return HEADER_BYTES + tensors * ENTRY_BYTES + payload_bytes + MAC_BYTES


def authentication_code(key: bytes, pieces: Iterable[Buffer]) -> bytes:
    """That of a frame of these pieces: keyed BLAKE2b, 16 bytes."""
    hashed = hashlib.blake2b(key=key, digest_size=MAC_BYTES)
    for piece in pieces:
        hashed.update(piece)
    return hashed.digest()


def _flat(data: Buffer) -> memoryview:
    view = memoryview(data)
    return view.cast("B") if view.nbytes else memoryview(b"")  # of an empty one there is no cast


def _codec_field(codec: str) -> bytes:
    if not codec.isascii() or not 1 <= len(codec) <= CODEC_CHARACTERS or "\0" in codec:
        raise ValueError(f"codec={shown(codec)}: must have 1 to {CODEC_CHARACTERS} ASCII characters")
    return codec.encode("ascii")
