"""Bytes as nobody should send them, and limits on what a decoder may take to refuse them."""

from __future__ import annotations

import contextlib
import random
import resource
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from compressors.base.compressor import Compressor, Context, Layout
from compressors.base.payload import PayloadError
from compressors.parts.frame import resealed
from testbed.worker.laws.cases.lockstep import contexts
from testbed.worker.laws.cases.registry import LawBroken, gradients, require

NUMEL = 300
LAYOUT = Layout(((NUMEL,),))
CONTEXT: Context = contexts(LAYOUT, None, 1)[0]
MEMORY_BYTES = 256 << 20
"""Address space that decoding so few elements may take beyond what the process has: a thread's arena takes most."""
TIME_S = 10.0
"""CPU seconds of this process; codecs behind a process have tighter limits of their own."""
PATIENCE_S = 300.0
"""Wall seconds, which a busy machine stretches: whatever takes longer waits for something that never comes."""
WORDS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**31 + 1, NUMEL, NUMEL + 1)
DOUBLE_WORDS = (2**31, 2**32, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
FLOATS = (float("nan"), float("inf"), float("-inf"), 3.4e38, -3.4e38, 1e-45, -0.0)


def tensor_of(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


def bytes_of(payload: Tensor) -> bytes:
    return payload.cpu().contiguous().numpy().tobytes()


def sound_payloads(codec: Compressor) -> list[bytes]:
    """Of ordinary gradients, of zeros, of a constant."""
    tensors = [gradients(LAYOUT, 1)[0], torch.zeros(NUMEL), torch.ones(NUMEL)]
    return [bytes_of(codec.encode(tensor, CONTEXT)) for tensor in tensors]


@contextlib.contextmanager
def memory_limit(extra_bytes: int) -> Iterator[None]:
    """This process may map so much more; what asks for more gets an error, not memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = pages * resource.getpagesize() + extra_bytes
    ceilings = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min([wanted, *ceilings]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def meet(codec: Compressor, data: bytes, what: str) -> str | None:
    """Let `codec` decode `data`: why it refused, None if it answered. All but an answer of the right size and a
    PayloadError is wrong.

    Raises:
        LawBroken: it raised something else, took too long, wanted too much memory, changed the size of the output, or
            left NaN or infinity there, which it says it does not carry.
    """
    payload, out = tensor_of(data), torch.full((NUMEL,), 7.0)
    refusal = withstood(lambda: codec.decode(payload, out, CONTEXT), data, what, PayloadError)
    require(out.shape == (NUMEL,), f"{what}: the output has shape {tuple(out.shape)}")
    require_declared(codec, out, f"{what} (payload {_shown(data)})")
    return refusal


def require_declared(codec: Compressor, out: Tensor, what: str) -> None:
    """Refuse an output that is not finite of a codec that carries nothing of the kind."""
    finite = codec.traits.carries_non_finite is not False or bool(out.isfinite().all())
    require(finite, f"{what}: carries_non_finite=False, and what is decoded is not finite")


def withstood(act: Callable[[], object], data: bytes, what: str, *refusals: type[Exception]) -> str | None:
    """Let `act` take `data`: why it refused, None if it did not.

    Raises:
        LawBroken: it raised something else than `refusals`, took too long or wanted too much memory.
    """
    began_s, cpu_began_s = time.monotonic(), time.process_time()
    refusal = None
    try:
        act()
    except refusals as error:
        refusal = str(error)
        require(refusal, f"{what}: is refused without a word")
    except Exception as error:
        said = (str(error).splitlines() or [""])[0]
        raise LawBroken(f"{what}: {type(error).__name__}: {said} (payload {_shown(data)})") from error
    cpu_s, took_s = time.process_time() - cpu_began_s, time.monotonic() - began_s
    require(cpu_s < TIME_S, f"{what}: took {cpu_s:.1f} s of CPU time (payload {_shown(data)})")
    require(took_s < PATIENCE_S, f"{what}: took {took_s:.1f} s (payload {_shown(data)})")
    return refusal


class Opponent(Protocol):
    """What takes bytes of others."""

    def sound(self) -> list[bytes]:
        """What it should be given."""

    def meet(self, data: bytes, what: str) -> str | None:
        """Why it refused, None if it did not.

        Raises:
            LawBroken: it did neither that nor answer, as it should.
        """

    def resealed(self, data: bytes) -> bytes:
        """Return the bytes with the checksums of what they hold, as an attacker would send them."""


class Decoder:
    """A compressor point to point, as an opponent."""

    def __init__(self, codec: Compressor) -> None:
        self._codec = codec

    def sound(self) -> list[bytes]:
        return sound_payloads(self._codec)

    def meet(self, data: bytes, what: str) -> str | None:
        return meet(self._codec, data, what)

    def resealed(self, data: bytes) -> bytes:
        return resealed(data)


def _shown(data: bytes) -> str:
    return f"{data[:48].hex()}{'…' if len(data) > 48 else ''}, {len(data)} bytes"


def huge_counts(sound: bytes) -> Iterator[bytes]:
    """Each word near the beginning and the end, where counts and sizes are, made huge."""
    ends = range(min(64, len(sound))), range(max(0, len(sound) - 16), len(sound))
    for at in sorted({position for end in ends for position in end}):
        for width, values in (("<I", (0x7FFFFFFF, 0xFFFFFFFF)), ("<Q", (2**40, 2**63 - 1))):
            size = struct.calcsize(width)
            if at % 2 == 0 and at + size <= len(sound):
                for value in values:
                    yield sound[:at] + struct.pack(width, value) + sound[at + size :]


def mutated(sound: bytes, draw: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """`sound` with one to four things wrong."""
    data = bytearray(sound)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        _damage(data, draw, others)
    return bytes(data)


def _damage(data: bytearray, draw: random.Random, others: Sequence[bytes]) -> None:
    kind = draw.randrange(9)
    at = draw.randrange(len(data)) if data else 0
    if not data or kind == 0:
        data[at:at] = draw.randbytes(draw.randrange(1, 9))
    elif kind == 1:
        data[at] ^= 1 << draw.randrange(8)
    elif kind == 2:
        data[at] = draw.randrange(256)
    elif kind == 3:
        data[at:] = b""
    elif kind == 4:
        data[at : at + draw.randrange(1, 9)] = b""
    elif kind == 5 and others:
        other = draw.choice(others)
        data[at:] = other[at:]
    elif kind == 6:
        piece = data[at : at + draw.randrange(1, 33)]
        data[at:at] = piece
    else:
        form, values = draw.choice((("<I", WORDS), ("<Q", DOUBLE_WORDS), ("<f", FLOATS), ("<H", (0, 0xFFFF, NUMEL))))
        word = struct.pack(form, draw.choice(values))
        at = draw.choice((at, at // 4 * 4, max(0, len(data) - len(word))))
        data[at : at + len(word)] = word[: max(0, len(data) - at)]
