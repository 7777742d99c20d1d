"""Tensors that a compressor keeps from step to step: one of each kind for a bucket, part and stream."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from compressors.base.compressor import Context, Layout


class Memory:
    """One float32 tensor as large as the bucket for each `Context.state_key`, zeros at first."""

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def of(self, tensor: Tensor, context: Context) -> Tensor:
        """Return the tensor that is kept for the bucket of `tensor`, to be changed in place.

        Raises:
            ValueError: The kept tensor has another size, as after buckets were laid out again.
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
        """Return the tensor that is kept for a whole bucket, or None before its first step."""
        return self._kept.get(f"{bucket}/0/{stream}")

    def state_dict(self) -> dict[str, Tensor]:
        """Return copies of all tensors, by `Context.state_key`."""
        return {key: kept.clone() for key, kept in self._kept.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over copies of all tensors of `state`, instead of the present ones."""
        self._kept = {key: kept.clone() for key, kept in state.items()}


def moved(state: dict[str, Tensor], old: Sequence[Layout], new: Sequence[Layout]) -> dict[str, Tensor]:
    """Return the state of a memory for the same parameters in other buckets; new parameters start from zero.

    Args:
        state: Tensors by `Context.state_key`, in the buckets of `old`.
        old: Layouts of buckets before, with names of parameters.
        new: Layouts of buckets from now on, with names of parameters.

    Raises:
        ValueError: A layout has no names, or a tensor was kept for a part of a bucket, which has no name.
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
