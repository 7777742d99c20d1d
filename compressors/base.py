"""What a compressor is.

A compressor turns a 1-D tensor into a payload (a 1-D uint8 tensor of real packed bytes) and back, and says what it is
in `traits`. How ranks agree on a mean follows from that: `Route` is derived, never chosen by a user. A compressor does
no I/O: `rounds` yields an `Exchange` for each collective and is resumed with its result, so that the runtime can time,
count and order all that is sent. Point to point (parameter servers, activations), a strategy calls `encode` and
`decode` itself, with a `Context` whose route is None and whose `stream` names the receiver. The README has an example.
"""

from __future__ import annotations

import enum
import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from compressors.payload import PointToPointError, from_bytes, to_bytes
from testbed.core import costs

FEEDBACK_MODES = ("auto", "on", "off")
SIZE_BYTES = 8
"""What one rank tells another where sizes are not known beforehand."""


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
    """What a compressor promises; the contract tests hold it to each line."""

    sum_dtype: torch.dtype | None = None
    """Payloads may be summed as tensors of this dtype, and the sum decodes to the sum of what they carry."""
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
    point_to_point: bool = True
    """`encode` and `decode` work without other ranks; if not, there are neither, and `rounds` is all there is."""
    unbiased: bool = False
    """The expectation of what is decoded, over seeds, is what was encoded."""
    needs_feedback: bool = False
    """So much is lost that it is to be kept and sent later; `feedback="auto"` obeys."""
    owns_momentum: bool = False
    """Momentum is applied before sending, so the optimizer must have none."""


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

    def generator(self, purpose: str, *, shared: bool) -> torch.Generator:
        """A fresh generator that depends on all but route and shapes, and on the rank unless `shared`."""
        where = f"{self.layout.bucket}/{self.part}/{self.stream}"
        key = f"{self.seed}/{self.step}/{where}/{purpose}/{'' if shared else self.rank}"
        digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


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


class Compressor(ABC):
    """Base of all compressors. Constructors take keyword-only parameters and raise ValueError for each bad one."""

    traits: Traits
    """Of the class, or set in the constructor where they depend on parameters."""

    def __init__(self, *, feedback: str | bool = "auto") -> None:
        if isinstance(feedback, bool):  # YAML reads a bare on or off as one
            feedback = "on" if feedback else "off"
        if feedback not in FEEDBACK_MODES:
            raise ValueError(f"feedback={feedback}: unknown; known: {', '.join(FEEDBACK_MODES)}")
        self.feedback: str = feedback

    @abstractmethod
    def payload_bytes(self, layout: Layout, context: Context) -> int:
        """Size of the payload of `layout`, a bucket or a stretch of one, in the step of `context`.

        Exact if `traits.fixed_size`, else an estimate for choosing the route. All ranks must find the same.
        """

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        """Return the payload of `tensor`, 1-D, any float, any stride, which is left as it is and shares no memory."""
        raise PointToPointError(type(self).__name__)

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        """Write `scale` times what `payload` carries into `out`, 1-D, any float, or add it.

        Args:
            context: what `encode` was given; for a sum of payloads, what it was given on any rank.

        Raises:
            PayloadError: the payload cannot be one of this compressor's for a tensor of this size.
        """
        raise PointToPointError(type(self).__name__)

    def rounds(self, tensor: Tensor, context: Context, *, out: Tensor, error: Tensor | None = None) -> Rounds:
        """Leave the mean over ranks in `out`, the same bits on every rank.

        All ranks ask for the same exchanges; there may be none in a step.

        Args:
            tensor: what this rank has, float32; changed only where `error` is the same tensor.
            error: filled with `tensor` minus what this rank contributed, so that the mean over ranks of what they
                contributed is `out`. May be `tensor` itself; never `out`.
            out: may be `tensor` itself where there is no `error`.
        """
        assert context.route in _ROUTES, f"{type(self).__name__} has no rounds for {context.route}"
        yield from _ROUTES[context.route](self, tensor, context, out, error)

    def sent_bytes(self, layout: Layout, world_size: int, route: Route, *, step: int = 0) -> int:
        """Bytes all ranks together send to reduce one bucket; exact if `traits.fixed_size`."""
        context = _planning(layout, world_size, step)
        size = self.payload_bytes(layout, context)
        query = 0 if self.traits.fixed_size else world_size * (world_size - 1) * SIZE_BYTES
        if route is Route.REDUCE_SUM:
            return 2 * (world_size - 1) * size
        if route is Route.GATHER:
            return world_size * (world_size - 1) * size + query
        assert route is Route.TWO_SHOT, f"{type(self).__name__} must say what its own rounds send"
        parts = [self.payload_bytes(part, context) for part in part_layouts(layout, world_size)]
        return (world_size - 1) * (sum(parts) + world_size * max(parts)) + 2 * query  # the runtime pads what it gathers

    @property
    def uses_feedback(self) -> bool:
        if self.feedback == "auto":
            return self.traits.needs_feedback
        return self.feedback == "on"

    def state_dict(self) -> dict[str, Any]:
        """Everything the next payload depends on, besides its arguments."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state:
            raise ValueError(f"{type(self).__name__} keeps no state, found {', '.join(state)}")


def part_layouts(layout: Layout, world_size: int) -> list[Layout]:
    """The parts of a bucket under TWO_SHOT: equal within one."""
    base, extra = divmod(layout.numel, world_size)
    return [replace(layout, shapes=((base + (rank < extra),),)) for rank in range(world_size)]


def choose_route(
    compressor: Compressor, layout: Layout, world_size: int, *, alpha_s: float, beta_s_byte: float, step: int = 0
) -> Route:
    """The cheapest route that `compressor.traits` allow; a function of what all ranks know, so equal on all of them."""
    traits = compressor.traits
    if traits.own_rounds:
        return Route.OWN
    if traits.sum_dtype is not None:
        return Route.REDUCE_SUM
    if not traits.chunkable or layout.numel < world_size:
        return Route.GATHER
    size = compressor.payload_bytes(layout, _planning(layout, world_size, step))

    def gather_s(size: float) -> float:
        query_s = 0.0 if traits.fixed_size else costs.all_gather_s(SIZE_BYTES, world_size, alpha_s, beta_s_byte)
        return query_s + costs.all_gather_s(size, world_size, alpha_s, beta_s_byte)

    scatter_s = costs.all_to_all_s(size, world_size, alpha_s, beta_s_byte)
    if not traits.fixed_size:
        scatter_s += costs.all_to_all_s(SIZE_BYTES * world_size, world_size, alpha_s, beta_s_byte)
    return Route.GATHER if gather_s(size) <= scatter_s + gather_s(size / world_size) else Route.TWO_SHOT


def _planning(layout: Layout, world_size: int, step: int) -> Context:
    """Of rank 0 on every rank, so that all plan the same."""
    return Context(layout=layout, route=None, seed=0, step=step, rank=0, world_size=world_size)


def _reduce_sum(codec: Compressor, tensor: Tensor, context: Context, out: Tensor, error: Tensor | None) -> Rounds:
    dtype = codec.traits.sum_dtype
    assert dtype is not None, f"{type(codec).__name__}: its payloads may not be summed"
    if codec.traits.verbatim and out is tensor and tensor.dtype is dtype and tensor.is_contiguous():
        (total,) = yield Exchange(kind="all_reduce", data=[tensor])
        torch.mul(total, 1 / context.world_size, out=out)
        return
    payload = codec.encode(tensor, context)
    _leave_error(codec, tensor, payload, context, error)
    (total,) = yield Exchange(kind="all_reduce", data=[from_bytes(payload, dtype)])
    codec.decode(to_bytes(total), out, context, scale=1 / context.world_size)


def _gather(codec: Compressor, tensor: Tensor, context: Context, out: Tensor, error: Tensor | None) -> Rounds:
    payload = codec.encode(tensor, context)
    _leave_error(codec, tensor, payload, context, error)
    sizes = [len(payload)] * context.world_size if codec.traits.fixed_size else None
    payloads = yield Exchange(kind="all_gather", data=[payload], sizes=sizes)
    out.zero_()
    for rank, theirs in enumerate(payloads):
        codec.decode(theirs, out, replace(context, rank=rank), add=True, scale=1 / context.world_size)


def _two_shot(codec: Compressor, tensor: Tensor, context: Context, out: Tensor, error: Tensor | None) -> Rounds:
    world_size, rank = context.world_size, context.rank
    layouts = part_layouts(context.layout, world_size)
    numels = [layout.numel for layout in layouts]
    inputs, outputs = tensor.split(numels), out.split(numels)
    errors: Sequence[Tensor | None] = error.split(numels) if error is not None else [None] * world_size
    known = [codec.payload_bytes(layout, context) for layout in layouts] if codec.traits.fixed_size else None

    def first(part: int, source: int) -> Context:
        return replace(context, part=part, layout=layouts[part], rank=source)

    def second(source: int) -> Context:
        return replace(context, part=world_size + source, layout=layouts[source], rank=source)

    payloads = []
    for part, (ours, left) in enumerate(zip(inputs, errors, strict=True)):
        payloads.append(codec.encode(ours, first(part, rank)))
        _leave_error(codec, ours, payloads[-1], first(part, rank), left)
    sizes = [known[rank]] * world_size if known else None
    received = yield Exchange(kind="all_to_all", data=payloads, sizes=sizes)
    mine, left = outputs[rank], errors[rank]
    mine.zero_()
    for source, theirs in enumerate(received):
        codec.decode(theirs, mine, first(rank, source), add=True, scale=1 / world_size)
    payload = codec.encode(mine, second(rank))
    if left is not None:
        # What the second encoding loses is lost to all ranks; its owner alone keeps it, so it counts world_size times.
        left.add_(mine, alpha=world_size)
        codec.decode(payload, left, second(rank), add=True, scale=-float(world_size))
    gathered = yield Exchange(kind="all_gather", data=[payload], sizes=known)
    for source, (theirs, part_out) in enumerate(zip(gathered, outputs, strict=True)):
        codec.decode(theirs, part_out, second(source))


def _leave_error(codec: Compressor, tensor: Tensor, payload: Tensor, context: Context, error: Tensor | None) -> None:
    if error is None:
        return
    if error is not tensor:
        error.copy_(tensor)
    codec.decode(payload, error, context, add=True, scale=-1.0)


_ROUTES = {Route.REDUCE_SUM: _reduce_sum, Route.GATHER: _gather, Route.TWO_SHOT: _two_shot}
