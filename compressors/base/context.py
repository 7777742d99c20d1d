"""Values that pass between a compressor and the runtime: contexts in, exchanges out, and the traits it promises."""

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
    """Ways in which one bucket becomes the same mean on every rank."""

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
    """Promises of a compressor. The conformance tests check each of them."""

    sum_dtype: torch.dtype | None = None
    """Number type of a linear compressor; None: not linear. Payloads may be summed as tensors of this type, and the sum
    decodes to the sum of the encoded tensors."""
    verbatim: bool = False
    """True if the payload is the tensor's own float32 bytes. Summing in place then saves two copies of a bucket."""
    max_world: int | None = None
    """Largest number of ranks that can be summed without overflow; None: any number."""
    fixed_size: bool = True
    """True if `payload_bytes` is exact, and the same on every rank."""
    chunkable: bool = True
    """True if any part of a bucket can be encoded alone, so that TWO_SHOT is possible."""
    own_rounds: bool = False
    """True if `rounds` is overridden, and `sent_bytes` with it."""
    max_rounds: int | Callable[[int], int] | None = None
    """Largest number of exchanges in one step of its own rounds, or a function of the number of ranks. None: it has no
    rounds of its own; `rounds_among` answers for all compressors."""
    point_to_point: bool = True
    """True if `encode` and `decode` work without other ranks. False: they raise, and `rounds` is the only way."""
    averages: bool = True
    """True if the output is the mean over ranks of their contributions. False: it is another value, such as a vote."""
    unbiased: bool = False
    """True if the expectation over seeds of the decoded tensor is the encoded one."""
    contraction: float | None = None
    """Largest d with |x - C(x)|^2 <= (1 - d) |x|^2 for every x, in expectation over seeds. None: no promise.
    Lossless: 1."""
    feedback: Feedback = "none"
    """Effect of error feedback on this compressor. required, recommended: `feedback="auto"` gives it. none: it changes
    little. harmful: it is refused, since residuals are noise without a mean to make up for, or since the output is a
    vote that pays none back. builtin: the compressor keeps residuals itself."""
    carries_non_finite: bool | None = True
    """True if NaN and infinity show in what is decoded. False: the sender refuses them by NonFiniteError, the receiver
    refuses payloads that would decode to them by PayloadError. None: members do either."""
    owns: Literal["nothing", "momentum", "optimizer"] = "nothing"
    """Part of the optimizer that `adopt` takes over."""
    most_rounds: InitVar[int | Callable[[int], int] | None] = None
    """Old name of `max_rounds`."""

    def __post_init__(self, most_rounds: int | Callable[[int], int] | None) -> None:
        if most_rounds is not None:
            tell_renamed("Traits", "most_rounds is max_rounds now", stacklevel=3)
            object.__setattr__(self, "max_rounds", most_rounds)

    @classmethod
    def carry(cls, traits: Sequence[Traits]) -> bool | None:
        """Return `carries_non_finite` of a compressor with such members."""
        kinds = {trait.carries_non_finite for trait in traits}
        return kinds.pop() if len(kinds) == 1 else None

    @property
    def owned(self) -> str:
        """Words for `owns` in messages."""
        return "the optimizer's momentum" if self.owns == "momentum" else f"the {self.owns}"

    def rounds_among(self, world_size: int) -> int:
        """Return the largest number of exchanges in one step; a question for sizes counts as one."""
        if self.max_rounds is None:
            return 1 if self.sum_dtype is not None else 2
        return self.max_rounds(world_size) if callable(self.max_rounds) else self.max_rounds


@dataclass(frozen=True)
class Layout:
    """Shapes of the tensors that lie one after another in a bucket. All ranks know it, so it never travels."""

    shapes: tuple[tuple[int, ...], ...]
    bucket: int = 0
    names: tuple[str, ...] = ()
    """Names of the parameters, one for each shape; empty if they are not known."""

    @property
    def numel(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes)

    @property
    def numels(self) -> list[int]:
        return [math.prod(shape) for shape in self.shapes]


@dataclass(frozen=True, kw_only=True)
class Context:
    """Place and time of one encoding. Every field but `rank` and `part` is equal on all ranks."""

    layout: Layout
    route: Route | None
    """Way to the mean. None: point to point."""
    seed: int
    step: int
    rank: int
    """Rank that encodes, also where another one decodes."""
    world_size: int
    part: int = 0
    """Number of the part of the bucket, under TWO_SHOT. Parts that are encoded a second time, as means, count from
    world_size on."""
    stream: str = ""
    """Name of the stream that a bucket is sent in, such as one for each receiver. Each stream has its own residual."""
    alpha_s: float = 0.0
    """Seconds of a message on the slowest hop, as far as is known."""
    beta_s_byte: float = 0.0
    """Seconds of a byte on the slowest hop."""

    def random(self, purpose: str, *, shared: bool) -> Stream:
        """Return random numbers for one purpose, the same on every kind of device.

        They depend on seed, step, bucket, part, stream and purpose, and on the rank unless `shared`.
        """
        return Stream(self._key(purpose, shared))

    def generator(self, purpose: str, *, shared: bool) -> torch.Generator:
        """Return a fresh torch generator of the CPU, keyed as `random` is, for numbers that `random` does not offer."""
        return torch.Generator().manual_seed(self._key(purpose, shared) >> 1)

    @property
    def state_key(self) -> str:
        """Key of state that a compressor keeps from step to step for this bucket, part and stream."""
        return f"{self.layout.bucket}/{self.part}/{self.stream}"

    def _key(self, purpose: str, shared: bool) -> int:
        key = f"{self.seed}/{self.step}/{self.state_key}/{purpose}/{'' if shared else self.rank}"
        return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little")


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One collective that a compressor asks for. The compressor is resumed with a list of tensors.

    all_reduce   one tensor, in the dtype in which it is summed; may be changed -> one tensor
    all_gather   one payload -> one payload of each rank
    all_to_all   one payload for each rank -> one payload from each rank; pairs and trees send the others empty ones
    """

    kind: Literal["all_reduce", "all_gather", "all_to_all"]
    data: Sequence[Tensor]
    op: Literal["sum", "max"] = "sum"
    sizes: Sequence[int] | None = None
    """Bytes of the payload that comes from each rank. None: they are not known beforehand, and the runtime asks."""
    then: Literal["compress", "decompress"] = "decompress"
    """Phase that the work after this exchange counts for."""


Rounds = Generator[Exchange, list[Tensor], None]
