"""The timelines that the repository holds, by accelerator, model, precision and batch size."""

from __future__ import annotations

import functools
import json
import lzma
from collections.abc import Sequence
from pathlib import Path

from testbed.core.device.timelines.timeline import Timeline, between
from testbed.core.device.timelines.timeline_file import timeline_of
from testbed.core.errors import InputError

_FOLDER = Path(__file__).parents[1] / "data"
ACCELERATORS = ("h200",)
"""Accelerators that were measured: each a file of `data/`, made by scripts/device_timelines.py."""
MEASURED_PRECISIONS = ("tf32", "bf16")


def models(accelerator: str) -> tuple[str, ...]:
    """Return the models whose steps were measured on an accelerator, sorted."""
    return tuple(sorted({model for model, _, _ in _library(accelerator)}))


def batch_sizes(accelerator: str, model: str, precision: str) -> tuple[int, ...]:
    """Return the batch sizes that were measured, ascending."""
    return tuple(sorted(size for name, kind, size in _library(accelerator) if (name, kind) == (model, precision)))


def measured(accelerator: str, model: str, precision: str, batch_size: int) -> Timeline:
    """Return the timeline of a model's step; that of a batch between two measured ones is interpolated.

    Raises:
        InputError: It was not measured, nor are there two measured batches around it; with what was.
    """
    sizes = batch_sizes(accelerator, model, precision)
    if not sizes:
        raise InputError(_refusal(accelerator, model, precision))
    if batch_size in sizes:
        return _library(accelerator)[model, precision, batch_size]
    if not sizes[0] < batch_size < sizes[-1]:
        allowed = f"{sizes[0]} to {sizes[-1]}" if len(sizes) > 1 else f"{sizes[0]} alone"
        raise InputError(
            f"batch_size={batch_size}: {accelerator} has {model} in {precision} for batches of {allowed}"
            f" ({_these(sizes)} measured, others between them interpolated); give one of these, or the length of a"
            " step: device.step_s"
        )
    return _near(accelerator, model, precision, batch_size)


def shape_of(accelerator: str, model: str, precision: str, batch_size: int) -> Timeline:
    """Return the timeline whose shape stands for that of another device: as `measured`, or of the nearest batch.

    Raises:
        InputError: The model was not measured.
    """
    sizes = batch_sizes(accelerator, model, precision)
    if not sizes:
        raise InputError(_refusal(accelerator, model, precision))
    return measured(accelerator, model, precision, min(max(batch_size, sizes[0]), sizes[-1]))


def passes(accelerator: str, model: str, precision: str) -> tuple[tuple[int, float], ...]:
    """Return (samples, seconds of forward and backward) of each batch that was measured, ascending."""
    found = (
        (size, _library(accelerator)[model, precision, size]) for size in batch_sizes(accelerator, model, precision)
    )
    return tuple((size, one.phases_s.forward + one.phases_s.backward) for size, one in found)


def _near(accelerator: str, model: str, precision: str, batch_size: int) -> Timeline:
    sizes = batch_sizes(accelerator, model, precision)
    low, high = max(size for size in sizes if size < batch_size), min(size for size in sizes if size > batch_size)
    library = _library(accelerator)
    return between(library[model, precision, low], library[model, precision, high], batch_size)


def _refusal(accelerator: str, model: str, precision: str) -> str:
    known = models(accelerator)
    if model not in known:
        return f"model={model}: {accelerator} has no timeline of it; it has {', '.join(known)}"
    others = [one for one in MEASURED_PRECISIONS if batch_sizes(accelerator, model, one)]
    found = ", ".join(one for one in known if batch_sizes(accelerator, one, precision))
    return (
        f"precision={precision}: {accelerator} has {model} in {', '.join(others)} alone; in {precision} it has"
        f" {found or 'none'}"
    )


def _these(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes))


@functools.cache
def _library(accelerator: str) -> dict[tuple[str, str, int], Timeline]:
    path = _FOLDER / f"{accelerator}.json.xz"
    found = [timeline_of(data, path.name) for data in json.loads(lzma.decompress(path.read_bytes()))]
    return {one.key: one for one in found}
