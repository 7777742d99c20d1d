"""Stragglers: how many times longer a client lasts than its training takes, drawn anew whenever it is run."""

from __future__ import annotations

import math
import random

from testbed.core.parameters import number, raise_all, whole

_MAX_SIGMA = 5.0


class Slowness:
    """max(1, exp(sigma z)), z normal: lognormal factors of median 1, of which those below 1 are 1, since no client is
    faster than the worker that runs it. Their mean is 1/2 + exp(sigma^2 / 2) Phi(sigma): 1.89 with a sigma of 1.

    The same for the same seed, client and run, whoever runs it and whatever was before.

    Args:
        sigma: 0: all are 1.
        seed: of the run.

    Raises:
        ValueError: a parameter is out of its range; all of them, one a line.
    """

    def __init__(self, *, sigma: float = 0.0, seed: int = 0) -> None:
        raise_all(sigma_fault("sigma", sigma), whole("seed", seed, 0))
        self._sigma, self._seed = sigma, seed

    def factor(self, client: int, run: int) -> float:
        """
        Args:
            run: how often the client was run before, or in which round it is.
        """
        chance = random.Random(f"slowness {self._seed} {client} {run}")
        return max(1.0, math.exp(self._sigma * chance.gauss(0.0, 1.0)))


def sigma_fault(name: str, value: object) -> str | None:
    return number(name, value, least=0, most=_MAX_SIGMA)
