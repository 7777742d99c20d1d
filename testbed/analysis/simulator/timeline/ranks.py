"""The ranks' main threads as they pass through steps of synchronous data parallelism."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from testbed.analysis.simulator.model.kfac import Group, SecondOrderPlan
from testbed.analysis.simulator.model.network import Network, Times
from testbed.analysis.simulator.model.step_plan import BucketPlan, StepPlan
from testbed.analysis.simulator.timeline.carriers import Carriers, Issued
from testbed.analysis.simulator.timeline.collectives import BROADCAST, HALF, REDUCTION
from testbed.core.costs.collective import NCCL_RING
from testbed.core.device.factored_layer import ELEMENT_BYTES


@dataclass
class _Job:
    bucket: BucketPlan
    issued: Issued
    round: int = 1


class Rank:
    """All ranks' main threads, where a step ends with its update."""

    def __init__(self, plan: StepPlan, network: Network) -> None:
        self.plan, self.carriers = plan, Carriers(network, plan.algorithm)
        self.now_s: Times = np.zeros(network.size)
        self.waited_s: Times = np.zeros(network.size)
        self._jobs: deque[_Job] = deque()

    def step(self) -> None:
        if self.plan.buffers_bytes:
            how = self.plan.algorithm if self.plan.algorithm == NCCL_RING else "gloo"
            self._wait(self.carriers.issue(BROADCAST, self.plan.buffers_bytes, self.now_s, how))
        self._backward(self.now_s + self.plan.before_s)
        self._finish()
        self.now_s = self.now_s + self.plan.after_s

    def average(self) -> None:
        """What follows a step in which parameters are averaged."""
        assert self.plan.average is not None
        self._wait(self.carriers.issue(self.plan.average.kind, self.plan.average.size_bytes, self.now_s))

    def _backward(self, begin_s: Times) -> None:
        compressed_s = 0.0
        for bucket in self.plan.buckets:
            compressed_s += bucket.codec_s[0]
            self._send(bucket, begin_s + bucket.ready_s + compressed_s)
        self.now_s = begin_s + self.plan.backward_s + compressed_s

    def _send(self, bucket: BucketPlan, at_s: Times) -> None:
        """It is compressed."""
        if bucket.collectives:
            first = bucket.collectives[0]
            kind = HALF if self.plan.is_halved else first.kind
            self._jobs.append(_Job(bucket, self.carriers.issue(kind, first.size_bytes, at_s)))

    def _finish(self) -> None:
        """Wait for buckets in their order, round by round."""
        while self._jobs:
            job = self._jobs.popleft()
            self._wait(job.issued)
            self.now_s = self.now_s + job.bucket.codec_s[job.round]
            if job.round < len(job.bucket.collectives):
                following = job.bucket.collectives[job.round]
                job.issued = self.carriers.issue(following.kind, following.size_bytes, self.now_s)
                job.round += 1
                self._jobs.append(job)

    def _wait(self, issued: Issued) -> None:
        end_s = np.maximum(self.now_s, self.carriers.end_s(issued))
        self.waited_s = self.waited_s + end_s - self.now_s
        self.now_s = end_s


class HalvedRank(Rank):
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
        self._jobs.clear()  # first halves pass before the second ones, which the next step waits for
        sizes = [bucket.collectives[0].size_bytes for bucket in forward]
        self._second = [self.carriers.issue(HALF, size, self.now_s) for size in sizes]


class SecondOrderRank(Rank):
    """All ranks' main threads, where factors are computed in forward and backward, and then inverted."""

    def __init__(self, plan: StepPlan, network: Network) -> None:
        super().__init__(plan, network)
        assert plan.second_order is not None
        self._second: SecondOrderPlan = plan.second_order
        self._reductions: list[Issued] = []

    def step(self) -> None:
        second = self._second
        self._compute()
        self._finish()
        if second.traces:
            self._wait(self.carriers.issue("all_reduce", ELEMENT_BYTES * second.traces, self.now_s, "gloo"))
        for reduction in self._reductions:
            self._wait(reduction)
        self._reductions.clear()
        self.now_s = self.now_s + np.array(second.inverting_s)
        broadcasts = [] if second.sends_gradients else self._broadcast()
        self.now_s = self.now_s + second.inverting_everyones_s
        self._wait_for_all(broadcasts)
        self.now_s = self.now_s + np.array(second.preconditioning_s)
        self._wait_for_all(self._broadcast() if second.sends_gradients else [])
        self.now_s = self.now_s + self.plan.after_s

    def _compute(self) -> None:
        """Forward and backward: what is computed besides, and compressed, puts off all that follows."""
        begin_s, besides_s = self.now_s, np.zeros_like(self.now_s)
        buckets, groups = deque(self.plan.buckets), deque(self._second.groups)
        for number, factor in enumerate(self._second.factors):
            while len(self.plan.buckets) - len(buckets) < factor.buckets_before:
                besides_s = self._compress(buckets.popleft(), begin_s, besides_s)
            mine = slice(None) if factor.rank is None else factor.rank
            besides_s[mine] += factor.seconds
            while self._second.is_pipelined and groups and groups[0].last <= number:
                self._reduce(groups.popleft(), begin_s + factor.at_s + besides_s)
        while buckets:
            besides_s = self._compress(buckets.popleft(), begin_s, besides_s)
        self.now_s = begin_s + self.plan.before_s + self.plan.backward_s + besides_s
        while groups:
            self._reduce(groups.popleft(), self.now_s)

    def _compress(self, bucket: BucketPlan, begin_s: Times, besides_s: Times) -> Times:
        """And send; gives what follows is put off by."""
        besides_s = besides_s + bucket.codec_s[0]
        self._send(bucket, begin_s + self.plan.before_s + bucket.ready_s + besides_s)
        return besides_s

    def _reduce(self, group: Group, at_s: Times) -> None:
        size = ELEMENT_BYTES * group.elements
        if group.owner is None:
            self._reductions.append(self.carriers.issue("all_reduce", size, at_s))
        else:
            self._reductions.append(
                self.carriers.issue_chain(REDUCTION, size, at_s, group.owner, self._second.chunk_bytes)
            )

    def _broadcast(self) -> list[Issued]:
        """Everybody's results."""
        return [
            self.carriers.issue_chain(BROADCAST, ELEMENT_BYTES * elements, self.now_s, owner, self._second.chunk_bytes)
            for owner, elements in enumerate(self._second.results)
            if elements
        ]

    def _wait_for_all(self, broadcasts: Sequence[Issued]) -> None:
        for one in broadcasts:
            self._wait(one)
