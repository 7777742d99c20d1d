from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Annotated

import torch
from torch import Tensor, nn

from testbed.core.kinds import Choice, ListOf, Whole
from testbed.core.parameters import CountOrZero, Fraction, LearningRate
from testbed.worker.data.library_corpus import CONTEXT, corpus, corpus_faults, library, sequences
from testbed.worker.interfaces.numbered_workload import NumberedWorkload
from testbed.worker.interfaces.partition import AnyPartition
from testbed.worker.interfaces.schedule import CONSTANT, ScheduleName
from testbed.worker.interfaces.workload import Metric
from testbed.worker.model.pieces import Piece, Sharing

_WIDTH, _HEADS = 128, 4
WIDENING = (4, 4, 4)
"""Width of the inner layer of each block, in widths of the model."""
_MAX_BLOCKS, _MAX_WIDENING = 96, 64
_DEVIATION = 0.08
"""Standard deviation of initial weights."""
_EVALUATED, _EVALUATED_AT_ONCE = 512, 32
"""Sequences of an evaluation, and those of one forward."""
OPTIMIZERS = ("adamw", "sgd")


_WIDENINGS = ListOf(
    Whole(1, _MAX_WIDENING), f"a list of whole numbers, one for each of 1 to {_MAX_BLOCKS} blocks", 1, _MAX_BLOCKS
)


class Bytelm(NumberedWorkload):
    """A transformer of 0.67 million parameters that predicts the next byte of the Python standard library's source.

    Three blocks of width 128 (Vaswani et al., "Attention Is All You Need", NeurIPS 2017), normalised before each part,
    on sequences of 64 bytes; a sample is one. The corpus is the *.py files of the interpreter's own library, without
    tests and installed packages: 10.2 million bytes, and 0.5 million in the files held out, one of 16 by the hash of
    their names. Point releases differ, so its SHA-256 goes into the spec. The metric is that of 512 sequences, spread
    evenly over the files held out.

    Measured without compression, gradients of 4 batches of 16 averaged in one process, 300 steps, Python 3.11.2, seeds
    0 and 1: 2.45 and 2.53 bits per byte, falling by 0.12 in the last 50 steps; the target, 2.8, is reached after 180
    and between 200 and 250 steps. A step takes 54 ms for 16 sequences on one core, an evaluation 0.6 s.

    Args:
        learning_rate: Learning rate.
        optimizer: Optimizer; SGD has Nesterov momentum.
        momentum: Momentum of SGD; AdamW has 0.9 and 0.95.
        widening: Inner width of each block, in multiples of 128. Different ones make an uneven model.

    Raises:
        ValueError: A parameter is out of its range.
    """

    metric = Metric(name="bits_per_byte", target=2.8, higher_is_better=False, least=0.0)

    def __init__(
        self,
        *,
        learning_rate: LearningRate = 0.002,
        optimizer: Annotated[str, Choice(OPTIMIZERS)] = "adamw",
        momentum: Fraction = 0.9,
        partition: AnyPartition | None = None,
        schedule: ScheduleName = CONSTANT,
        warm_up_steps: CountOrZero = 0,
        widening: Annotated[Sequence[int], _WIDENINGS] = WIDENING,
    ) -> None:
        self.learning_rate = learning_rate
        self.optimizer_name = optimizer
        self.momentum = momentum
        self.partition = partition
        self.schedule, self.warm_up_steps = schedule, warm_up_steps
        self.widening = tuple(widening)

    def validate(self) -> list[str]:
        return corpus_faults(library())

    def data_hash(self) -> str:
        return corpus().sha256

    def preload(self) -> None:
        corpus()

    def model(self, seed: int) -> nn.Module:
        model = ByteTransformer(self.widening)
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=_DEVIATION, generator=generator)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
            if name.endswith(("project.weight", "shrink.weight")):
                # what blocks add to the residual sums to the size of one
                parameter.data.div_(math.sqrt(2 * len(self.widening)))
        return model

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        if self.optimizer_name == "sgd":
            return torch.optim.SGD(
                parameters, lr=self.learning_rate, momentum=self.momentum, nesterov=self.momentum > 0
            )
        return torch.optim.AdamW(parameters, lr=self.learning_rate, betas=(0.9, 0.95), weight_decay=0.1)

    def samples(self) -> int:
        return (len(corpus().train) - 1) // CONTEXT

    def batch(self, step: int, *, rank: int, world_size: int, batch_size: int, seed: int) -> Tensor:
        """Return sequences of one byte more than the context: inputs, and the bytes to be predicted."""
        chosen = self.numbers(step, rank=rank, world_size=world_size, batch_size=batch_size, seed=seed)
        return self.picked(chosen)

    def picked(self, numbers: Tensor) -> Tensor:
        return sequences(corpus().train, numbers)

    def labels(self) -> Tensor:
        """Return the number of the file that the sample begins in, by name; a file without a beginning has none."""
        return corpus().files

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        """Return nats per byte."""
        return self.loss_of(model(batch[:, :-1]), batch)

    def pieces(self, model: nn.Module) -> list[Piece]:
        """Return the embeddings, each block, and the head with its norm."""
        assert isinstance(model, ByteTransformer)
        blocks = (block for block in model.blocks if isinstance(block, Block))
        return [
            Piece("embeddings", _Embeddings(model.bytes, model.positions)),
            *(
                Piece(f"blocks.{index}", block, True, block.shared, {"heads": block.heads, "width": _WIDTH})
                for index, block in enumerate(blocks)
            ),
            Piece("head", nn.Sequential(model.norm, model.head)),
        ]

    def inputs(self, batch: Tensor) -> Tensor:
        return batch[:, :-1]

    def loss_of(self, output: Tensor, batch: Tensor) -> Tensor:
        return nn.functional.cross_entropy(output.flatten(0, 1), batch[:, 1:].flatten())

    def sample_losses(self, model: nn.Module, batch: Tensor) -> Tensor:
        logits = model(batch[:, :-1]).transpose(1, 2)
        return nn.functional.cross_entropy(logits, batch[:, 1:], reduction="none").mean(1)

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> float:
        text = corpus().held_out
        spread = torch.arange(_EVALUATED) * ((len(text) - 1) // CONTEXT) // _EVALUATED
        model.eval()
        nats = sum(float(self.loss(model, sequences(text, some))) for some in spread.split(_EVALUATED_AT_ONCE))
        model.train()
        return nats * _EVALUATED_AT_ONCE / _EVALUATED / math.log(2)


class ByteTransformer(nn.Module):
    """Decoder-only transformer, normalised before each part, with learned positions and an untied embedding."""

    def __init__(self, widening: Sequence[int] = WIDENING) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, _WIDTH)
        self.positions = nn.Embedding(CONTEXT, _WIDTH)
        self.blocks = nn.ModuleList(Block(times) for times in widening)
        self.norm = nn.LayerNorm(_WIDTH)
        self.head = nn.Linear(_WIDTH, 256, bias=False)

    def forward(self, text: Tensor) -> Tensor:
        hidden = _embedded(text, self.bytes, self.positions)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(self.norm(hidden))


class Block(nn.Module):
    heads = _HEADS

    def __init__(self, widening: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(_WIDTH)
        self.attend = nn.Linear(_WIDTH, 3 * _WIDTH)
        self.project = nn.Linear(_WIDTH, _WIDTH)
        self.norm2 = nn.LayerNorm(_WIDTH)
        self.widen = nn.Linear(_WIDTH, widening * _WIDTH)
        self.shrink = nn.Linear(widening * _WIDTH, _WIDTH)

    def forward(self, hidden: Tensor) -> Tensor:
        samples, length, _ = hidden.shape
        heads = self.attend(self.norm1(hidden)).view(samples, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind()
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.project(seen.transpose(1, 2).reshape(samples, length, -1))
        return hidden + self.shrink(nn.functional.gelu(self.widen(self.norm2(hidden))))

    def shared(self, sharing: Sharing) -> Block:
        """Return one shard: some of the heads, and as large a part of the wide layer."""
        shard = Block(1)  # whose layers are all replaced
        shard.heads = self.heads // sharing.degree
        shard.norm1, shard.norm2 = self.norm1, self.norm2
        shard.set_submodule("attend", sharing.columns(self.attend, runs=3))
        shard.set_submodule("project", sharing.rows(self.project))
        shard.set_submodule("widen", sharing.columns(self.widen))
        shard.set_submodule("shrink", sharing.rows(self.shrink))
        return shard


class _Embeddings(nn.Module):
    def __init__(self, of_bytes: nn.Embedding, of_positions: nn.Embedding) -> None:
        super().__init__()
        self.bytes, self.positions = of_bytes, of_positions

    def forward(self, text: Tensor) -> Tensor:
        return _embedded(text, self.bytes, self.positions)


def _embedded(text: Tensor, of_bytes: nn.Embedding, of_positions: nn.Embedding) -> Tensor:
    embedded: Tensor = of_bytes(text) + of_positions(torch.arange(text.shape[1], device=text.device))
    return embedded
