from __future__ import annotations

import torch
from torch import Tensor

from compressors.base.compressor import Compressor, Context, Exchange, FeedbackMode, Layout, Rounds, Route, Traits
from compressors.base.payload import PayloadError, from_bytes, require_size, to_bytes
from compressors.parts.selection import first_largest, largest
from compressors.parts.sparse import kept_of, require_ascending, require_indices, scatter
from testbed.core.parameters import Share


class GlobalTopK(Compressor):
    """Sum k entries up a tree that keeps the k largest.

    Send k entries up a tree in which each meeting keeps the k largest sums, and the k that are left down again.

    Shi, Wang, Chu, Tang et al., "A Distributed Synchronous SGD Algorithm with Global Top-k Sparsification for Low
    Bandwidth Networks", ICDCS 2019, arXiv:1901.04359, Algorithms 2 and 3.
    Differs from the paper: entries that a meeting drops are kept as residual by the rank that drops them, so that
    nothing is lost; in the paper a rank takes its entries for sent if they are among the final k, though others may
    have been dropped with them in between.

    Biased; not linear; not point to point. Use with error feedback. NaN counts as large.
    Wire: values (k,) float32, then indices (k,) int32, ascending, along each edge of a binomial tree, up and down;
    2 (world_size - 1) * 8k bytes in all with k = ceil(density * n), in 2 ceil(log2(world_size)) exchanges.
    Keeps no state.

    Args:
        density: Kept / all entries.

    Raises:
        ValueError: density is not in (0, 1], or a bucket has more than 2**31 - 1 entries.
    """

    is_sparse = True
    traits = Traits(
        own_rounds=True,
        max_rounds=lambda world_size: 2 * len(_strides(world_size)),
        point_to_point=False,
        feedback="required",
        contraction=0.0,
    )

    def __init__(self, *, density: Share = 0.01, feedback: FeedbackMode = "auto") -> None:
        super().__init__(feedback=feedback)
        self.density = density

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        """Return the bytes of one message."""
        return 8 * kept_of(self.density, layout.numel)

    def sent_bytes(self, layout: Layout, world_size: int, route: Route, *, step: int = 0) -> int:
        return 2 * (world_size - 1) * 8 * kept_of(self.density, layout.numel)

    def rounds(self, tensor: Tensor, context: Context, *, out: Tensor, error: Tensor | None = None) -> Rounds:
        require_indices(tensor.numel(), type(self).__name__)
        rank, world_size = context.rank, context.world_size
        k = kept_of(self.density, tensor.numel())
        indices, values = largest(tensor, k, context)
        if error is not None:
            if error is not tensor:
                error.copy_(tensor)
            error[indices] = 0.0
        strides = _strides(world_size)
        for stride in strides:
            sends, receives = rank % (2 * stride) == stride, _hears(rank, stride, world_size)
            arrived = yield _between(
                [values, indices] if sends else None,
                to=rank - stride,
                source=rank + stride if receives else None,
                size_bytes=8 * k,
                world_size=world_size,
                device=tensor.device,
                last=False,
            )
            if receives:
                theirs = _read(arrived[rank + stride], k, tensor.numel())
                indices, values = _merge(indices, values, *theirs, k, error)
        for stride in reversed(strides):
            sends, receives = _hears(rank, stride, world_size), rank % (2 * stride) == stride
            arrived = yield _between(
                [values, indices] if sends else None,
                to=rank + stride,
                source=rank - stride if receives else None,
                size_bytes=8 * k,
                world_size=world_size,
                device=tensor.device,
                last=stride == 1,
            )
            if receives:
                indices, values = _read(arrived[rank - stride], k, tensor.numel())
        scatter(out, indices, values, False, 1 / world_size)


def _strides(world_size: int) -> list[int]:
    return [1 << level for level in range((world_size - 1).bit_length())]


def _hears(rank: int, stride: int, world_size: int) -> bool:
    return rank % (2 * stride) == 0 and rank + stride < world_size


def _between(
    message: list[Tensor] | None,
    *,
    to: int,
    source: int | None,
    size_bytes: int,
    world_size: int,
    device: torch.device,
    last: bool,
) -> Exchange:
    """Return the exchange of one level of the tree: most pairs of ranks have nothing to send."""
    empty = torch.empty(0, dtype=torch.uint8, device=device)
    data = [empty] * world_size
    if message is not None:
        values, indices = message
        data[to] = torch.cat([to_bytes(values), to_bytes(indices.to(torch.int32))])
    sizes = [size_bytes if rank == source else 0 for rank in range(world_size)]
    return Exchange(kind="all_to_all", data=data, sizes=sizes, then="decompress" if last else "compress")


def _read(payload: Tensor, k: int, numel: int) -> tuple[Tensor, Tensor]:
    require_size(payload, 8 * k, GlobalTopK.__name__, numel)
    indices = from_bytes(payload[4 * k :], torch.int32)
    require_ascending(indices, numel, GlobalTopK.__name__)
    return indices.long(), from_bytes(payload[: 4 * k], torch.float32)


def _merge(
    ours: Tensor, values: Tensor, theirs: Tensor, more: Tensor, k: int, error: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the k largest sums, in order; dropped ones stay with this rank."""
    indices, places = torch.cat([ours, theirs]).unique(return_inverse=True)
    sums = torch.zeros(len(indices), device=values.device).index_add_(0, places, torch.cat([values, more]))
    if len(indices) < k:
        raise PayloadError(f"{len(indices)} entries are left of two times {k} that were all different")
    kept = first_largest(sums, k)
    if error is not None:
        dropped = torch.ones(len(indices), dtype=torch.bool, device=sums.device)
        dropped[kept] = False
        error.index_add_(0, indices[dropped], sums[dropped])
    return indices[kept], sums[kept]
