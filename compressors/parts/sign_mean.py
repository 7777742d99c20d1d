"""A mean over ranks by signs both ways, with residuals on both sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from compressors.base.compressor import Context, Exchange, Layout, Rounds, part_layouts
from compressors.base.memory import Memory, moved
from compressors.parts.block_signs import BlockSigns


class SignMean:
    """Each rank sends its tensor as signs with a mean magnitude a block; whoever averages a part sends that so too.

    Tang et al., "1-bit Adam", ICML 2021, arXiv:2102.02888, Algorithm 1: both keep what their signs lost and add it to
    what they send next. Up to two ranks, and where parts would have less than 8 values, all signs are gathered, and
    there is no second loss.

    Keeps the residual of each bucket, and of the part this rank averages: 4 (1 + 1 / ranks) bytes a value. Where ranks
    or buckets change, a part's residual goes to the rank that had it, times the ranks, since it is owed to the mean.
    """

    def __init__(self, block_size: int, name: str) -> None:
        self._signs, self._name = BlockSigns(block_size), name
        self._ours, self._parts = Memory(), Memory()
        self._world_size = 0

    def size_bytes(self, numel: int) -> int:
        return self._signs.size_bytes(numel)

    def sent_bytes(self, layout: Layout, world_size: int) -> int:
        """Return the bytes that all ranks send together."""
        if _gathers(layout, world_size):
            return world_size * (world_size - 1) * self.size_bytes(layout.numel)
        parts = [self.size_bytes(part.numel) for part in part_layouts(layout, world_size)]
        return (world_size - 1) * (sum(parts) + world_size * max(parts))

    def rounds(self, tensor: Tensor, context: Context, out: Tensor) -> Rounds:
        """Leave the mean in `out`, float32, which may be `tensor`."""
        world_size, rank = context.world_size, context.rank
        self._world_size = world_size
        alone = _gathers(context.layout, world_size)
        layouts = [context.layout] if alone else part_layouts(context.layout, world_size)
        numels = [layout.numel for layout in layouts]
        carried = self._ours.of(tensor, context).add_(tensor)
        payloads = [self._encode(part) for part in carried.split(numels)]
        sizes = [self.size_bytes(numel) for numel in numels]
        if alone:
            received = yield Exchange(kind="all_gather", data=payloads, sizes=sizes * world_size)
            self._average(received, out)
            return
        received = yield Exchange(kind="all_to_all", data=payloads, sizes=[sizes[rank]] * world_size)
        parts = out.split(numels)
        mine = parts[rank]
        self._average(received, mine)
        left = self._parts.of(mine, replace(context, part=1 + rank, layout=layouts[rank])).add_(mine)
        gathered = yield Exchange(kind="all_gather", data=[self._encode(left)], sizes=sizes)
        for theirs, part in zip(gathered, parts, strict=True):
            self._signs.decode(theirs, part, self._name)

    def _encode(self, carried: Tensor) -> Tensor:
        """The payload of `carried`, in which what it loses is left."""
        payload = self._signs.encode(carried)
        self._signs.decode(payload, carried, self._name, add=True, scale=-1.0)
        return payload

    def _average(self, payloads: Sequence[Tensor], out: Tensor) -> None:
        for index, payload in enumerate(payloads):
            self._signs.decode(payload, out, self._name, add=index > 0, scale=1 / len(payloads))

    def state_dict(self) -> dict[str, Any]:
        return {
            "ours": self._ours.state_dict(),
            "parts": self._parts.state_dict(),
            "world_size": self._world_size,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._ours.load_state_dict(state.get("ours", {}))
        self._parts.load_state_dict(state.get("parts", {}))
        self._world_size = state.get("world_size", 0)


def moved_mean(state: dict[str, Any], old: Sequence[Layout], new: Sequence[Layout]) -> dict[str, Any]:
    """Return the state for the same parameters in other buckets."""
    return {"ours": moved(_settled(state), old, new)}


def _settled(state: dict[str, Any]) -> dict[str, Tensor]:
    """The residuals of a rank with those of its parts in them."""
    ours = {key: kept.clone() for key, kept in state.get("ours", {}).items()}
    world_size = state.get("world_size", 0)
    for key, left in state.get("parts", {}).items():
        bucket, part, stream = key.split("/", 2)
        whole = ours[f"{bucket}/0/{stream}"]
        numels = [layout.numel for layout in part_layouts(Layout(((whole.numel(),),)), world_size)]
        whole.split(numels)[int(part) - 1].add_(left, alpha=world_size)
    return ours


def _gathers(layout: Layout, world_size: int) -> bool:
    return world_size <= 2 or layout.numel < 8 * world_size
