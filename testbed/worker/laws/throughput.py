"""How fast a compressor is beside a copy of the same bytes, how small its payloads are, and what they lose."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from compressors.base.compressor import Compressor, Context, Layout
from testbed.worker.laws.cases.lockstep import contexts, drive
from testbed.worker.laws.cases.registry import routes

NUMELS = (1 << 10, 1 << 16, 1 << 20, 25_000_000)
THREADS = (1, 2)
ROWS = len(THREADS) * len(NUMELS)
"""Number of rows of the table."""
_SHORT_S, _MIN_REPEATS, _MAX_REPEATS = 0.3, 3, 200
"""A figure is the best of as many as fit in so many seconds, within these numbers."""
SETTLED = range(1000, 1016)
"""Steps of one of which figures are: long after any warm-up. Of the one in which most is sent, where that varies."""
PATIENCE_S = 30.0
"""What would take longer, by what a smaller tensor took, is left out and said to be."""


def measure(compressor: Compressor, numel: int, threads: int) -> dict[str, Any]:
    """One row: times in seconds, `share` of a clone's speed, sizes, errors.

    What works among ranks only is timed as one rank alone, its exchanges left out, and has no times of halves.

    Args:
        threads: of torch; set for as long as it takes.
    """
    with _threads(threads), torch.no_grad():
        tensor, layout = _tensor(numel), _layout(numel)
        clone_s = _best(lambda _: tensor.clone())
        if compressor.traits.point_to_point:
            row = _point_to_point(compressor, tensor, contexts(layout, None, 1, step=SETTLED[0])[0])
        else:
            row = _alone(compressor, tensor, layout)
        out = row.pop("out")
        # Beside a mean, a vote or an optimizer's direction is of another magnitude and meaning.
        # What keeps residuals of its own sends what is left of earlier steps, too.
        comparable = compressor.traits.averages and compressor.traits.feedback != "builtin"
        quality = _quality(tensor, out) if comparable else {"relative_error": None, "cosine": None}
    return {"numel": numel, "threads": threads, "clone_s": clone_s, **row, "share": clone_s / row["both_s"], **quality}


def _point_to_point(compressor: Compressor, tensor: Tensor, context: Context) -> dict[str, Any]:
    out = torch.empty_like(tensor)
    payload = compressor.encode(tensor, context)
    encode_s = _best(lambda _: compressor.encode(tensor, context))
    decode_s = _best(lambda _: compressor.decode(payload, out, context))
    bits = 8 * len(payload) / tensor.numel()
    return {"encode_s": encode_s, "decode_s": decode_s, "both_s": encode_s + decode_s, "bits": bits, "out": out}


def _alone(compressor: Compressor, tensor: Tensor, layout: Layout) -> dict[str, Any]:
    out, route = torch.empty_like(tensor), routes(compressor.traits)[0]

    def once(step: int) -> None:
        drive([compressor.rounds(tensor, contexts(layout, route, 1, step=step)[0], out=out)])

    once(0)  # what it keeps is then not all zeros
    heaviest = max(SETTLED, key=lambda step: compressor.sent_bytes(layout, 2, route, step=step))
    both_s = _best(lambda _: once(heaviest))
    # each of two ranks sends half of what both do; payloads are not halved where they are summed on the way
    sent = compressor.sent_bytes(layout, 2, route, step=heaviest) / 2
    return {"encode_s": None, "decode_s": None, "both_s": both_s, "bits": 8 * sent / tensor.numel(), "out": out}


def _quality(tensor: Tensor, out: Tensor) -> dict[str, float | None]:
    x, norm = tensor.double(), float(tensor.double().norm())
    y = out.double()
    cosine = float(x @ y) / (norm * float(y.norm())) if y.any() else None
    found = {"relative_error": float((x - y).norm()) / norm, "cosine": cosine}
    return {key: value if value is not None and math.isfinite(value) else None for key, value in found.items()}


def table(make: Callable[[], Compressor]) -> Iterator[dict[str, Any]]:
    """Rows of all sizes and thread counts; a row has `skipped` in place of figures where it would take too long, or
    raised an error."""
    for threads in THREADS:
        s_element = 0.0
        for numel in NUMELS:
            expected_s = s_element * numel * (_MIN_REPEATS + 1)
            if expected_s > PATIENCE_S:
                yield {"numel": numel, "threads": threads, "skipped": f"would take about {expected_s:.0f} s"}
                continue
            try:
                row = measure(make(), numel, threads)
            except Exception as error:
                said = (str(error).splitlines() or [""])[0]
                yield {"numel": numel, "threads": threads, "skipped": f"{type(error).__name__}: {said}"}
                continue
            s_element = row["both_s"] / numel
            yield row


def _tensor(numel: int) -> Tensor:
    """Laplacian values of a scale that changes along the way, as it does from layer to layer."""
    generator = torch.Generator().manual_seed(0)
    uniform = torch.rand(numel, generator=generator).sub_(0.5).mul_(2 - 1e-6)
    laplacian = uniform.sign() * torch.log1p(uniform.abs_().neg_()).neg_()
    return laplacian.mul_(torch.linspace(0, 3, numel).exp_().mul_(1e-3))


def _layout(numel: int) -> Layout:
    side = math.isqrt(numel)
    return Layout(((side, side),) if side * side == numel else ((numel,),))


def _best(call: Callable[[int], object]) -> float:
    """Of several, after one that does not count."""
    call(0)
    times: list[float] = []
    while len(times) < _MIN_REPEATS or (sum(times) < _SHORT_S and len(times) < _MAX_REPEATS):
        began_s = time.perf_counter()
        call(1 + len(times))
        times.append(time.perf_counter() - began_s)
    return min(times)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
