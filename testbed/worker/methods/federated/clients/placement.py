"""Which worker runs which clients, one after another, in a federated round: the longest first. Arithmetic alone.

After Tang et al., "FedML Parrot: A Scalable Federated Learning System via Heterogeneity-aware Scheduling on Sequential
and Hierarchical Training", arXiv:2303.01778: a client's time is linear in its samples, its two numbers are fitted to
what each worker has measured, and clients are placed by them. Differs from the paper: neither number is ever below 0;
a worker that has measured nothing yet goes by what all the others have.

Clients and workers are numbered from 0. `samples` holds one number for each client, `times` one line for each worker,
`owners` a worker for each client.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.core.parameters import number, raise_all, whole
from testbed.core.spec.topology import workers_per_region


@dataclass(frozen=True)
class ClientTime:
    """Of one client on one worker, start_s + sample_s * samples.

    Raises:
        ValueError: a number is below 0 or not finite, or both are 0; all of it, one a line.
    """

    start_s: float
    """Whatever the samples (a)."""
    sample_s: float
    """Of each sample (b)."""

    def __post_init__(self) -> None:
        raise_all(
            number("start_s", self.start_s, least=0, below=math.inf),
            number("sample_s", self.sample_s, least=0, below=math.inf),
        )
        raise_all(None if self.start_s or self.sample_s else "start_s=0, sample_s=0: a client takes some time")

    def of(self, samples: int) -> float:
        """Seconds."""
        return self.start_s + self.sample_s * samples

    @classmethod
    def fitted(cls, observed: Iterable[tuple[int, float]]) -> ClientTime:
        """By least squares, of all lines neither of whose numbers is below 0.

        Where all clients have had equally many samples, or only one has been seen, nothing tells the two numbers apart:
        the line goes through 0.

        Args:
            observed: (samples, seconds) of one client or more.
        """
        points = list(observed)
        count, samples, seconds = len(points), sum(s for s, _ in points), sum(t for _, t in points)
        squares = sum(s * s for s, _ in points)
        products = sum(s * t for s, t in points)
        spread = count * squares - samples * samples  # whole numbers: 0 exactly if all are alike
        through_0 = cls(0.0, products / squares)
        if spread == 0:
            return through_0
        slope = (count * products - samples * seconds) / spread
        start_s = (seconds - slope * samples) / count
        # a sum of squares is convex: where its least lies beyond a border, the least of the rest lies on that border
        if slope < 0:
            return cls(seconds / count, 0.0)
        return cls(start_s, slope) if start_s >= 0 else through_0


class ClientTimes:
    """What clients have taken on each worker, of which the last `window` count.

    Raises:
        ValueError: a number is out of its range; all of them, one a line.
    """

    def __init__(self, workers: int, window: int = 64) -> None:
        raise_all(whole("workers", workers, 1), whole("window", window, 2))
        self._observed: list[deque[tuple[int, float]]] = [deque(maxlen=window) for _ in range(workers)]

    def observe(self, worker: int, samples: int, elapsed_s: float) -> None:
        """Of one client that has run on `worker`."""
        raise_all(
            whole("worker", worker, 0, len(self._observed) - 1),
            whole("samples", samples, 1),
            number("elapsed_s", elapsed_s, above=0, below=math.inf),
        )
        self._observed[worker].append((samples, elapsed_s))

    def fitted(self) -> list[ClientTime] | None:
        """Of each worker; None: nothing has been measured on any, so only samples are known."""
        everything = [point for observed in self._observed for point in observed]
        if not everything:
            return None
        return [ClientTime.fitted(observed or everything) for observed in self._observed]

    def state_dict(self) -> dict[str, Any]:
        return {"observed": [list(observed) for observed in self._observed]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """
        Raises:
            ValueError: the state is of another number of workers.
        """
        observed = state["observed"]
        if len(observed) != len(self._observed):
            raise ValueError(f"a state of {len(observed)} workers, but there are {len(self._observed)}; measure again")
        for ours, theirs in zip(self._observed, observed, strict=True):
            ours.clear()
            ours.extend((samples, elapsed_s) for samples, elapsed_s in theirs)


def longest_first(samples: Sequence[int], times: Sequence[ClientTime]) -> list[int]:
    """The worker of each client: the one with the most samples first, each to where it would end soonest; of equals to
    the lowest.

    With no `start_s` workers are uniform machines, and this is the rule of Gonzalez, Ibarra and Sahni, "Bounds for LPT
    Schedules on Uniform Processors", SIAM J. Comput. 6(1), 1977. The last of m workers then ends at most
    min(2m / (m + 1), 1 + 1 / √3) times as late as with the best placement; the second bound is that of Kovács, "New
    Approximation Bounds for LPT Scheduling", Algorithmica 57, 2010.

    Raises:
        ValueError: there is no client or no worker, or a client has no sample; all of it, one a line.
    """
    raise_all(*_faults(samples, times))
    owners, loads = [0] * len(samples), [0.0] * len(times)
    for client in sorted(range(len(samples)), key=lambda index: -samples[index]):  # stable: of equals the first
        ends = [load + time.of(samples[client]) for load, time in zip(loads, times, strict=True)]
        owners[client] = worker = ends.index(min(ends))
        loads[worker] = ends[worker]
    return owners


def equal_split(clients: int, workers: int) -> list[int]:
    """The worker of each client where all get equally many, in order; the first ones more where it does not divide.

    Raises:
        ValueError: a number is out of its range, or there are fewer clients than workers.
    """
    raise_all(whole("clients", clients, 1), whole("workers", workers, 1))
    counts = workers_per_region(clients, workers)
    return [worker for worker, count in enumerate(counts) for _ in range(count)]


def _faults(samples: Sequence[int], times: Sequence[ClientTime]) -> Iterator[str | None]:
    yield None if samples else "samples: there is no client; give one or more"
    yield None if times else "times: there is no worker; give one or more"
    for client, one in enumerate(samples):
        yield whole(f"samples[{client}]", one, 1)
