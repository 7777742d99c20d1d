"""How the tensors of one direction travel: what is sent, and by which codec."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated

from compressors.base.compressor import Compressor
from compressors.sz3 import ALGORITHMS
from testbed.core.declaration import checked
from testbed.core.errors import InputError
from testbed.core.kinds import Choice, Kind, Whole, shown
from testbed.core.parameters import Flag, choice, inner_feedback, raise_all
from testbed.worker.methods.parameter_server.messages import lossless
from testbed.worker.methods.parameter_server.messages.tensor_codecs import Codec, Fp16, Int8Zstd, OfCompressor, Sz3
from testbed.worker.plugins import compressor_catalogue
from testbed.worker.plugins.factory import build

PAYLOADS = {"up": ("params", "delta", "grad"), "down": ("params", "delta")}
LOSSLESS = ("zstd", "raw")
BOUNDED = ("sz3", "int8_zstd")
"""Those with an absolute bound."""
CODECS = (*BOUNDED, "fp16", *LOSSLESS)
"""All that are the server's own; all else is a compressor."""


@dataclass(frozen=True)
class _Codec(Kind):
    """The server's own codecs, and compressors by their names or made."""

    type_text = "choice, or a compressor, given as {_target_: …}"
    bases = (Compressor,)
    values_text = f"{', '.join(CODECS)}, or the name of a compressor"

    def faults(self, name: str, value: object, *, null: bool = False) -> Iterator[str]:
        if not isinstance(value, Compressor):
            yield from Choice([*CODECS, *compressor_catalogue.names()]).faults(name, value)


@checked
@dataclass(frozen=True, kw_only=True)
class Plan:
    """Both ends of a direction have the same.

    Raises:
        ValueError: with every fault, one a line.
    """

    direction: Annotated[str, Choice(PAYLOADS)]
    """"up", from clients to the server, or "down"."""
    payload: Annotated[str, Choice(PAYLOADS["up"])] = "params"
    """Form in which parameters travel: params, their values; delta, what they have become less what the receiver has;
    grad, gradients, upwards alone. Other tensors travel as they are."""
    codec: Annotated[str | Compressor, _Codec()] = "sz3"
    """Codec of large parameters."""
    algorithm: Annotated[str, Choice(ALGORITHMS)] = "nopred"
    """SZ3's predictor."""
    cutoff: Annotated[int, Whole(0, unit="elements")] = 1024
    """Largest tensors that travel lossless."""
    dither: Flag = False
    """Subtract at the receiver what the sender added at random: errors become uniform, and are as large at most."""
    feedback: Flag = False
    """Add to what is sent what was lost before. Upwards alone: what the server sends down next is a difference to what
    clients have, in which the loss is already."""
    importance: Flag = False
    """Tighter bounds for tensors with large gradients, looser ones for others. Upwards alone: the server has none."""
    lossless: Annotated[str, Choice(LOSSLESS)] = "zstd"
    """Codec of everything that is not lossy; raw saves time."""
    coder: Codec | None = field(init=False, repr=False, compare=False)
    """None: all is lossless."""

    def __post_init__(self) -> None:
        raise_all(*self._faults())
        object.__setattr__(self, "coder", _coder(self.codec, self.algorithm))
        raise_all(*self._codec_faults())

    @property
    def leaves_out(self) -> bool:
        """Whether constant and unchanged tensors go as less than they are; not in the baseline, where all is raw."""
        return self.codec != "raw"

    @property
    def bounded(self) -> bool:
        """Whether its codec goes by bounds."""
        return self.coder is not None and self.coder.bounded

    @property
    def zstd(self) -> bool:
        """Whether lossless tensors are shortened."""
        return self.codec == "zstd" or (self.leaves_out and self.lossless == "zstd")

    @property
    def whole(self) -> Plan:
        """Of messages that stand by themselves: all values, bit for bit."""
        codec = "zstd" if self.leaves_out and self.lossless == "zstd" else "raw"
        return Plan(direction=self.direction, payload="params", codec=codec, lossless=self.lossless)

    @property
    def names(self) -> frozenset[str]:
        """Of the codecs that its messages may have, of 16 ASCII characters at most."""
        if not self.leaves_out:
            return frozenset([lossless.RAW])
        return frozenset([*lossless.NAMES, *([] if self.coder is None else [self.coder.name])])

    def _faults(self) -> Iterator[str | None]:
        yield choice("payload", self.payload, PAYLOADS[self.direction])
        if self.feedback and self.direction == "down":
            yield "feedback=True: the server's next delta has what this one loses; it would be added twice"
        if self.importance and self.direction == "down":
            yield "importance=True: the server has no gradients; it is of what clients send"
        if self.importance and (isinstance(self.codec, Compressor) or self.codec not in BOUNDED):
            yield f"importance=True: codec={self._named} does not go by bounds; use {' or '.join(BOUNDED)}"

    @property
    def _named(self) -> str:
        return type(self.codec).__name__ if isinstance(self.codec, Compressor) else shown(self.codec)

    def _codec_faults(self) -> Iterator[str | None]:
        if self.dither and not (self.coder is not None and self.coder.dithers):
            yield f"dither=True: codec={self._named} does not round to even steps; use sz3 or int8_zstd"
        if self.feedback and self.coder is None:
            yield f"feedback=True: codec={self._named} loses nothing"
        if isinstance(self.coder, OfCompressor):
            yield from self._compressor_faults(self.coder.compressor)

    def _compressor_faults(self, compressor: Compressor) -> Iterator[str | None]:
        name, traits = type(compressor).__name__, compressor.traits
        if not traits.point_to_point:
            yield f"codec={name}: works among all ranks, never point to point"
        if traits.owns != "nothing":
            yield f"codec={name}: takes over {traits.owned}, which a server does not share"
        yield inner_feedback("codec.feedback", compressor.feedback, "the plan")
        if traits.feedback in ("required", "builtin") and self.payload == "params":
            yield f"codec={name}: sends parameters' changes little by little, never parameters; use payload=delta"
        if traits.feedback == "builtin" and self.direction == "down":
            yield f"codec={name}: keeps what it loses, which the server's next delta has too; it would be added twice"
        if traits.feedback in ("harmful", "builtin") and self.feedback:
            yield f"feedback=True: codec={name} " + (
                "keeps its own" if traits.feedback == "builtin" else "errs by chance, and residuals would add up"
            )


def _coder(codec: str | Compressor, algorithm: str) -> Codec | None:
    if isinstance(codec, Compressor):
        return OfCompressor(codec)
    if codec in LOSSLESS:
        return None
    if codec in CODECS:
        return {"sz3": lambda: Sz3(algorithm), "int8_zstd": Int8Zstd, "fp16": Fp16}[codec]()
    try:
        return OfCompressor(build("codec", compressor_catalogue.part(codec), Compressor))
    except InputError as error:
        raise ValueError(str(error)) from error
