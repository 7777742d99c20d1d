"""Steps of synchronous data parallelism as they pass in time, on every rank."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from testbed.analysis.simulator.collectives import HALF
from testbed.analysis.simulator.issuing import Carriers, Issued
from testbed.analysis.simulator.network import Network, Times
from testbed.analysis.simulator.plan import BucketPlan, StepPlan

_MOST_STEPS = 8
_ALIKE = 1e-4
"""Steps that differ by less are alike: ranks that receive over the WAN lag behind after the first, and keep to it."""


@dataclass(frozen=True)
class StepTimes:
    """Of a step once steps are alike, on average over ranks."""

    step_s: float
    first_step_s: float
    exposed_s: float
    """Waiting for collectives."""


@dataclass
class _Job:
    bucket: BucketPlan
    issued: Issued
    round: int = 1


class _Rank:
    """All ranks' main threads, where a step ends with its update."""

    def __init__(self, plan: StepPlan, network: Network) -> None:
        self.plan, self.carriers = plan, Carriers(network, plan.algorithm)
        self.now_s: Times = np.zeros(network.size)
        self.waited_s: Times = np.zeros(network.size)

    def step(self) -> None:
        jobs = self._backward(self.now_s + self.plan.before_s)
        while jobs:
            job = jobs.popleft()
            self._wait(job.issued)
            self.now_s = self.now_s + job.bucket.codec_s[job.round]
            if job.round < len(job.bucket.collectives):
                following = job.bucket.collectives[job.round]
                job.issued = self.carriers.issue(following.kind, following.size_bytes, self.now_s)
                job.round += 1
                jobs.append(job)
        self.now_s = self.now_s + self.plan.after_s

    def _backward(self, begin_s: Times) -> deque[_Job]:
        jobs: deque[_Job] = deque()
        compressed_s = 0.0
        for bucket in self.plan.buckets:
            compressed_s += bucket.codec_s[0]
            if bucket.collectives:
                first, at_s = bucket.collectives[0], begin_s + bucket.ready_s + compressed_s
                kind = HALF if self.plan.is_halved else first.kind
                jobs.append(_Job(bucket, self.carriers.issue(kind, first.size_bytes, at_s)))
        self.now_s = begin_s + self.plan.backward_s + compressed_s
        return jobs

    def _wait(self, issued: Issued) -> None:
        end_s = np.maximum(self.now_s, self.carriers.end_s(issued))
        self.waited_s = self.waited_s + end_s - self.now_s
        self.now_s = end_s


class _HalvedRank(_Rank):
    """All ranks' main threads, where forward waits for the second half of each bucket and updates it then."""

    def __init__(self, plan: StepPlan, network: Network) -> None:
        super().__init__(plan, network)
        self._second: list[Issued] = []
        """Halves of the last step's buckets, in the order of forward."""

    def step(self) -> None:
        forward = list(reversed(self.plan.buckets))
        elements = sum(bucket.elements for bucket in forward)
        done_s = 0.0
        for bucket, issued in zip(forward, self._second, strict=False):
            self.now_s = self.now_s + bucket.needed_s - done_s
            done_s = bucket.needed_s
            self._wait(issued)
            self.now_s = self.now_s + bucket.codec_s[-1] + self.plan.after_s * bucket.elements / elements
        self._backward(self.now_s + self.plan.before_s - done_s)
        sizes = [bucket.collectives[0].size_bytes for bucket in forward]
        self._second = [self.carriers.issue(HALF, size, self.now_s) for size in sizes]


def follow(plan: StepPlan, network: Network) -> StepTimes:
    """Until steps are alike."""
    rank = (_HalvedRank if plan.is_halved else _Rank)(plan, network)
    ended_s, waited_s = [0.0], [0.0]
    while not _are_alike(ended_s) and len(ended_s) <= _MOST_STEPS:
        if network.size > 1:
            rank.step()
        else:
            rank.now_s = rank.now_s + plan.compute_s
        ended_s.append(float(rank.now_s.mean()))
        waited_s.append(float(rank.waited_s.mean()))
    return StepTimes(ended_s[-1] - ended_s[-2], ended_s[1], waited_s[-1] - waited_s[-2])


def _are_alike(ended_s: list[float]) -> bool:
    if len(ended_s) < 3:
        return False
    before_s, last_s = ended_s[-2] - ended_s[-3], ended_s[-1] - ended_s[-2]
    return abs(last_s - before_s) <= _ALIKE * last_s
