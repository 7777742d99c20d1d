"""Configurations that a newcomer could ask for, drawn by a seed: each value of each factor at least once."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experiments.common.first_try.length import Length, length, topology
from testbed.core.errors import InputError
from testbed.orchestrator.config.config import names

SEED, COUNT = 43, 25
FACTORS: dict[str, Sequence[Any]] = {
    "topo": names("topo"),
    "strategy": (
        *("ddp", "torch_ddp", "dear", "local_sgd"),
        *("diloco", "parameter_server", "hybrid", "pad_kfac"),
    ),
    "compressor": ("none", "topk", "sz3", "powersgd"),
    "workers": range(2, 17),
    "workload": ("digits", "glyphs", "bytelm", "replay"),
}


@dataclass(frozen=True)
class Drawn:
    """One combination of the factors."""

    topo: str
    strategy: str
    compressor: str
    workers: int
    workload: str

    @property
    def exclusion(self) -> str:
        """Reason for which its keys exclude each other; empty where they do not.

        These are the refusals of commit a8c9a09, whose checks were asked (decision 0049).
        """
        try:
            topology(self.topo, self.workers)
        except InputError as error:
            return error.faults[0]
        if self.strategy == "torch_ddp" and self.compressor != "none":
            return "torch_ddp sends gradients as they are"
        if self.workload == "replay" and self.strategy in ("parameter_server", "hybrid"):
            return f"a replay has nothing that {self.strategy} could send or cut"
        if self.strategy == "parameter_server" and self.compressor == "powersgd":
            return "powersgd works among all ranks, not between two"
        if self.strategy == "hybrid" and self.workers % 2:
            return "two stages need an even number of workers"
        if self.strategy == "hybrid" and self.workers == 2 and self.compressor != "none":
            return "one pipeline has no replicas whose gradients a compressor could take"
        return ""

    @property
    def length(self) -> Length:
        """Model and steps that are estimated to train within `LIMIT_S` of `length`."""
        return length(self.topo, self.strategy, self.compressor, self.workers, self.workload)

    @property
    def overrides(self) -> tuple[str, ...]:
        """Arguments of `longhaul run`."""
        found = self.length
        keys = (f"{factor}={getattr(self, factor)}" for factor in FACTORS)
        # a replay computes nothing, so a device has to say how long computing takes
        replayed = ("device=paced", f"workload.model={found.model}") if self.workload == "replay" else ()
        return (*keys, *replayed, f"steps={found.steps}")


def draw(seed: int = SEED) -> list[Drawn]:
    """Return `COUNT` configurations, of which no keys exclude each other.

    Values are spread evenly over each factor. Then a row whose keys exclude each other exchanges a value with another
    row, so that all values stay.
    """
    chance = random.Random(seed)
    columns = {factor: _spread(values, chance) for factor, values in FACTORS.items()}
    while excluded := [index for index in range(COUNT) if _row(columns, index).exclusion]:
        column = columns[chance.choice(list(FACTORS))]
        one, other = chance.choice(excluded), chance.randrange(COUNT)
        column[one], column[other] = column[other], column[one]
        if sum(bool(_row(columns, index).exclusion) for index in range(COUNT)) > len(excluded):
            column[one], column[other] = column[other], column[one]
    return [_row(columns, index) for index in range(COUNT)]


def _spread(values: Sequence[Any], chance: random.Random) -> list[Any]:
    times, more = divmod(COUNT, len(values))
    spread = [*values] * times + chance.sample(list(values), more)
    chance.shuffle(spread)
    return spread


def _row(columns: dict[str, list[Any]], index: int) -> Drawn:
    return Drawn(**{factor: column[index] for factor, column in columns.items()})
