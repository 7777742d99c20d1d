"""A training with all its ranks in one process, for what a compressor does to learning."""

from __future__ import annotations

from collections.abc import Callable

import torch
import yaml

from compressors.base.compressor import Compressor, Context, choose_route
from compressors.base.feedback import with_feedback
from experiments.common import sources
from testbed.core.spec.topology import Topology
from testbed.core.units import parse_size_bytes
from testbed.worker.interfaces.schedule import rate_factor
from testbed.worker.interfaces.workload import Workload
from testbed.worker.laws.cases import catalogue
from testbed.worker.laws.cases.lockstep import drive
from testbed.worker.plugins import compressor_catalogue
from testbed.worker.reduction.buckets import Bucket, Buckets
from testbed.worker.reduction.fusion import grouped
from testbed.worker.training.optimizers import LearningRate
from topologies import two_regions

BUCKET_SIZE = "4 MiB"
"""As the strategy ddp has it by default."""


class LockstepTraining:
    """Synchronous data parallelism as the strategy ddp does it, rank after rank.

    All ranks have the same parameters, so one model serves; each has its own compressor and residuals. Buffers a model
    may have are those of all ranks together.
    """

    def __init__(
        self,
        workload: Workload,
        make: Callable[[], Compressor],
        topology: Topology,
        *,
        seed: int,
        batch_size: int,
        steps: int,
    ) -> None:
        """
        Args:
            topology: of as many workers as there are to be ranks; routes follow from its slowest hop.
            steps: Number of steps of the whole training, which schedules of learning rates follow.
        """
        self.workload, self.seed, self.batch_size, self.steps = workload, seed, batch_size, steps
        self.world_size = len(topology.nodes)
        self.model = workload.model(seed)
        self._alpha_s, self._beta_s_byte = topology.slowest_hop
        self._ranks = [with_feedback(make()) for _ in range(self.world_size)]
        # Each takes of the optimizer what is its own; that of the last one steps.
        for rank in self._ranks:
            given = workload.optimizer(self.model.parameters())
            self._optimizer = rank.adopt(given)
        self._rate = LearningRate(given)
        names = {parameter: name for name, parameter in self.model.named_parameters()}
        self._full: list[Bucket] = []
        self._buckets = Buckets(
            grouped(self.model.parameters(), parse_size_bytes(BUCKET_SIZE)), self._full.append, names
        )
        self._step = 0
        self.sent_bytes = 0
        """Of all ranks so far."""

    @property
    def taken(self) -> int:
        """Number of steps so far."""
        return self._step

    @property
    def dense_bytes(self) -> int:
        """What all ranks would send in one step without a compressor."""
        return 2 * (self.world_size - 1) * sum(bucket.flat.nbytes for bucket in self._buckets.buckets)

    def step(self) -> float:
        """The mean loss of the ranks' batches, before the step."""
        self._rate.set(rate_factor(self.workload, self._step, self.steps))
        gradients: list[list[torch.Tensor]] = []
        losses = []
        for rank in range(self.world_size):
            batch = self.workload.batch(
                self._step, rank=rank, world_size=self.world_size, batch_size=self.batch_size, seed=self.seed
            )
            self._buckets.reset()
            self._full.clear()
            loss = self.workload.loss(self.model, batch)
            loss.backward()
            self._buckets.flush()
            losses.append(float(loss.detach()))
            gradients.append([bucket.flat.clone() for bucket in self._full])
        for index, bucket in enumerate(self._buckets.buckets):
            bucket.flat.copy_(self._reduced(bucket, [each[index] for each in gradients]))
        self._optimizer.step()
        self._step += 1
        return sum(losses) / len(losses)

    def evaluate(self) -> float:
        self.model.eval()
        with torch.no_grad():
            return self.workload.evaluate(self.model)

    def _reduced(self, bucket: Bucket, tensors: list[torch.Tensor]) -> torch.Tensor:
        alpha_s, beta_s_byte = self._alpha_s, self._beta_s_byte
        route = choose_route(
            self._ranks[0],
            bucket.layout,
            self.world_size,
            alpha_s=alpha_s,
            beta_s_byte=beta_s_byte,
            step=self._step,
        )
        contexts = [
            Context(
                layout=bucket.layout,
                route=route,
                seed=self.seed,
                step=self._step,
                rank=rank,
                world_size=self.world_size,
                alpha_s=alpha_s,
                beta_s_byte=beta_s_byte,
            )
            for rank in range(self.world_size)
        ]
        parts = zip(self._ranks, tensors, contexts, strict=True)
        self.sent_bytes += drive([rank.rounds(tensor, context, out=tensor) for rank, tensor, context in parts])
        return tensors[0]


def of_defaults(workload: str, compressor: str, workers: int, seed: int) -> LockstepTraining:
    """Return a training with the defaults of both parts, and routes as on `wan100m`.

    Raises:
        ValueError: The compressor does not work with the workload's optimizer.
    """
    settings = yaml.safe_load((sources.CONF / "workload" / f"{workload}.yaml").read_text())
    usual = settings.pop("run")
    link = yaml.safe_load((sources.CONF / "topo" / "wan100m.yaml").read_text())
    link.pop("_target_")
    link.pop("run", None)
    torch.set_num_threads(1)  # two trainings side by side are the better use of two cores
    return LockstepTraining(
        compressor_catalogue.built(settings.pop("_target_"), settings),
        catalogue.case(compressor_catalogue.part(compressor)).make,
        two_regions.build(workers=workers, **link),
        seed=seed,
        batch_size=usual["batch_size"],
        steps=usual["steps"],
    )
