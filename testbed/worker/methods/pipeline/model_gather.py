"""All of the model where it is wanted whole: at rank 0 to be evaluated or kept, at every rank in the end."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from testbed.core.costs.collective import ranks_of_regions
from testbed.core.parallelism.plan import Plan
from testbed.worker.communication.collectives import chain
from testbed.worker.communication.transport import Peers, wait_all
from testbed.worker.device.clock import WAITING
from testbed.worker.interfaces.strategy import WorkerContext
from testbed.worker.interfaces.workload import trained
from testbed.worker.methods.pipeline.stages import Stage
from testbed.worker.methods.pipeline.tensor_parallel import ShardedLayers, Shards, Split
from testbed.worker.model.pieces import Piece


@dataclass(frozen=True)
class Load:
    """What one rank sends to rank 0, one after another in one message."""

    source: int
    shard: int
    alike: tuple[nn.Parameter, ...]
    """Of the model."""
    splits: tuple[Split, ...]

    @property
    def numels(self) -> list[int]:
        return [*(p.numel() for p in self.alike), *(math.prod(split.shape) for split in self.splits)]


class ModelGather:
    """Of a rank that has `stages` of a plan."""

    def __init__(
        self,
        context: WorkerContext,
        plan: Plan,
        pieces: Sequence[Piece],
        stages: Sequence[Stage],
        shards: Shards | None,
        channel: int,
    ) -> None:
        """
        Args:
            shards: with whom layers are shared; None where plan.tp is 1.
        """
        self._comm, self._clock, self._plan = context.comm, context.clock, plan
        self._trained = trained(context.model)
        self._parts = [part for stage in stages for part in stage.parts if part.part.requires_grad]
        self._splits = _splits(pieces, plan.tp, shards)
        self._near = next(ranks for ranks in ranks_of_regions(context.spec.topology) if 0 in ranks)
        self._loads = list(self._all_loads(pieces))
        self._channel = channel

    def settle(self) -> None:
        """Bring all trained parameters to rank 0; all ranks at once."""
        peers, rank = self._comm.peers(self._channel), self._comm.rank
        for part in self._parts:
            part.split.put(self._plan.coordinates(rank)[2], part.part.detach())
        try:
            if rank == 0:
                self._take(peers)
            else:
                self._give(peers, [load for load in self._loads if load.source == rank])
        except RuntimeError as error:
            raise self._comm.error("bringing the model to rank 0", error) from error

    def spread(self) -> None:
        """Give every rank what rank 0 has."""
        if self._plan.dp == self._comm.world_size:
            return  # all have it
        flat = torch.cat([p.detach().view(-1) for p in self._trained])

        def broadcast(peers: Peers) -> list[Tensor]:
            chain.broadcast(peers, flat)
            return [flat]

        self._comm.submit(f"broadcast of {flat.nbytes} bytes, the model", broadcast).wait()
        for parameter, values in zip(self._trained, flat.split([p.numel() for p in self._trained]), strict=True):
            parameter.data.copy_(values.view_as(parameter))

    def _take(self, peers: Peers) -> None:
        places = [torch.empty(sum(load.numels)) for load in self._loads]
        arriving = [peers.receive(load.source, flat) for load, flat in zip(self._loads, places, strict=True)]
        with self._clock.phase(WAITING):
            wait_all(arriving)
        for load, flat in zip(self._loads, places, strict=True):
            values = iter(flat.split(load.numels))
            for parameter in load.alike:
                parameter.data.copy_(next(values).view_as(parameter))
            for split in load.splits:
                split.put(load.shard, next(values))

    def _give(self, peers: Peers, loads: Sequence[Load]) -> None:
        sending = []
        for load in loads:
            pieces = [p.detach().view(-1) for p in load.alike]
            pieces += [split.taken(load.shard).view(-1) for split in load.splits]
            self._clock.mark()
            end = self._comm.stopwatch.start()
            sending.append((peers.send(0, torch.cat(pieces)), end))
        with self._clock.phase(WAITING):
            for handle, end in sending:
                handle.wait()
                end()

    def _all_loads(self, pieces: Sequence[Piece]) -> Iterator[Load]:
        """In the order in which rank 0 takes them; none that has nothing, and none of its own."""
        plan = self._plan
        here, _, own = plan.coordinates(0)
        for position in range(plan.pp):
            layers = [
                layer
                for stage in range(position, plan.stages, plan.pp)
                for layer in plan.layers_of_stage(stage, len(pieces))
            ]
            learning = [p for layer in layers for p in trained(pieces[layer].module)]
            splits = tuple(self._splits[p] for p in learning if p in self._splits)
            alike = tuple(p for p in learning if p not in self._splits)
            for shard in range(plan.tp):
                if position == here and shard == own:
                    continue
                load = Load(
                    self._source(position, shard),
                    shard,
                    alike if position != here and shard == 0 else (),
                    splits,
                )
                if load.alike or load.splits:
                    yield load

    def _source(self, position: int, shard: int) -> int:
        """Of replicas one near rank 0, else the first."""
        ranks = [self._plan.rank(position, replica, shard) for replica in range(self._plan.dp)]
        return next((rank for rank in ranks if rank in self._near), ranks[0])


def _splits(pieces: Sequence[Piece], degree: int, shards: Shards | None) -> dict[nn.Parameter, Split]:
    """Of all parameters that are shared out, on whatever rank."""
    if shards is None:
        return {}
    sharing = ShardedLayers(degree, 0, shards)
    for piece in pieces:
        if piece.shared is not None:
            piece.shared(sharing)
    return {part.split.whole: part.split for part in sharing.parts}


# What the optimizer keeps, given to every rank: the next plan has others train what this one's ranks did.


def hand_over(context: WorkerContext, optimizer: torch.optim.Optimizer, told: Collection[nn.Parameter]) -> None:
    """Momenta and counts of steps of all trained parameters, float32, in one all-reduce to which of each parameter one
    rank adds what it has, and all others zeros. All ranks at once, after a step.

    Args:
        told: that this rank adds.

    Raises:
        CollectiveError: some rank did not take part.
    """
    parameters, names = trained(context.model), _kept(context)
    sizes = [parameter.numel() if whole else 1 for parameter in parameters for whole in names.values()]
    flat = torch.zeros(sum(sizes))
    places = iter(flat.split(sizes))
    mine = {id(parameter) for parameter in told}
    slots: list[tuple[nn.Parameter, dict[str, Tensor]]] = []
    for parameter in parameters:
        slots.append((parameter, {name: next(places) for name in names}))
        if id(parameter) in mine:
            for name, place in slots[-1][1].items():
                place.copy_(optimizer.state[parameter][name].view(-1))
    context.comm.all_reduce(flat).wait()
    for parameter, found in slots:
        optimizer.state[parameter] = {
            name: values.clone().view(parameter.shape if names[name] else ()) for name, values in found.items()
        }


def _kept(context: WorkerContext) -> dict[str, bool]:
    """What the workload's optimizer keeps of a parameter, by name, and whether it is a value for each of its own."""
    example = nn.Parameter(torch.zeros(2))
    optimizer = context.workload.optimizer([example])
    example.grad = torch.zeros(2)
    optimizer.step()
    return {name: values.shape == example.shape for name, values in optimizer.state[example].items()}
