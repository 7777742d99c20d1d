"""Stragglers: how many times longer a client lasts than its training takes, drawn anew whenever it is run."""

from __future__ import annotations

import math
import random
from typing import Annotated

from testbed.core.declaration import Declared
from testbed.core.kinds import Number
from testbed.core.parameters import CountOrZero

_MAX_SIGMA = 5.0


Sigma = Annotated[float, Number(least=0, most=_MAX_SIGMA)]


class Slowness(Declared):
    """max(1, exp(sigma z)), z normal: lognormal factors of median 1, of which those below 1 are 1, since no client is
    faster than the worker that runs it. Their mean is 1/2 + exp(sigma^2 / 2) Phi(sigma): 1.89 with a sigma of 1.

    The same for the same seed, client and run, whoever runs it and whatever was before.

    Args:
        sigma: 0: all are 1.
        seed: of the run.

    Raises:
        ValueError: a parameter is out of its range; all of them, one a line.
    """

    def __init__(self, *, sigma: Sigma = 0.0, seed: CountOrZero = 0) -> None:
        self._sigma, self._seed = sigma, seed

    def factor(self, client: int, run: int) -> float:
        """
        Args:
            run: how often the client was run before, or in which round it is.
        """
        chance = random.Random(f"slowness {self._seed} {client} {run}")
        return max(1.0, math.exp(self._sigma * chance.gauss(0.0, 1.0)))
