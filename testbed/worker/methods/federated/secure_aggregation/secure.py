"""What a run asks of secure sums: how many may collude, how many may drop out, and how finely numbers are rounded."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from testbed.core.parameters import choice, fraction, number, raise_all, whole
from testbed.worker.methods.federated.secure_aggregation.fixed_point import FixedPoint
from testbed.worker.methods.federated.secure_aggregation.mask_code import DEVIATING, MAX_CLIENTS, SERVERS, MaskCode


@dataclass(frozen=True, kw_only=True)
class Secure:
    """The server learns sums of its workers' updates, and no single one: LightSecAgg (`secure_sum`).

    Args:
        privacy: T: so many workers and the server together learn of the others' updates their sum alone.
        dropouts: D: so many of the run's N workers may be missing in a round; one that lost more has no sum, and fails.
        step: between two values that an element may have. A sum of N is off by N step / 2 at most.
        largest: magnitude of an element; a worker that has a larger one drops out of that round.
        server: deviating or curious, as of `testbed.worker.methods.federated.secure_aggregation.mask_code.MaskCode`.
        drop: share of the workers, rounded down, that give shares and then no update, others in each round: so that
            what dropouts cost can be measured. They say so, and nobody waits for them.

    Raises:
        ValueError: a parameter is out of its range; all of them, one a line.
    """

    privacy: int = 1
    dropouts: int = 0
    step: float = 1e-6
    largest: float = 8.0
    server: str = DEVIATING
    drop: float = 0.0

    def __post_init__(self) -> None:
        raise_all(
            whole("privacy", self.privacy, 1, MAX_CLIENTS),
            whole("dropouts", self.dropouts, 0, MAX_CLIENTS),
            number("step", self.step, above=0, below=float("inf")),
            number("largest", self.largest, above=0, below=float("inf")),
            choice("server", self.server, SERVERS),
            fraction("drop", self.drop),
        )

    def code(self, workers: int) -> MaskCode:
        """Of so many workers.

        Raises:
            ValueError: there are too few; all that is wrong, one a line.
        """
        return MaskCode(clients=workers, privacy=self.privacy, needed=workers - self.dropouts, server=self.server)

    def fixed_point(self, workers: int) -> FixedPoint:
        """
        Raises:
            ValueError: sums of so many could wrap.
        """
        return FixedPoint(clients=workers, largest=self.largest, step=self.step)

    def dropped(self, seed: int, round_: int, workers: int) -> list[int]:
        """Who gives no update in that round, as asked: the same on all ranks."""
        chance = random.Random(f"dropouts {seed} {round_}")
        return sorted(chance.sample(range(workers), self._drops(workers)))

    def faults(self, workers: int) -> Iterator[str]:
        """What is wrong with it for so many workers."""
        for make in (self.code, self.fixed_point):
            try:
                make(workers)
            except ValueError as error:
                found = f"privacy={self.privacy} dropouts={self.dropouts} of {workers} workers: "
                yield from (found + line if make == self.code else line for line in str(error).splitlines())
        if (drops := self._drops(workers)) > self.dropouts:
            yield f"drop={self.drop:g}: {drops} of {workers} workers in each round, and dropouts={self.dropouts} may"

    def _drops(self, workers: int) -> int:
        return math.floor(round(self.drop * workers, 6))
