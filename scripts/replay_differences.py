"""Make the textures of what local training changes in a model, measured on `texts` and `fashion`.

    .venv/bin/python scripts/replay_differences.py    # writes testbed/worker/data/difference_textures.json

Two replicas train from the same parameters for so many steps, become their mean, and go on, as by local SGD. What each
has changed after 10 and after 50 steps is measured, of two seeds. Data are fetched on first use. Nothing is sent. It
takes two minutes on one core. `scripts/replay_comparison.py` compares drawn changes with real ones.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from testbed.worker.data.textures import (
    CHANGE,
    CONVOLUTION,
    EMBEDDING,
    FILE,
    LINEAR,
    MEASURED_STEPS,
    NORMAL,
    RANKS,
    VECTOR,
    WEIGHTS,
)
from testbed.worker.interfaces.numbered_workload import NumberedWorkload
from testbed.worker.workloads.fashion import Fashion
from testbed.worker.workloads.texts import Texts

STEPS, BATCH = 400, {"texts": 8, "fashion": 32}
SEEDS = (0, 1)
AT = (100, 200, 350)
"""Steps at which changes are taken: near the beginning, in the middle, near the end."""
_EMBEDDED = ("stem.bytes.weight", "stem.positions")


@dataclass(frozen=True)
class Change:
    """Changes of one round: tensors by name on two ranks, and those from which both began."""

    ranks: tuple[dict[str, Tensor], dict[str, Tensor]]
    began: dict[str, Tensor]


def changes(of: str, local_steps: int, seed: int) -> Iterator[Change]:
    """Train two replicas, and yield what the rounds that end at `AT` changed."""
    workload: NumberedWorkload = Texts() if of == "texts" else Fashion()
    models = [workload.model(seed) for _ in range(2)]
    optimizers = [workload.optimizer(model.parameters()) for model in models]
    rates = [group["lr"] for group in optimizers[0].param_groups]
    began: dict[str, Tensor] = {}
    for step in range(STEPS):
        if step % local_steps == 0:
            began = copied(models[0])
        factor = workload.rate_factor(step, STEPS)
        for rank, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * factor
            optimizer.zero_grad()
            batch = workload.batch(step, rank=rank, world_size=2, batch_size=BATCH[of], seed=seed)
            workload.loss(model, batch).backward()
            optimizer.step()
        if (step + 1) % local_steps == 0:
            if step + 1 in AT:
                first, second = ({n: v - began[n] for n, v in copied(model).items()} for model in models)
                yield Change((first, second), began)
            average(models)


def copied(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


@torch.no_grad()
def average(models: list[nn.Module]) -> None:
    for first, second in zip(models[0].parameters(), models[1].parameters(), strict=True):
        first.add_(second).div_(2)
        second.copy_(first)


def kind_of(name: str, value: Tensor) -> str:
    if name in _EMBEDDED:
        return EMBEDDING
    return VECTOR if value.dim() < 2 else CONVOLUTION if value.dim() > 2 else LINEAR


# Measuring.


@dataclass(frozen=True)
class Facts:
    """Facts of one tensor."""

    rms: float
    rows: int
    columns: int
    row_spread: float
    column_spread: float
    shares: tuple[float, ...] | None
    """Shares of energy; None: too small to tell."""
    cosine: float
    noise: Tensor
    """Remainder without rows, columns and low rank, sorted, of root mean square 1."""


def measure() -> None:
    torch.set_num_threads(1)
    found: dict[tuple[str, str, str], dict[tuple[str, int], list[Facts]]] = defaultdict(lambda: defaultdict(list))
    for of in BATCH:
        for local_steps in MEASURED_STEPS:
            for seed in SEEDS:
                for change in changes(of, local_steps, seed):
                    for name, value in change.ranks[0].items():
                        kind, key = kind_of(name, value), (name, local_steps)
                        found[CHANGE, of, kind][key].append(facts(value, change.ranks[1][name]))
                        found[WEIGHTS, of, kind][key].append(facts(change.began[name], change.began[name]))
    rows = [{"what": what, "of": of, "kind": kind, **texture(what, each)} for (what, of, kind), each in found.items()]
    how = {
        "made_by": "scripts/replay_differences.py",
        "of": "workloads texts (AdamW) and fashion (SGD with momentum), as their files have them, 2 replicas",
        "steps": STEPS,
        "local_steps": MEASURED_STEPS,
        "taken_at": AT,
        "seeds": SEEDS,
        "batch_sizes": BATCH,
        "torch": torch.__version__,
    }
    lines = ",\n".join(json.dumps(row, separators=(", ", ": ")) for row in rows)
    FILE.write_text(f'{{"provenance": {json.dumps(how)},\n"textures": [\n{lines}\n]}}\n')


def facts(value: Tensor, other: Tensor) -> Facts:
    matrix = value.reshape(len(value), -1) if value.dim() > 1 else value.view(1, -1)
    cosine = float(nn.functional.cosine_similarity(value.reshape(-1), other.reshape(-1), dim=0))
    rms = float(value.square().mean().sqrt())
    if value.dim() < 2:
        return Facts(rms, value.numel(), 1, 0.0, 0.0, None, cosine, sorted_noise(matrix))
    row, column = (matrix.square().mean(dim).sqrt().clamp_min(1e-12) for dim in (1, 0))
    plain = matrix / row[:, None] / column
    shares, left = low_rank(matrix, plain, row[:, None] * column)
    excess = float(plain.pow(4).mean() / plain.square().mean().square()) - 1
    spreads = (spread_of(row, excess / matrix.shape[1]), spread_of(column, excess / matrix.shape[0]))
    return Facts(rms, *matrix.shape, *spreads, shares, cosine, sorted_noise(left / row[:, None] / column))


def spread_of(factors: Tensor, chance: float) -> float:
    """Return the standard deviation of the logarithm, without what chance adds to a mean of few squares."""
    return math.sqrt(max(0.0, float(factors.log().var()) - chance / 4))


def low_rank(matrix: Tensor, plain: Tensor, factors: Tensor) -> tuple[tuple[float, ...] | None, Tensor]:
    """Return shares of energy beyond those of the same values in another order, and what 16 ranks leave."""
    if min(matrix.shape) < 2 * RANKS[-1]:
        return None, matrix
    order = torch.randperm(plain.numel(), generator=torch.Generator().manual_seed(0))
    shuffled = plain.reshape(-1)[order].view_as(plain) * factors
    u, singular, v = torch.linalg.svd(matrix, full_matrices=False)
    real, chance = (energy / energy.sum() for energy in (singular.square(), torch.linalg.svdvals(shuffled).square()))
    ends = [(float(real[:end].sum()), float(chance[:end].sum())) for end in RANKS]
    whole = max(0.0, (ends[-1][0] - ends[-1][1]) / (1 - ends[-1][1]))
    sums = [min(whole, max(0.0, total - (1 - whole) * by_chance)) for total, by_chance in ends]
    sums[-1] = whole
    shares = tuple(max(0.0, end - before) for before, end in zip((0.0, *sums), sums, strict=False))
    rank = RANKS[-1]
    return shares, matrix - (u[:, :rank] * singular[:rank]) @ v[:rank]


def sorted_noise(values: Tensor) -> Tensor:
    flat = values.reshape(-1)
    return (flat / flat.square().mean().sqrt().clamp_min(1e-30)).sort().values


def texture(what: str, found: dict[tuple[str, int], list[Facts]]) -> dict[str, Any]:
    """Return the texture of a kind: means over tensors, each by its elements, so that large ones count most."""
    every = [one for each in found.values() for one in each]
    large = [one for one in every if one.shares is not None]
    shares = [mean(large, lambda one: one.shares[place]) if large else 0.0 for place in range(len(RANKS))]  # type: ignore[index]  # noqa: B023
    cosine = mean(every, lambda one: one.cosine)
    per_input = between_tensors(found, per_input=True) < between_tensors(found, per_input=False)
    first, last = (
        mean([one for (_, number), each in found.items() if number == steps for one in each], log_size(per_input))
        for steps in MEASURED_STEPS
    )
    places = torch.special.ndtr(torch.tensor(NORMAL, dtype=torch.float64))
    noise = sum(one.columns * one.rows * quantiles(one.noise, places) for one in every)
    noise = noise / sum(one.columns * one.rows for one in every)
    growth = (last - first) / math.log(MEASURED_STEPS[1] / MEASURED_STEPS[0]) if what == CHANGE else 0.0
    return {
        "rms": rounded(math.exp(first if what == CHANGE else (first + last) / 2)),
        "growth": rounded(growth),
        "per_input": per_input,
        "spread": rounded(between_tensors(found, per_input=per_input)),
        "row_spread": rounded(mean(every, lambda one: one.row_spread)),
        "column_spread": rounded(mean(every, lambda one: one.column_spread)),
        "shares": [rounded(share) for share in shares],
        "agreement": rounded(min(1.0, max(0.0, cosine) / sum(shares))) if sum(shares) else 0.0,
        "quantiles": [rounded(one) for one in noise.tolist()],
    }


def between_tensors(found: dict[tuple[str, int], list[Facts]], *, per_input: bool) -> float:
    """Return the spread of sizes over tensors of one moment, in which learning rate and local steps are the same."""
    variances, size = [], log_size(per_input)
    for steps in MEASURED_STEPS:
        for moment in zip(*(each for (_, number), each in found.items() if number == steps), strict=True):
            center = mean(moment, size)
            variances.append(mean(moment, lambda one: (size(one) - center) ** 2))  # noqa: B023
    return math.sqrt(statistics.fmean(variances))


def mean(facts: Sequence[Facts], of: Callable[[Facts], float]) -> float:
    """Return the mean by elements."""
    return statistics.fmean(map(of, facts), weights=[one.rows * one.columns for one in facts])


def log_size(per_input: bool) -> Callable[[Facts], float]:
    """Return the logarithm of the root mean square, times the square root of the inputs of a row if that is asked."""
    return lambda one: math.log(one.rms * (math.sqrt(one.columns) if per_input else 1.0))


def quantiles(values: Tensor, places: Tensor) -> Tensor:
    return torch.quantile(values.double()[:: max(1, len(values) // 100_000)], places)


def rounded(value: float) -> float:
    return float(f"{value:.4g}")


if __name__ == "__main__":
    measure()
