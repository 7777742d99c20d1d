"""What a run asks of secure sums: how many may collude, how many may drop out, and how finely numbers are rounded."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from testbed.core.declaration import checked
from testbed.core.kinds import Choice, Whole
from testbed.core.parameters import Fraction, Positive
from testbed.worker.methods.federated.secure_aggregation.fixed_point import FixedPoint
from testbed.worker.methods.federated.secure_aggregation.mask_code import DEVIATING, MAX_CLIENTS, SERVERS, MaskCode


@checked
@dataclass(frozen=True, kw_only=True)
class Secure:
    """The server learns sums of its workers' updates, and no single one: LightSecAgg (`secure_sum`).

    Args:
        privacy: Workers that, with the server, learn only sums (T).
        dropouts: Workers that may drop out of a round (D). A round that lost more has no sum, and fails.
        step: Quantisation step. A sum of N is off by N step / 2 at most.
        largest: Largest magnitude of an element; a worker with a larger one drops out of the round.
        server: Assumed behaviour of the server. See
            `testbed.worker.methods.federated.secure_aggregation.mask_code.MaskCode`.
        drop: Share of workers that drop out, to measure the cost. Rounded down, others in each round: they give shares
            and then no update, say so, and the server does not wait for them.

    Raises:
        ValueError: a parameter is out of its range; all of them, one a line.
    """

    privacy: Annotated[int, Whole(1, MAX_CLIENTS)] = 1
    dropouts: Annotated[int, Whole(0, MAX_CLIENTS)] = 0
    step: Positive = 1e-6
    largest: Positive = 8.0
    server: Annotated[str, Choice(SERVERS)] = DEVIATING
    drop: Fraction = 0.0

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
