"""What a compressor is.

A compressor turns a 1-D tensor into a payload (a 1-D uint8 tensor of real packed bytes) and back, and says what it is
in `traits`. How ranks agree on a mean follows from that: `Route` is derived, never chosen by a user. A compressor does
no I/O: `rounds` yields an `Exchange` for each collective and is resumed with its result, so that the runtime can time,
count, order and overlap everything that is sent.

    class Half(Compressor):
        traits = Traits(linear=True, reduce_dtype=torch.float16)
        def payload_bytes(self, layout): return 2 * layout.numel
        def encode(self, tensor, context): return to_bytes(tensor.half())
        def decode(self, payload, out, *, add=False, scale=1.0):
            put(out, from_bytes(payload, torch.float16), add, scale)
"""

from __future__ import annotations

import enum
import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from compressors.payload import from_bytes, to_bytes
from testbed.core import costs

FEEDBACK_MODES = ("auto", "on", "off")


class Route(enum.Enum):
    """How one bucket becomes the same mean on every rank."""

    REDUCE_SUM = "reduce_sum"
    """Payloads are summed on their way (all_reduce)."""
    GATHER = "gather"
    """Every rank gets every payload and decodes all of them (all_gather)."""
    TWO_SHOT = "two_shot"
    """Each rank decodes and averages one part (all_to_all), and sends its mean, encoded again, to all (all_gather)."""


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What a compressor promises; the contract tests hold it to it."""

    linear: bool = False
    """The sum of payloads, taken in `reduce_dtype`, decodes to the sum of what they carry."""
    reduce_dtype: torch.dtype | None = None
    """What a payload's bytes are when summed; None unless linear."""
    fixed_size: bool = True
    """`payload_bytes` is exact, and the same on every rank."""
    chunkable: bool = True
    """Any stretch of a bucket can be encoded alone, so TWO_SHOT is possible."""
    unbiased: bool = False
    """The expectation of what is decoded is what was encoded."""
    contraction: float | None = None
    """d with E|x - C(x)|^2 <= (1 - d) |x|^2, if one holds for every x."""
    rounds: int = 1
    """Exchanges one after another within one reduction; above 1 the compressor overrides `rounds`."""
    shared_seed: bool = False
    """Ranks draw the same random numbers."""
    feedback: Literal["required", "recommended", "harmful", "builtin", "none"] = "none"
    """What error feedback does to it; `feedback="auto"` turns it on for "required" and "recommended"."""
    max_world: int | None = None
    """Ranks whose payloads can be summed without overflow; None: any number."""


@dataclass(frozen=True)
class Layout:
    """A bucket: the tensors that lie in it one after another. Known to all ranks, so it never travels."""

    shapes: tuple[tuple[int, ...], ...]
    bucket: int = 0

    @property
    def numel(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes)


@dataclass(frozen=True, kw_only=True)
class Context:
    """Where and when an encoding takes place; all but `rank` and `part` is equal on all ranks."""

    layout: Layout
    route: Route
    seed: int
    step: int
    rank: int
    world_size: int
    part: int = 0
    """Which stretch of the bucket, under TWO_SHOT."""

    def generator(self, purpose: str, *, shared: bool) -> torch.Generator:
        """A fresh generator that depends on (seed, step, bucket, part, purpose), and on the rank unless `shared`."""
        key = f"{self.seed}/{self.step}/{self.layout.bucket}/{self.part}/{purpose}/{'' if shared else self.rank}"
        digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One collective a compressor asks for. It is resumed with a list of tensors.

    all_reduce   one tensor, in the dtype in which it is summed; may be changed -> one tensor
    all_gather   one payload -> one payload of each rank
    all_to_all   one payload for each rank -> one payload from each rank
    """

    kind: Literal["all_reduce", "all_gather", "all_to_all"]
    data: Sequence[Tensor]
    op: Literal["sum", "max"] = "sum"
    sizes: Sequence[int] | None = None
    """Bytes of the payload to come from each rank, where known beforehand; otherwise the runtime asks."""
    then: Literal["compress", "decompress"] = "decompress"
    """The phase to which the work after this exchange belongs."""


Rounds = Generator[Exchange, list[Tensor], None]


class Compressor(ABC):
    """Base of all compressors. Constructors take keyword-only parameters and raise ValueError for each bad one."""

    traits: ClassVar[Traits]

    def __init__(self, *, feedback: str | bool = "auto") -> None:
        if isinstance(feedback, bool):  # YAML reads a bare on or off as one
            feedback = "on" if feedback else "off"
        if feedback not in FEEDBACK_MODES:
            raise ValueError(f"feedback={feedback}: unknown; known: {', '.join(FEEDBACK_MODES)}")
        self.feedback: str = feedback

    @abstractmethod
    def payload_bytes(self, layout: Layout) -> int:
        """Size of the payload of a bucket: exact if `traits.fixed_size`, else an estimate for choosing the route."""

    @abstractmethod
    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        """Return the payload of `tensor`, 1-D, any float, any stride, which is left as it is and shares no memory."""

    @abstractmethod
    def decode(self, payload: Tensor, out: Tensor, *, add: bool = False, scale: float = 1.0) -> None:
        """Write `scale` times what `payload` carries into `out`, or add it.

        Raises:
            PayloadError: the payload cannot be one of this compressor's for a tensor of this size.
        """

    def rounds(self, tensor: Tensor, context: Context, *, out: Tensor, error: Tensor | None = None) -> Rounds:
        """Leave the mean over ranks in `out`, the same bits on every rank.

        Args:
            tensor: what this rank has, float32; changed only where `error` is the same tensor.
            error: filled with `tensor` minus what this rank contributed, so that the mean over ranks of what they
                contributed is `out`. May be `tensor` itself; never `out`.
            out: may be `tensor` itself where there is no `error`.
        """
        route = {Route.REDUCE_SUM: _reduce_sum, Route.GATHER: _gather, Route.TWO_SHOT: _two_shot}[context.route]
        yield from route(self, tensor, context, out, error)

    def sent_bytes(self, layout: Layout, world_size: int, route: Route) -> int:
        """Bytes all ranks together send to reduce one bucket; exact if `traits.fixed_size`."""
        size = self.payload_bytes(layout)
        if route is Route.REDUCE_SUM:
            return 2 * (world_size - 1) * size
        if route is Route.GATHER:
            return world_size * (world_size - 1) * size
        parts = [self.payload_bytes(Layout(((numel,),))) for numel in part_numels(layout.numel, world_size)]
        return (world_size - 1) * (sum(parts) + world_size * max(parts))  # the runtime pads what it gathers

    @property
    def uses_feedback(self) -> bool:
        if self.feedback == "auto":
            return self.traits.feedback in ("required", "recommended")
        return self.feedback == "on"

    def state_dict(self) -> dict[str, Any]:
        """Everything the next payload depends on, besides its arguments."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state:
            raise ValueError(f"{type(self).__name__} keeps no state, found {', '.join(state)}")


def part_numels(numel: int, world_size: int) -> list[int]:
    """Sizes of the parts of a bucket under TWO_SHOT: equal within one."""
    base, extra = divmod(numel, world_size)
    return [base + (rank < extra) for rank in range(world_size)]


def choose_route(
    compressor: Compressor, layout: Layout, world_size: int, *, alpha_s: float, beta_s_byte: float
) -> Route:
    """The cheapest route that `compressor.traits` allow; a function of what all ranks know, so equal on all of them.

    Raises:
        ValueError: the sum of so many payloads could overflow.
    """
    traits = compressor.traits
    if traits.linear:
        if traits.max_world is not None and world_size > traits.max_world:
            name = type(compressor).__name__
            raise ValueError(f"workers={world_size}: {name} payloads of at most {traits.max_world} ranks can be summed")
        return Route.REDUCE_SUM
    if not traits.chunkable or layout.numel < world_size:
        return Route.GATHER
    size = compressor.payload_bytes(layout)
    gather_s = costs.all_gather_s(size, world_size, alpha_s, beta_s_byte)
    two_shot_s = costs.all_to_all_s(size, world_size, alpha_s, beta_s_byte)
    two_shot_s += costs.all_gather_s(size / world_size, world_size, alpha_s, beta_s_byte)
    return Route.GATHER if gather_s <= two_shot_s else Route.TWO_SHOT


def _reduce_sum(codec: Compressor, tensor: Tensor, context: Context, out: Tensor, error: Tensor | None) -> Rounds:
    dtype = codec.traits.reduce_dtype
    assert dtype is not None, f"{type(codec).__name__}: linear, but without reduce_dtype"
    payload = codec.encode(tensor, context)
    _leave_error(codec, tensor, payload, error)
    (total,) = yield Exchange(kind="all_reduce", data=[from_bytes(payload, dtype)])
    codec.decode(to_bytes(total), out, scale=1 / context.world_size)


def _gather(codec: Compressor, tensor: Tensor, context: Context, out: Tensor, error: Tensor | None) -> Rounds:
    payload = codec.encode(tensor, context)
    _leave_error(codec, tensor, payload, error)
    sizes = [len(payload)] * context.world_size if codec.traits.fixed_size else None
    payloads = yield Exchange(kind="all_gather", data=[payload], sizes=sizes)
    out.zero_()
    for theirs in payloads:
        codec.decode(theirs, out, add=True, scale=1 / context.world_size)


def _two_shot(codec: Compressor, tensor: Tensor, context: Context, out: Tensor, error: Tensor | None) -> Rounds:
    world_size, rank = context.world_size, context.rank
    numels = part_numels(tensor.numel(), world_size)
    inputs, outputs = tensor.split(numels), out.split(numels)
    errors: Sequence[Tensor | None] = error.split(numels) if error is not None else [None] * world_size
    layouts = [replace(context.layout, shapes=((numel,),)) for numel in numels]
    known = [codec.payload_bytes(layout) for layout in layouts] if codec.traits.fixed_size else None
    payloads = []
    for part, (ours, left) in enumerate(zip(inputs, errors, strict=True)):
        payloads.append(codec.encode(ours, replace(context, part=part, layout=layouts[part])))
        _leave_error(codec, ours, payloads[-1], left)
    sizes = [known[rank]] * world_size if known else None
    received = yield Exchange(kind="all_to_all", data=payloads, sizes=sizes)
    mine, left = outputs[rank], errors[rank]
    mine.zero_()
    for theirs in received:
        codec.decode(theirs, mine, add=True, scale=1 / world_size)
    second = codec.encode(mine, replace(context, part=world_size + rank, layout=layouts[rank]))
    if left is not None:
        # What the second encoding loses is lost to all ranks; its owner alone keeps it, so it counts world_size times.
        left.add_(mine, alpha=world_size)
        codec.decode(second, left, add=True, scale=-float(world_size))
    gathered = yield Exchange(kind="all_gather", data=[second], sizes=known)
    for theirs, part_out in zip(gathered, outputs, strict=True):
        codec.decode(theirs, part_out)


def _leave_error(codec: Compressor, tensor: Tensor, payload: Tensor, error: Tensor | None) -> None:
    if error is None:
        return
    if error is not tensor:
        error.copy_(tensor)
    codec.decode(payload, error, add=True, scale=-1.0)
