"""Tensors a compressor keeps from step to step: one of each kind for a bucket, part and stream."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from compressors.base.compressor import Context, Layout


class Memory:
    """One float32 tensor as large as the bucket for each key, zeros at first."""

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def of(self, tensor: Tensor, context: Context) -> Tensor:
        """What is kept for the bucket of `tensor`, to be changed in place.

        Raises:
            ValueError: what is kept is of another size, as after buckets were laid anew.
        """
        kept = self._kept.get(context.state_key)
        if kept is None:
            kept = torch.zeros(tensor.numel(), dtype=torch.float32, device=tensor.device)
        elif kept.numel() != tensor.numel():
            found = f"{kept.numel()} elements are kept of bucket {context.state_key}, it has {tensor.numel()}"
            raise ValueError(f"{found}: what was kept is to be moved when buckets change")
        kept = self._kept[context.state_key] = kept.to(tensor.device)
        return kept

    def get(self, bucket: int, stream: str = "") -> Tensor | None:
        return self._kept.get(f"{bucket}/0/{stream}")

    def state_dict(self) -> dict[str, Tensor]:
        return {key: kept.clone() for key, kept in self._kept.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._kept = {key: kept.clone() for key, kept in state.items()}


def moved(state: dict[str, Tensor], old: Sequence[Layout], new: Sequence[Layout]) -> dict[str, Tensor]:
    """What was kept for each parameter, by its name, in other buckets; parameters that are new start from zero.

    Raises:
        ValueError: a layout has no names, or something was kept for a stretch of a bucket, which has no name.
    """
    if any(len(layout.names) != len(layout.shapes) for layout in [*old, *new]):
        raise ValueError("what was kept can be moved to other buckets only where layouts have the names of parameters")
    buckets = {layout.bucket: layout for layout in old}
    pieces: dict[str, dict[str, Tensor]] = {}
    for key, kept in state.items():
        bucket, part, stream = key.split("/", 2)
        if part != "0":
            raise ValueError(f"what was kept for part {part} of bucket {bucket} cannot be moved")
        layout = buckets[int(bucket)]
        pieces.setdefault(stream, {}).update(zip(layout.names, kept.split(layout.numels), strict=True))
    result = {}
    for stream, named in pieces.items():
        device = next(iter(named.values())).device
        for layout in new:
            parts = [
                named.get(name, torch.zeros(numel, device=device))
                for name, numel in zip(layout.names, layout.numels, strict=True)
            ]
            result[f"{layout.bucket}/0/{stream}"] = torch.cat(parts)
    return result
