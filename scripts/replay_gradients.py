"""Gradients of a replay beside gradients of real training: `python scripts/replay_gradients.py`.

Trains three small models for a few hundred steps in all (two minutes on one core) and prints the tables of
docs/tables/replay-figures.csv. Nothing is sent.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from compressors.base.compressor import Compressor, Context, Layout  # noqa: E402
from compressors.int8 import Int8  # noqa: E402
from compressors.sz3 import SZ3  # noqa: E402
from compressors.topk import TopK  # noqa: E402
from testbed.worker.workloads.digits import Digits  # noqa: E402
from testbed.worker.workloads.replay import Replay  # noqa: E402

MIN_NUMEL = 4096
BUCKET_NUMEL = 2**20
MAX_NUMEL = 2**25
MAX_BUCKETS = 16
WIDTH, TOKENS = 256, 128
OTHER_RANK = 10_000
"""Batches from here on are another rank's."""
Gradients = list[Tensor]


@dataclass(frozen=True)
class Row:
    """Medians over large tensors; the rest of whole buckets."""

    kurtosis: float
    block_kurtosis: float
    top_share: float
    zeros: float
    rms_spread: float
    sz3_ratio: float
    fine_sz3_ratio: float
    int8_error: float
    topk_energy: float
    rank4_energy: float
    rank_cosine: float


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("| gradients | " + " | ".join(Row.__annotations__) + " |\n|---|" + "---|" * len(Row.__annotations__))
    for name, gradients, others in sources():
        row = measure(gradients, others)
        print(f"| {name} | " + " | ".join(f"{value:.3g}" for value in vars(row).values()) + " |", flush=True)


def sources() -> Iterator[tuple[str, Gradients, Gradients]]:
    """What they are of, those of one rank, and those of another one in the same step."""
    digits = Digits()
    for name, model in (("digits, ReLU", digits.model(0)), ("digits, residual with batch norm", residual_network())):
        yield from training(name, model, lambda m, s: digits.loss(m, digits_batch(digits, s)), (5, 80))
    data = corpus()
    yield from training("byte transformer", ByteTransformer(), lambda m, s: byte_loss(m, data, s), (10, 200))
    for name in ("resnet50", "vgg16", "bert-base", "gpt2"):
        replay = Replay(model=name)
        ranks = []
        for rank in range(2):
            model = replay.model(0)
            replay.loss(model, replay.batch(0, rank=rank, world_size=2, batch_size=1, seed=0)).backward()
            ranks.append(gradients_of(model))
        yield f"replay of {name}", *ranks


def training(
    name: str, model: nn.Module, loss_of: Callable[[nn.Module, int], Tensor], at: tuple[int, ...]
) -> Iterator[tuple[str, Gradients, Gradients]]:
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for step in range(at[-1] + 1):
        other: Gradients = []
        if step in at:
            optimizer.zero_grad()
            loss_of(model, OTHER_RANK + step).backward()
            other = gradients_of(model)
        optimizer.zero_grad()
        loss_of(model, step).backward()
        if step in at:
            yield f"{name}, step {step}", gradients_of(model), other
        optimizer.step()


def gradients_of(model: nn.Module) -> Gradients:
    return [p.grad for p in model.parameters() if p.grad is not None]


def digits_batch(digits: Digits, step: int) -> tuple[Tensor, Tensor]:
    return digits.batch(step, rank=0, world_size=1, batch_size=32, seed=0)


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.body(x))


def residual_network(width: int = 96, blocks: int = 4) -> nn.Module:
    stem = (nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
    pool = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))
    return nn.Sequential(*stem, *(Residual(width) for _ in range(blocks)), *pool)


class ByteTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, WIDTH)
        self.positions = nn.Parameter(0.02 * torch.randn(TOKENS, WIDTH))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True)
            for _ in range(4)
        )
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(TOKENS))

    def forward(self, x: Tensor) -> Tensor:
        x = self.embedding(x) + self.positions
        for block in self.blocks:
            x = block(x, src_mask=self.mask, is_causal=True)
        return self.head(self.norm(x))


def corpus() -> Tensor:
    """The text of Python's own library."""
    files = sorted(Path(os.__file__).parent.glob("*.py"))[:120]
    return torch.frombuffer(bytearray(b"".join(file.read_bytes() for file in files)), dtype=torch.uint8).long()


def byte_loss(model: nn.Module, data: Tensor, step: int) -> Tensor:
    starts = torch.randint(len(data) - TOKENS, (8,), generator=torch.Generator().manual_seed(step))
    text = torch.stack([data[start : start + TOKENS + 1] for start in starts.tolist()])
    return nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())


def measure(gradients: Gradients, others: Gradients) -> Row:
    large = [g for g in gradients if MIN_NUMEL <= g.numel() <= MAX_NUMEL]
    flat, other = (torch.cat([g.reshape(-1) for g in rank]) for rank in (gradients, others))
    buckets = [b for b in flat.split(BUCKET_NUMEL) if float(b.norm()) > 0]
    buckets = buckets[:: math.ceil(len(buckets) / MAX_BUCKETS)]
    energy = [float(decoded(TopK(density=0.01), b).square().sum() / b.square().sum()) for b in buckets]
    logs = [math.log(float(g.square().mean().sqrt())) for g in large]
    return Row(
        kurtosis=statistics.median(map(kurtosis, large)),
        block_kurtosis=statistics.median(map(block_kurtosis, large)),
        top_share=statistics.median(map(top_share, large)),
        zeros=sum(float((b == 0).sum()) for b in buckets) / sum(b.numel() for b in buckets),
        rms_spread=statistics.stdev(logs),
        sz3_ratio=ratio(SZ3(error_bound=1.0), buckets),
        fine_sz3_ratio=ratio(SZ3(error_bound=0.1), buckets),
        int8_error=statistics.median(float((decoded(Int8(), b) - b).norm() / b.norm()) for b in buckets),
        topk_energy=statistics.median(energy),
        rank4_energy=statistics.median(rank4_energy(g) for g in large if g.dim() > 1 and len(g) > 8),
        rank_cosine=float(nn.functional.cosine_similarity(flat, other, dim=0)),
    )


def kurtosis(values: Tensor) -> float:
    squares = values.double().square()
    return float(squares.square().mean() / squares.mean().square())


def block_kurtosis(values: Tensor) -> float:
    """Mean over stretches of 256 values."""
    squares = values.reshape(-1)[: values.numel() // 256 * 256].double().view(-1, 256).square()
    squares = squares[squares.sum(1) > 0]
    return float((squares.square().mean(1) / squares.mean(1).square()).mean())


def top_share(values: Tensor) -> float:
    """Of the energy, in the largest hundredth of the values."""
    squares = values.reshape(-1).square()
    return float(squares.topk(max(1, squares.numel() // 100)).values.sum() / squares.sum())


def rank4_energy(values: Tensor) -> float:
    matrix = values.reshape(len(values), -1)[:2048, :2048]
    singular = torch.linalg.svdvals(matrix[:, : min(matrix.shape[1], 1024)][:1024]).square()
    return float(singular[:4].sum() / singular.sum())


def _context(values: Tensor) -> Context:
    layout = Layout((tuple(values.shape),))
    return Context(layout=layout, route=None, seed=0, step=0, rank=0, world_size=1)


def decoded(compressor: Compressor, values: Tensor) -> Tensor:
    out = torch.empty_like(values)
    compressor.decode(compressor.encode(values, _context(values)), out, _context(values))
    return out


def ratio(compressor: Compressor, buckets: list[Tensor]) -> float:
    return sum(b.nbytes for b in buckets) / sum(len(compressor.encode(b, _context(b))) for b in buckets)


if __name__ == "__main__":
    main()
