"""Routes: ways in which payloads of a compressor without rounds of its own become a mean, and the choice among them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import Tensor

from compressors.base import alpha_beta
from compressors.base.context import Context, Exchange, Layout, Rounds, Route, Traits
from compressors.base.payload import PointToPointError, from_bytes, to_bytes

SIZE_BYTES = 8
"""Bytes of the message with which one rank tells another the size of its payload, if it is not known beforehand."""


class Codec(ABC):
    """Base of codecs, which turn gradients into payloads and back, and leave their mean on all ranks."""

    traits: Traits
    """Promises of the class, or of the object where they depend on parameters; then the constructor sets them."""

    @abstractmethod
    def payload_bytes(self, layout: Layout, context: Context) -> int:
        """Return the bytes of the payload of `layout`, a bucket or a part of one, in the step of `context`.

        The number is exact if `traits.fixed_size`, else an estimate by which the route is chosen. All ranks must find
        the same one.
        """

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        """Return the payload of `tensor`: 1-D uint8.

        Args:
            tensor: 1-D, of any float type and stride. It is not changed, and the payload shares no memory with it.

        Raises:
            NonFiniteError: The tensor holds NaN or infinity, which this compressor cannot carry.
            PointToPointError: This compressor works among all ranks only.
        """
        raise PointToPointError(type(self).__name__)

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        """Write `scale` times the values that `payload` carries into `out`, or add them.

        Args:
            payload: 1-D uint8, from `encode`, or a sum of such payloads in `traits.sum_dtype`. It is not changed.
            out: 1-D, of any float type, with as many elements as the encoded tensor.
            context: The one `encode` was given; for a sum of payloads, the one of any rank.

        Raises:
            PayloadError: This compressor makes no such payload for a tensor of this size.
            PointToPointError: This compressor works among all ranks only.
        """
        raise PointToPointError(type(self).__name__)

    def rounds(self, tensor: Tensor, context: Context, *, out: Tensor, error: Tensor | None = None) -> Rounds:
        """Leave the mean over ranks in `out`, the same bits on every rank.

        Args:
            tensor: Gradients of this rank: 1-D float32. Changed only if `error` is the same tensor.
            error: Filled with `tensor` minus this rank's contribution, so that the mean over ranks of contributions is
                `out`. May be `tensor` itself, never `out`. None: nobody asks for it.
            out: 1-D float32. May be `tensor` itself if there is no `error`.

        Yields:
            The exchanges of this step, the same ones on all ranks; there may be none. The generator is resumed with
            the result of each.

        Raises:
            NonFiniteError: The tensor holds NaN or infinity, which this compressor cannot carry.
            PayloadError: A peer sent bytes that cannot be decoded.
        """
        assert context.route in ROUTES, f"{type(self).__name__} has no rounds for {context.route}"
        yield from ROUTES[context.route](self, tensor, context, out, error)

    def sent_bytes(self, layout: Layout, world_size: int, route: Route, *, step: int = 0) -> int:
        """Return the bytes that all ranks together send to reduce one bucket; exact if `traits.fixed_size`."""
        return route_sent_bytes(self, layout, world_size, route, step)


def part_layouts(layout: Layout, world_size: int) -> list[Layout]:
    """Return the parts of a bucket under TWO_SHOT, one for each rank; their sizes differ by one element at most."""
    base, extra = divmod(layout.numel, world_size)
    return [replace(layout, shapes=((base + (rank < extra),),), names=()) for rank in range(world_size)]


def choose_route(
    compressor: Codec, layout: Layout, world_size: int, *, alpha_s: float, beta_s_byte: float, step: int = 0
) -> Route:
    """Return the cheapest route that `compressor.traits` allow. All ranks find the same one.

    Args:
        alpha_s: Seconds of a message on the slowest hop.
        beta_s_byte: Seconds of a byte on the slowest hop.
    """
    traits = compressor.traits
    if traits.own_rounds:
        return Route.OWN
    if traits.sum_dtype is not None:
        return Route.REDUCE_SUM
    if not traits.chunkable or layout.numel < world_size:
        return Route.GATHER
    size = compressor.payload_bytes(layout, planning(layout, world_size, step))

    def gather_s(size: float) -> float:
        query_s = 0.0 if traits.fixed_size else alpha_beta.all_gather_s(SIZE_BYTES, world_size, alpha_s, beta_s_byte)
        return query_s + alpha_beta.all_gather_s(size, world_size, alpha_s, beta_s_byte)

    scatter_s = alpha_beta.all_to_all_s(size, world_size, alpha_s, beta_s_byte)
    if not traits.fixed_size:
        scatter_s += alpha_beta.all_to_all_s(SIZE_BYTES * world_size, world_size, alpha_s, beta_s_byte)
    return Route.GATHER if gather_s(size) <= scatter_s + gather_s(size / world_size) else Route.TWO_SHOT


def route_sent_bytes(codec: Codec, layout: Layout, world_size: int, route: Route, step: int) -> int:
    """Return the bytes that all ranks together send to reduce one bucket by a route other than OWN."""
    context = planning(layout, world_size, step)
    size = codec.payload_bytes(layout, context)
    query = 0 if codec.traits.fixed_size else world_size * (world_size - 1) * SIZE_BYTES
    if route is Route.REDUCE_SUM:
        return 2 * (world_size - 1) * size
    if route is Route.GATHER:
        return world_size * (world_size - 1) * size + query
    assert route is Route.TWO_SHOT, f"{type(codec).__name__} must say what its own rounds send"
    parts = [codec.payload_bytes(part, context) for part in part_layouts(layout, world_size)]
    return (world_size - 1) * (sum(parts) + world_size * max(parts)) + 2 * query  # the runtime pads what it gathers


def planning(layout: Layout, world_size: int, step: int) -> Context:
    """Return a context for planning: that of rank 0 on every rank, so that all ranks plan the same."""
    return Context(layout=layout, route=None, seed=0, step=step, rank=0, world_size=world_size)


def _reduce_sum(codec: Codec, tensor: Tensor, context: Context, out: Tensor, error: Tensor | None) -> Rounds:
    dtype = codec.traits.sum_dtype
    assert dtype is not None, f"{type(codec).__name__}: its payloads may not be summed"
    if codec.traits.verbatim and out is tensor and tensor.dtype is dtype and tensor.is_contiguous():
        (total,) = yield Exchange(kind="all_reduce", data=[tensor])
        out.copy_(total.mul_(1 / context.world_size))
        return
    payload = codec.encode(tensor, context)
    _leave_error(codec, tensor, payload, context, error)
    (total,) = yield Exchange(kind="all_reduce", data=[from_bytes(payload, dtype)])
    codec.decode(to_bytes(total), out, context, scale=1 / context.world_size)


def _gather(codec: Codec, tensor: Tensor, context: Context, out: Tensor, error: Tensor | None) -> Rounds:
    payload = codec.encode(tensor, context)
    _leave_error(codec, tensor, payload, context, error)
    sizes = [len(payload)] * context.world_size if codec.traits.fixed_size else None
    payloads = yield Exchange(kind="all_gather", data=[payload], sizes=sizes)
    for rank, theirs in enumerate(payloads):
        codec.decode(theirs, out, replace(context, rank=rank), add=rank > 0, scale=1 / context.world_size)


def _two_shot(codec: Codec, tensor: Tensor, context: Context, out: Tensor, error: Tensor | None) -> Rounds:
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
    for source, theirs in enumerate(received):
        codec.decode(theirs, mine, first(rank, source), add=source > 0, scale=1 / world_size)
    payload = codec.encode(mine, second(rank))
    if left is not None:
        # What the second encoding loses is lost to all ranks; its owner alone keeps it, so it counts world_size times.
        left.add_(mine, alpha=world_size)
        codec.decode(payload, left, second(rank), add=True, scale=-float(world_size))
    gathered = yield Exchange(kind="all_gather", data=[payload], sizes=known)
    for source, (theirs, part_out) in enumerate(zip(gathered, outputs, strict=True)):
        codec.decode(theirs, part_out, second(source))


def _leave_error(codec: Codec, tensor: Tensor, payload: Tensor, context: Context, error: Tensor | None) -> None:
    if error is None:
        return
    if error is not tensor:
        error.copy_(tensor)
    codec.decode(payload, error, context, add=True, scale=-1.0)


ROUTES: dict[Route, Callable[[Codec, Tensor, Context, Tensor, Tensor | None], Rounds]] = {
    Route.REDUCE_SUM: _reduce_sum,
    Route.GATHER: _gather,
    Route.TWO_SHOT: _two_shot,
}
