"""What a compressor is told, what it asks for, and what it promises."""

from __future__ import annotations

import enum
import hashlib
import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import InitVar, dataclass
from typing import Literal

import torch
from torch import Tensor

from compressors.base.streams import Stream
from testbed.core.renaming import tell_renamed

Feedback = Literal["none", "recommended", "required", "harmful", "builtin"]


class Route(enum.Enum):
    """How one bucket becomes the same mean on every rank."""

    REDUCE_SUM = "reduce_sum"
    """Payloads are summed on their way (all_reduce)."""
    GATHER = "gather"
    """Every rank gets every payload and decodes all of them (all_gather)."""
    TWO_SHOT = "two_shot"
    """Each rank decodes and averages one part (all_to_all), and sends its mean, encoded again, to all (all_gather)."""
    OWN = "own"
    """The compressor has rounds of its own."""


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What a compressor promises; the law book holds it to each line."""

    sum_dtype: torch.dtype | None = None
    """Linear: payloads may be summed as tensors of this dtype, and the sum decodes to the sum of what they carry."""
    verbatim: bool = False
    """The payload is the tensor's own float32 bytes, so that summing it in place saves two copies of a bucket."""
    max_world: int | None = None
    """Ranks that can be summed without overflow; None: any number."""
    fixed_size: bool = True
    """`payload_bytes` is exact, and the same on every rank."""
    chunkable: bool = True
    """Any stretch of a bucket can be encoded alone, so TWO_SHOT is possible."""
    own_rounds: bool = False
    """`rounds` is overridden, and `sent_bytes` with it."""
    max_rounds: int | Callable[[int], int] | None = None
    """Highest number of exchanges of its own rounds in one step, or a function of the number of ranks that returns it;
    None if the rounds are not its own. `rounds_among` answers for all."""
    point_to_point: bool = True
    """`encode` and `decode` work without other ranks; if not, there are neither, and `rounds` is all there is."""
    averages: bool = True
    """What comes out is the mean over ranks of what they contributed; False: it is something else, as a vote is."""
    unbiased: bool = False
    """The expectation of what is decoded, over seeds, is what was encoded."""
    contraction: float | None = None
    """d: |x - C(x)|^2 <= (1 - d) |x|^2 for every x, in expectation over seeds; None: no such promise. Lossless: 1."""
    feedback: Feedback = "none"
    """What error feedback does for it. required, recommended: `feedback="auto"` gives it. none: it changes little.
    harmful: residuals are noise that has no mean to make up for, or what comes out is a vote that pays none back; it is
    refused. builtin: it keeps its own."""
    owns: Literal["nothing", "momentum", "optimizer"] = "nothing"
    """What of the optimizer it takes over in `adopt`."""
    most_rounds: InitVar[int | Callable[[int], int] | None] = None
    """Old name of `max_rounds`."""

    def __post_init__(self, most_rounds: int | Callable[[int], int] | None) -> None:
        if most_rounds is not None:
            tell_renamed("Traits", "most_rounds is max_rounds now", stacklevel=3)
            object.__setattr__(self, "max_rounds", most_rounds)

    @property
    def owned(self) -> str:
        """The same, as messages say it."""
        return "the optimizer's momentum" if self.owns == "momentum" else f"the {self.owns}"

    def rounds_among(self, world_size: int) -> int:
        """Exchanges in one step at most; where a size has to be asked for, that is one more."""
        if self.max_rounds is None:
            return 1 if self.sum_dtype is not None else 2
        return self.max_rounds(world_size) if callable(self.max_rounds) else self.max_rounds


@dataclass(frozen=True)
class Layout:
    """A bucket: the tensors that lie in it one after another. Known to all ranks, so it never travels."""

    shapes: tuple[tuple[int, ...], ...]
    bucket: int = 0
    names: tuple[str, ...] = ()
    """Of the parameters, one a shape; empty where they are not known."""

    @property
    def numel(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes)

    @property
    def numels(self) -> list[int]:
        return [math.prod(shape) for shape in self.shapes]


@dataclass(frozen=True, kw_only=True)
class Context:
    """Where and when an encoding takes place; all but `rank` and `part` is equal on all ranks."""

    layout: Layout
    route: Route | None
    """None: point to point."""
    seed: int
    step: int
    rank: int
    """Who encodes, also where another rank decodes."""
    world_size: int
    part: int = 0
    """Which stretch of the bucket, under TWO_SHOT."""
    stream: str = ""
    """Tells apart the streams a bucket is sent in, such as one for each receiver: each has its own residual."""
    alpha_s: float = 0.0
    """Seconds a message takes on the slowest hop, as far as is known."""
    beta_s_byte: float = 0.0
    """Seconds each byte takes there."""

    def random(self, purpose: str, *, shared: bool) -> Stream:
        """Random numbers that depend on all but route and shapes, and on the rank unless `shared`; the same on every
        kind of device."""
        return Stream(self._key(purpose, shared))

    def generator(self, purpose: str, *, shared: bool) -> torch.Generator:
        """A fresh generator of torch's, for what `random` does not offer; of the processor, so draw there."""
        return torch.Generator().manual_seed(self._key(purpose, shared) >> 1)

    @property
    def state_key(self) -> str:
        """Under which to keep what goes from one step of this bucket, part and stream to the next."""
        return f"{self.layout.bucket}/{self.part}/{self.stream}"

    def _key(self, purpose: str, shared: bool) -> int:
        key = f"{self.seed}/{self.step}/{self.state_key}/{purpose}/{'' if shared else self.rank}"
        return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little")


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One collective a compressor asks for. It is resumed with a list of tensors.

    all_reduce   one tensor, in the dtype in which it is summed; may be changed -> one tensor
    all_gather   one payload -> one payload of each rank
    all_to_all   one payload for each rank -> one payload from each rank; pairs and trees send the others empty ones
    """

    kind: Literal["all_reduce", "all_gather", "all_to_all"]
    data: Sequence[Tensor]
    op: Literal["sum", "max"] = "sum"
    sizes: Sequence[int] | None = None
    """Bytes of the payload to come from each rank, where known beforehand; otherwise the runtime asks."""
    then: Literal["compress", "decompress"] = "decompress"
    """The phase to which the work after this exchange belongs."""


Rounds = Generator[Exchange, list[Tensor], None]
