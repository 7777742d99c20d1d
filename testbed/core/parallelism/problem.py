"""What a plan is made for: a model layer by layer, the links between ranks, their memory, and the batch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from testbed.core.parameters import choice, number, raise_all, whole

RING, HIERARCHICAL = "ring", "hierarchical"
ALL_REDUCES = (RING, HIERARCHICAL)
Matrix = tuple[tuple[float, ...], ...]
STEP_OF_FORWARD = 3
"""Forward and backward together, in forwards, where nothing else was measured."""
FORWARD_SHARE = 1 / STEP_OF_FORWARD
"""Part of a step that forward takes then: backward takes twice as long."""


@dataclass(frozen=True)
class LayerProfile:
    """Of one layer; embeddings and the head are layers like others.

    Raises:
        ValueError: a number is out of its range; all of them, one a line.
    """

    name: str
    forward_s: Mapping[int, float]
    """Of one sample, by the tensor-parallel degree, its communication included."""
    parameter_bytes: int
    """Of the whole layer. A rank holds 1 / tp of them."""
    activation_bytes: int
    """What it passes on, of one sample, whatever tp."""
    stored_bytes: int | None = None
    """What is kept for backward, of one sample, of which a rank holds 1 / tp; None: as much as it passes on."""
    block: bool = True
    """One of the blocks that a heuristic divides evenly, as embeddings and the head are not."""
    call_s: Mapping[int, float] = field(default_factory=dict)
    """Of one forward of however many samples, besides, by the tensor-parallel degree; 0 where it is not named."""
    forward_share: float = FORWARD_SHARE
    """Part of forward and backward together that is forward; `forward_s` stays a third of both."""

    def __post_init__(self) -> None:
        raise_all(
            number(f"{self.name}: forward_share", self.forward_share, least=0, below=1),
            None if self.forward_s else f"{self.name}: forward_s is empty; give it for tp=1 at least",
            *(whole(f"{self.name}: tp", tp, 1) for tp in self.forward_s),
            *(number(f"{self.name}: forward_s", time, least=0, below=math.inf) for time in self.forward_s.values()),
            *(number(f"{self.name}: call_s", time, least=0, below=math.inf) for time in self.call_s.values()),
            whole(f"{self.name}: parameter_bytes", self.parameter_bytes, 0),
            whole(f"{self.name}: activation_bytes", self.activation_bytes, 0),
            None if self.stored_bytes is None else whole(f"{self.name}: stored_bytes", self.stored_bytes, 0),
        )

    @property
    def kept_bytes(self) -> int:
        return self.activation_bytes if self.stored_bytes is None else self.stored_bytes

    def samples_s(self, tp: int, samples: int) -> float:
        """Of one forward of so many."""
        return self.call_s.get(tp, 0.0) + samples * self.forward_s[tp]


@dataclass(frozen=True)
class LinkMatrix:
    """Between ranks, as probed: a message of m bytes from i to j, alone, takes alpha_s[i][j] + 8 m / rate_bit_s[i][j].

    Messages between the same two regions at the same time divide the rate; inside a region they do not.

    Raises:
        ValueError: matrices are not square, of one size, and of numbers in their range; all of it, one a line.
    """

    regions: tuple[str, ...]
    """Of each rank. One region is one machine, or what else has fast links inside."""
    alpha_s: Matrix
    """One way. The diagonal is not looked at."""
    rate_bit_s: Matrix

    def __post_init__(self) -> None:
        raise_all(None if self.regions else "regions: there is no rank; give one region for each")
        raise_all(*self._shape_faults("alpha_s", self.alpha_s), *self._shape_faults("rate_bit_s", self.rate_bit_s))
        raise_all(*self._entry_faults())

    @property
    def ranks(self) -> int:
        return len(self.regions)

    @cached_property
    def members(self) -> dict[str, tuple[int, ...]]:
        """The ranks of each region."""
        found: dict[str, tuple[int, ...]] = {}
        for rank, region in enumerate(self.regions):
            found[region] = (*found.get(region, ()), rank)
        return found

    def shared(self, i: int, j: int) -> tuple[str, str] | None:
        """What a message from i to j shares with others: the link from region to region; None: nothing."""
        a, b = self.regions[i], self.regions[j]
        return None if a == b else (a, b)

    def message_s(self, i: int, j: int, size_bytes: float) -> float:
        """Alone."""
        return self.alpha_s[i][j] + 8 * size_bytes / self.rate_bit_s[i][j]

    @classmethod
    def of_regions(
        cls, regions: Sequence[str], alpha_s: Callable[[str, str], float], rate_bit_s: Callable[[str, str], float]
    ) -> LinkMatrix:
        """Where only regions count, of which a function tells, given a link's two."""

        def matrix(entry: Callable[[str, str], float]) -> Matrix:
            return tuple(tuple(entry(a, b) for b in regions) for a in regions)

        return cls(tuple(regions), matrix(alpha_s), matrix(rate_bit_s))

    def _entry_faults(self) -> Iterator[str | None]:
        for i, j in itertools.permutations(range(self.ranks), 2):
            yield number(f"alpha_s[{i}][{j}]", self.alpha_s[i][j], least=0, below=math.inf)
            yield number(f"rate_bit_s[{i}][{j}]", self.rate_bit_s[i][j], above=0, below=math.inf)

    def _shape_faults(self, name: str, matrix: Matrix) -> Iterator[str]:
        if [len(row) for row in matrix] != [self.ranks] * self.ranks:
            sizes = [len(row) for row in matrix]
            yield f"{name}: rows of {sizes}; must be {self.ranks} x {self.ranks}, as there are regions"


@dataclass(frozen=True, kw_only=True)
class Problem:
    """
    Raises:
        ValueError: something is out of its range or missing; all of it, one a line.
    """

    layers: tuple[LayerProfile, ...]
    links: LinkMatrix
    global_batch: int
    """Samples of a step, of all replicas."""
    memory_bytes: tuple[int, ...] | None = None
    """Of each rank's device; None: without limit."""
    optimizer_states: int = 2
    """Copies of the parameters that the optimizer keeps: 0 of plain SGD, 1 with momentum, 2 of Adam."""
    all_reduce: str = RING

    def __post_init__(self) -> None:
        raise_all(
            None if self.layers else "layers: there is none; give one or more",
            whole("global_batch", self.global_batch, 1),
            whole("optimizer_states", self.optimizer_states, 0),
            choice("all_reduce", self.all_reduce, ALL_REDUCES),
            self._memory_fault(),
            None if not self.layers or self.tensor_degrees else "layers: no tp degree has a forward_s in all of them",
        )

    @property
    def world_size(self) -> int:
        return self.links.ranks

    @cached_property
    def tensor_degrees(self) -> tuple[int, ...]:
        """Those that all layers have been profiled with."""
        return tuple(sorted(set.intersection(*(set(layer.forward_s) for layer in self.layers))))

    def _memory_fault(self) -> str | None:
        if self.memory_bytes is None or len(self.memory_bytes) == self.world_size:
            return None
        return f"memory_bytes: {len(self.memory_bytes)} for {self.world_size} ranks; give one for each"
