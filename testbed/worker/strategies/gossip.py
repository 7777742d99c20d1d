from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import torch
from torch import Tensor

from compressors.base.compressor import Compressor, Context, Layout
from testbed.core.costs.collective import ranks_of_regions
from testbed.core.device.profile import Collective
from testbed.core.kinds import Choice, Number
from testbed.core.parameters import Count
from testbed.core.record.events.gossip import ConsensusDistance, Mixing
from testbed.core.spec.topology import Topology
from testbed.worker.interfaces.strategy import ExtraWork, StepStats, Strategy, WorkerContext
from testbed.worker.interfaces.workload import Batch, Workload, parameters_crc32, trained
from testbed.worker.interfaces.workload_capabilities import DrawnTraining, draw_change
from testbed.worker.methods.gossip import mixing_matrix
from testbed.worker.methods.gossip.consensus import Averaging, Choco, Consensus
from testbed.worker.methods.gossip.neighbors import Neighbourhood

LOSSY_STEP_SIZE = 0.1


class Gossip(Strategy):
    """Replicas, one a worker, that neighbours on a graph mix every `local_steps` steps; no server, no all-reduce.

    Without a compressor D-PSGD: x_i = sum_j W_ij x_j. Lian et al., "Can Decentralized Algorithms Outperform Centralized
    Algorithms? A Case Study for Decentralized Parallel Stochastic Gradient Descent", NeurIPS 2017, arXiv:1705.09056.
    With one CHOCO-SGD: Koloskova, Stich, Jaggi, "Decentralized Stochastic Optimization and Gossip Algorithms with
    Compressed Communication", ICML 2019, arXiv:1902.00340; Koloskova, Lin, Stich, Jaggi, "Decentralized Deep Learning
    with Arbitrary Communication Compression", ICLR 2020, arXiv:1907.09356. Both in
    `testbed.worker.methods.gossip.consensus`, with the
    weights of `testbed.worker.methods.gossip.mixing_matrix`.
    Differs from the papers: D-PSGD too mixes after the step (the first paper mixes what a replica was before it, and
    computes the gradient meanwhile); `local_steps`; the workload's optimizer, whose momenta stay local; public copies
    begin at the common initial parameters, not at zero.

    With the complete graph, one local step, no compressor and SGD without momentum it is data parallelism.
    What is evaluated is rank 0's own replica at that step. Replicas do not agree for it, so that a run which is
    evaluated more often is the same run. After the last step all replicas become their exact mean, by one all-reduce
    that is reported apart, and each tells how far from it it was (event `consensus`).
    A rank waits for its neighbours alone. In a partition those at the border wait, and soon all; one longer than
    `timeout_s` fails the run, which names the rank and the link that is down.
    Cost: of each worker one payload to each neighbour every `local_steps` steps; with a compressor 8 bytes a parameter.

    Args:
        graph: Graph of neighbours. See `testbed.worker.methods.gossip.mixing_matrix`.
        local_steps: Steps between exchanges.
        consensus_step_size: Step towards the neighbours' mean (gamma). null: see `default_step_size`.

    Raises:
        ValueError: a parameter is not one of these.
    """

    carries_compressor = exchanges_models = sends_by_comm = True

    def __init__(
        self,
        *,
        graph: Annotated[str, Choice(mixing_matrix.GRAPHS)] = mixing_matrix.RING,
        local_steps: Count = 1,
        consensus_step_size: Annotated[float, Number(above=0, most=1)] | None = None,
    ) -> None:
        self.graph, self.local_steps, self.consensus_step_size = graph, local_steps, consensus_step_size
        self.cycle_steps = local_steps

    def place(self, topology: Topology) -> None:
        self._regions = ranks_of_regions(topology)
        self._neighbours = mixing_matrix.neighbours(self.graph, self._regions)

    def validate(self, compressor: Compressor, workload: Workload, world_size: int) -> Iterator[str]:
        name, traits = type(compressor).__name__, compressor.traits
        instead = "use one that encodes for a receiver and is a contraction, as topk or int8, or strategy=ddp"
        if traits.owns != "nothing":
            yield f"strategy=gossip: {name} takes over {traits.owned}, which replicas need; {instead}"
        if not workload.computes and not isinstance(workload, DrawnTraining):
            yield "strategy=gossip: the workload computes nothing, and so nothing would be exchanged; use one that does"
        if not (traits.point_to_point and traits.averages):
            yield f"strategy=gossip: {name} works among all ranks at once, and a rank has neighbours alone; {instead}"
        elif traits.contraction is None and traits.feedback == "harmful":
            yield (
                f"strategy=gossip: {name} may err by more than what it is given, so that public copies would run away;"
                f" {instead}"
            )
        if compressor.feedback not in ("auto", "off"):
            yield (
                f"strategy=gossip: {name} with feedback={compressor.feedback}: what was left out is in the next"
                " difference anyway, and would be sent twice; use compressor.feedback=auto"
            )

    def bind(self, context: WorkerContext) -> None:
        self._context, self._step = context, -1
        self._parameters = trained(context.model)
        names = {parameter: name for name, parameter in context.model.named_parameters()}
        shapes = tuple(tuple(p.shape) for p in self._parameters)
        self._layout = Layout(shapes, names=tuple(names[p] for p in self._parameters))
        weights = mixing_matrix.metropolis_weights(self._neighbours)
        self._consensus = self._made(weights[context.rank])
        if context.rank == 0:
            context.record(self._graph_event(weights))
        context.comm.require_equal(parameters_crc32(context.model), "the checksum of the initial parameters")

    def step(self, batch: Batch, step: int) -> StepStats:
        context, clock = self._context, self._context.clock
        context.optimizer.zero_grad()
        with clock.phase("forward", clock.times.forward_s):
            loss = context.workload.loss(context.model, batch)
            if (step + 1) % self.local_steps == 0:
                key = {"seed": context.spec.seed, "rank": context.rank, "round_": step, "steps": self.local_steps}
                draw_change(context.workload, context.model, self._parameters, **key)
        with clock.phase("backward", clock.times.backward_s):
            loss.backward()
        with clock.phase("optimizer", clock.times.optimizer_s):
            context.optimizer.step()
        if (step + 1) % self.local_steps == 0:
            self._exchange(step)
        return StepStats(float(loss.detach()))

    @torch.no_grad()
    def finish(self) -> None:
        """All replicas become their mean."""
        context, clock = self._context, self._context.clock
        with clock.phase("optimizer"):
            replica = self._flat()
            total = replica.clone()
        (total,) = context.comm.all_reduce(total).wait()
        with clock.phase("optimizer"):
            mean = total.div_(context.world_size)
            self._put(mean)
            distance = float((replica - mean).norm() / mean.norm().clamp_min(torch.finfo(mean.dtype).tiny))
        context.record(ConsensusDistance(distance=distance))

    def extra_work(self) -> ExtraWork:
        context = self._context
        others = context.world_size - 1
        if not others:
            return ExtraWork()
        payload_bytes = context.compressor.payload_bytes(self._layout, self._encoding(step=0))
        # of an all-to-all among all ranks, the input of each with which they send as much together
        size_bytes = round(sum(map(len, self._neighbours)) / others * payload_bytes)
        return ExtraWork(collectives=(Collective(kind="all_to_all", size_bytes=size_bytes),))

    def _made(self, weights: dict[int, float]) -> Consensus:
        context = self._context
        compressor, clock = context.compressor, context.clock
        given = self.consensus_step_size
        self._gamma = default_step_size(compressor) if given is None else given
        near = Neighbourhood(context.comm, clock, context.spec.topology, self._neighbours[context.rank])
        if compressor.traits.verbatim:
            return Averaging(near, weights, self._gamma, clock)
        return Choco(near, weights, self._gamma, clock, compressor=compressor, first=self._flat())

    def _graph_event(self, weights: mixing_matrix.Weights) -> Mixing:
        return Mixing(
            graph=self.graph,
            edges=len(mixing_matrix.edges(self._neighbours)),
            wan_edges=len(mixing_matrix.wan_edges(self._neighbours, self._regions)),
            most_neighbours=max(map(len, self._neighbours)),
            spectral_gap=mixing_matrix.spectral_gap(weights),
            consensus_step_size=self._gamma,
        )

    @torch.no_grad()
    def _exchange(self, step: int) -> None:
        clock = self._context.clock
        with clock.phase("optimizer"):
            replica = self._flat()
        self._consensus.mix(replica, self._encoding(step))
        with clock.phase("optimizer"):
            self._put(replica)

    def _encoding(self, step: int) -> Context:
        context = self._context
        alpha_s, beta_s_byte = context.spec.topology.slowest_hop
        return Context(
            layout=self._layout,
            route=None,
            seed=context.spec.seed,
            step=step,
            rank=context.rank,
            world_size=context.world_size,
            alpha_s=alpha_s,
            beta_s_byte=beta_s_byte,
        )

    def _flat(self) -> Tensor:
        """A copy."""
        return torch.cat([p.detach().view(-1) for p in self._parameters])

    def _put(self, flat: Tensor) -> None:
        for parameter, piece in zip(self._parameters, flat.split(self._layout.numels), strict=True):
            parameter.copy_(piece.view_as(parameter))


def default_step_size(compressor: Compressor) -> float:
    """Return 1 for a compressor that loses little, 0.1 for one that needs error feedback elsewhere.

    Sparse ones and signs need it: with 1 the distance of replicas grew in a ring of four workers with `digits` and
    topk.
    """
    return LOSSY_STEP_SIZE if compressor.traits.feedback in ("required", "recommended") else 1.0
