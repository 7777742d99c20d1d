"""Compress drawn changes, and real ones beside them: `python -m scripts.replay_comparison`.

Two replicas train on `texts` and `fashion` with seeds and local steps that the textures were not measured with, and
what they change is compressed, and what is drawn for tensors of the same shapes. Prints a table of
docs/tables/replay-figures.csv:
size over payload, and the norm of the error over that of what is compressed. Takes two minutes on one core.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from compressors.base.compressor import Compressor, Context, Layout, Route
from scripts.replay_differences import BATCH, changes, kind_of
from testbed.worker.data.drawn_tensors import add_drawn
from testbed.worker.data.textures import CHANGE, WEIGHTS, texture_of
from testbed.worker.plugins.compressor_catalogue import built, part

SEEDS, LOCAL_STEPS = (5, 6), 35
COMPRESSORS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("topk", {"density": 0.01}),
    ("randomk", {"density": 0.01}),
    ("threshold", {}),
    ("qsgd", {}),
    ("int8", {}),
    ("terngrad", {}),
    ("natural", {}),
    ("powersgd", {"rank": 4}),
    ("sz3", {"error_bound": 1.0}),
    ("sz3", {"error_bound": 0.1}),
    ("zfp", {}),
    ("zstd", {}),
    ("inceptionn", {}),
)


def compare() -> None:
    torch.set_num_threads(1)
    print("| changes of | compressor | size / payload: real | drawn | relative error: real | drawn |")
    print("|---|---|---|---|---|---|")
    for of in BATCH:
        real, drawn = pairs(of)
        for name, parameters in COMPRESSORS:
            told = " ".join([name, *map(str, parameters.values())])
            asked = part(name, parameters)
            found = [figures(built(asked.target, asked.params), each) for each in (real, drawn)]
            (ratio, error), (drawn_ratio, drawn_error) = found
            print(
                f"| {of} | `{told}` | {ratio:.3g} | {drawn_ratio:.3g} | {error:.3g} | {drawn_error:.3g} |", flush=True
            )


def pairs(of: str) -> tuple[list[dict[str, Tensor]], list[dict[str, Tensor]]]:
    real = [change.ranks[0] for seed in SEEDS for change in changes(of, LOCAL_STEPS, seed)]
    return real, [drawn_like(of, each, place) for place, each in enumerate(real)]


def drawn_like(of: str, real: dict[str, Tensor], place: int) -> dict[str, Tensor]:
    found = {}
    for name, value in real.items():
        texture = texture_of(CHANGE, of, kind_of(name, value))
        columns = value.numel() // len(value) if value.dim() > 1 else value.numel()
        keys = {"common": f"{name}/{place}", "own": f"{name}/{place}/own"}
        weights = texture_of(WEIGHTS, of, kind_of(name, value))
        before = torch.zeros_like(value)
        add_drawn(before, weights, columns=columns, scale=weights.scale(1, columns), **keys)
        after = before.clone()
        add_drawn(after, texture, columns=columns, scale=texture.scale(LOCAL_STEPS, columns), **keys)
        found[name] = after - before  # rounded as what is sent
    return found


def figures(compressor: Compressor, each: list[dict[str, Tensor]]) -> tuple[float, float]:
    """Return size over payload, and the norm of the error over that of what is compressed, over all changes."""
    size = payload = error = energy = 0.0
    for step, tensors in enumerate(each):
        flat = torch.cat([value.reshape(-1) for value in tensors.values()])
        layout = Layout(tuple(tuple(value.shape) for value in tensors.values()))
        out = torch.empty_like(flat)
        size, payload = size + flat.nbytes, payload + sent(compressor, flat.clone(), layout, step, out)
        error, energy = error + float((out - flat).square().sum()), energy + float(flat.square().sum())
    return size / payload, math.sqrt(error / energy)


def sent(compressor: Compressor, flat: Tensor, layout: Layout, step: int, out: Tensor) -> int:
    """Return the bytes of one rank's payloads; those that all of several ranks sum count once."""
    alone = compressor.traits.point_to_point
    route = None if alone else Route.OWN
    context = Context(layout=layout, route=route, seed=0, step=step, rank=0, world_size=1)
    if alone:
        encoded = compressor.encode(flat, context)
        compressor.decode(encoded, out, context)
        return encoded.numel()
    rounds, answer, payload = compressor.rounds(flat, context, out=out), None, 0
    while True:
        try:
            exchange = rounds.send(answer)  # type: ignore[arg-type]
        except StopIteration:
            return payload
        answer = list(exchange.data)
        payload += sum(one.nbytes for one in answer)


if __name__ == "__main__":
    compare()
