from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from compressors.base.compressor import Compressor, Context, Layout
from compressors.base.feedback import with_feedback
from compressors.none import Uncompressed
from testbed.core.costs.collective import ranks_of_regions
from testbed.core.costs.sockets import libraries
from testbed.core.kinds import Choice, Number
from testbed.core.parameters import Count, CountOrZero, Fraction, raise_all
from testbed.worker.communication.collectives.algorithm_selection import Collectives, SumsName, routes_of, sums_fault
from testbed.worker.communication.collectives.group import Group
from testbed.worker.interfaces.strategy import StepStats, Strategy, WorkerContext
from testbed.worker.interfaces.workload import Batch, Workload, parameters_crc32
from testbed.worker.interfaces.workload_capabilities import draw_change
from testbed.worker.reduction.buckets import Buckets
from testbed.worker.reduction.fusion import grouped
from testbed.worker.reduction.reducer import Reducer

REPLICAS = ("worker", "region")
_INSIDE = 1
_INNER_BUCKET_BYTES = 4 << 20
_PIECE_NUMEL = 1 << 18


@dataclass
class _Fragment:
    parameters: list[nn.Parameter]
    layout: Layout
    anchor: Tensor
    """What all replicas agreed on last."""
    momentum: Tensor
    offset: int
    """Steps after the first fragment's turn."""
    outer: Tensor
    """The pseudo-gradient, its mean after reduction. Its memory stays: new memory for 25 million parameters, which a
    virtual machine had not touched before, took the kernel 1.1 s, and the subtraction 0.04."""
    agreed: int = 0
    """Steps taken when its last exchange began."""

    def take_local(self) -> Tensor:
        """Return this replica's own parameters, in the memory of `outer`."""
        return torch.cat([p.detach().view(-1) for p in self.parameters], out=self.outer)

    def take_outer_step(self, learning_rate: float, momentum: float) -> None:
        """Have Nesterov's momentum and the anchor follow `outer`, in pieces that need little memory beside them."""
        pieces = zip(*(t.split(_PIECE_NUMEL) for t in (self.anchor, self.momentum, self.outer)), strict=True)
        for anchor, moved, outer in pieces:
            moved.mul_(momentum).add_(outer)
            anchor.sub_(learning_rate * (outer + momentum * moved))

    def put(self, flat: Tensor) -> None:
        for parameter, piece in zip(self.parameters, flat.split([p.numel() for p in self.parameters]), strict=True):
            parameter.data.copy_(piece.view_as(parameter))


class DiLoCo(Strategy):
    """Replicas train by themselves, and every `sync_every` steps an outer optimizer averages what they have learnt.

    It has Nesterov's momentum on the pseudo-gradient: the parameters agreed on last minus the present ones.

    Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models", arXiv:2311.08105. In
    fragments, and applied `overlap_steps` later: Douillard et al., "Streaming DiLoCo with overlapping communication",
    arXiv:2501.18512. With an outer rate of 1 and no momentum: local SGD (Stich, "Local SGD Converges Fast and
    Communicates Little", ICLR 2019, arXiv:1805.09767). Differs from the papers: fragments are runs of parameters of
    equal size, cut anywhere between tensors; pseudo-gradients pass through any compressor, with its error feedback,
    where the second paper has 4-bit floats; inner optimizer states stay local, as there.

    What is evaluated is rank 0's own parameters at that step; after the last step all replicas agree once more,
    on the mean of what they have if it is not the turn of a part.
    In a partition replicas train on until their next exchange, which waits; one longer than `timeout_s` fails the run,
    which names the rank and the link that is down.
    Cost: 1/sync_every of `ddp`'s bytes, times the compressor's ratio; 12 bytes a parameter.

    Args:
        sync_every: Steps between exchanges of the same parameters (H).
        outer_learning_rate: Learning rate of the outer optimizer.
        outer_momentum: Momentum of the outer optimizer.
        fragments: Parts that take turns, to lower peak traffic.
        overlap_steps: Steps that an exchange may overlap (tau). 0 waits for it.
        mix: Share of a replica's own parameters kept (alpha). The rest is of the agreed ones.
        replicas: Replica: a worker, or the workers of a region. Those average their gradients in each step and all take
            part in the exchange, so `collective` should be a hierarchical one.
        collective: Algorithm of exchanges; auto: the cheapest predicted.

    Raises:
        ValueError: a parameter is not one of these.
    """

    carries_compressor = exchanges_models = sends_by_comm = True

    def __init__(
        self,
        *,
        sync_every: Count = 50,
        outer_learning_rate: Annotated[float, Number(above=0, most=10)] = 0.7,
        outer_momentum: Fraction = 0.9,
        fragments: Count = 1,
        overlap_steps: CountOrZero = 0,
        mix: Fraction = 0.0,
        replicas: Annotated[str, Choice(REPLICAS)] = "worker",
        collective: SumsName = "gloo",
    ) -> None:
        turn = sync_every // fragments
        raise_all(
            None if turn else f"fragments={fragments}: at most one a step, with sync_every={sync_every}",
            None if overlap_steps < max(turn, 1) else f"overlap_steps={overlap_steps}: turns are {turn} steps apart",
        )
        self.sync_every = self.cycle_steps = sync_every
        self.overlap_steps, self.mix = overlap_steps, mix
        self.outer_learning_rate, self.outer_momentum = outer_learning_rate, outer_momentum
        self.fragment_count, self.replicas, self.collective = fragments, replicas, collective

    def validate(self, compressor: Compressor, workload: Workload, world_size: int) -> Iterator[str]:
        try:
            traits = with_feedback(compressor).traits
        except ValueError as error:
            yield f"compressor: {error}"
            return
        if traits.owns != "nothing":
            what = f"{type(compressor).__name__} with feedback={compressor.feedback}"
            yield f"strategy: {what} takes over {traits.owned}, which replicas need themselves; use strategy=ddp"
        yield from sums_fault(self.collective, compressor)

    def validate_accelerator(self) -> Iterator[str]:
        if self.replicas == "region":
            yield "strategy.replicas=region: averages by messages out of the host's memory; use replicas=worker"

    def bind(self, context: WorkerContext) -> None:
        self._context = context
        self.compressor: Compressor = with_feedback(context.compressor)
        spec, comm = context.spec, context.comm
        self._outer = Collectives(comm, spec.topology, self.collective, libraries(spec))
        self._reducer = Reducer(self.compressor, comm, context.clock, spec.topology, spec.seed, self._outer)
        self._replica = context.rank
        """Rank that stands for its replica."""
        self._inner = self._inside() if self.replicas == "region" and comm.networked else None
        names = {parameter: name for name, parameter in context.model.named_parameters()}
        self.fragments = list(self._cut(names))
        for fragment in self.fragments:
            self.compressor.prepare(fragment.outer, self._reducer.context(fragment.layout, 0))
        self._under_way: _Fragment | None = None
        """A fragment whose exchange was begun."""
        self._step = -1
        """The last one that was taken."""
        comm.require_equal(parameters_crc32(context.model), "the checksum of the initial parameters")

    def step(self, batch: Batch, step: int) -> StepStats:
        context, clock = self._context, self._context.clock
        self._zero(step)
        with clock.phase("forward", clock.times.forward_s):
            loss = context.workload.loss(context.model, batch)
            for fragment in self._due(step + 1):
                self._draw(fragment, step + 1 - fragment.agreed)
        with clock.phase("backward", clock.times.backward_s):
            loss.backward()
            if self._inner is not None:
                self._inner[1].flush()
        if self._inner is not None:
            self._inner[0].finish()
        with clock.phase("optimizer", clock.times.optimizer_s):
            context.optimizer.step()
        taken = step + 1
        for fragment in self._due(taken):
            self._begin(fragment, taken)
        if self._under_way is not None and taken >= self._under_way.agreed + self.overlap_steps:
            self._agree(self.mix)
        return StepStats(float(loss.detach()))

    def finish(self) -> None:
        """All replicas agree on all parameters."""
        if self._under_way is not None:
            self._agree(self.mix)
        for fragment in self.fragments:
            if fragment.agreed <= self._step:
                self._draw(fragment, self._step + 1 - fragment.agreed)
                self._begin(fragment, self._step + 1)
                self._agree_on_mean()
            else:
                fragment.put(fragment.anchor)  # nobody keeps a part of its own

    def layouts(self) -> list[Layout]:
        return [fragment.layout for fragment in self.fragments]

    def routes(self) -> list[str]:
        return routes_of(self._contexts())

    def collectives(self) -> list[str]:
        return self._outer.planned_for(self.compressor, self._contexts())

    def _contexts(self) -> list[Context]:
        return [self._reducer.context(layout, step=0) for layout in self.layouts()]

    def _inside(self) -> tuple[Reducer, Buckets]:
        """What averages gradients in the region of this rank."""
        context = self._context
        members = next(ranks for ranks in ranks_of_regions(context.spec.topology) if context.rank in ranks)
        self._replica = members[0]
        group = Group(context.comm, members, members.index(context.rank), _INSIDE)
        between = context.spec.topology.only(members)
        carried = Collectives(group, between, "ring")
        reducer = Reducer(Uncompressed(), group, context.clock, between, context.spec.seed, carried)
        buckets = Buckets(
            grouped(context.model.parameters(), _INNER_BUCKET_BYTES),
            lambda bucket: reducer.start(bucket.flat, bucket.layout, self._step),
        )
        return reducer, buckets

    def _zero(self, step: int) -> None:
        self._step = step
        if self._inner is None:
            self._context.optimizer.zero_grad()
        else:
            self._inner[1].reset()

    def _cut(self, names: dict[nn.Parameter, str]) -> Iterator[_Fragment]:
        parameters = [p for p in self._context.model.parameters() if p.requires_grad]
        groups = _parts(parameters, self.fragment_count)
        for index, group in enumerate(groups):
            layout = Layout(tuple(tuple(p.shape) for p in group), index, tuple(names[p] for p in group))
            anchor = torch.cat([p.detach().view(-1) for p in group])
            offset = index * self.sync_every // len(groups)
            yield _Fragment(group, layout, anchor, torch.zeros_like(anchor), offset, torch.zeros_like(anchor))

    def _due(self, taken: int) -> list[_Fragment]:
        """Fragments whose turn comes after `taken` steps."""
        return [one for one in self.fragments if taken > one.offset and (taken - one.offset) % self.sync_every == 0]

    def _draw(self, fragment: _Fragment, steps: int) -> None:
        """Have a workload that computes nothing change what is exchanged next, while the device computes."""
        context = self._context
        key = {"seed": context.spec.seed, "rank": self._replica, "round_": self._step, "steps": steps}
        draw_change(context.workload, context.model, fragment.parameters, **key)

    def _begin(self, fragment: _Fragment, taken: int) -> None:
        """After `taken` steps it is the turn of `fragment`."""
        if self._under_way is not None:
            self._agree(self.mix)
        fragment.agreed = taken
        local = fragment.take_local()
        self._reducer.start(torch.sub(fragment.anchor, local, out=local), fragment.layout, self._step)
        self._under_way = fragment

    def _agree_on_mean(self) -> None:
        """Likewise on what all have, on average: too little was learnt since the last turn for a step with momentum."""
        assert self._under_way is not None
        fragment, self._under_way = self._under_way, None
        self._reducer.finish()
        fragment.anchor.sub_(fragment.outer)
        fragment.put(fragment.anchor)

    def _agree(self, mix: float) -> None:
        """Take the outer step of the fragment that is under way, and go on from there."""
        assert self._under_way is not None
        fragment, self._under_way = self._under_way, None
        self._reducer.finish()
        clock = self._context.clock
        with clock.phase("optimizer"), torch.no_grad():
            fragment.take_outer_step(self.outer_learning_rate, self.outer_momentum)
            fragment.put(fragment.anchor if mix == 0 else torch.lerp(fragment.anchor, fragment.take_local(), mix))


def _parts(parameters: list[nn.Parameter], count: int) -> list[list[nn.Parameter]]:
    """In order, in at most so many runs of about equal size: each goes where its middle lies."""
    groups: dict[int, list[nn.Parameter]] = {}
    total, before = sum(p.numel() for p in parameters), 0
    for parameter in parameters:
        middle = before + parameter.numel() / 2
        groups.setdefault(int(count * middle / total), []).append(parameter)
        before += parameter.numel()
    return list(groups.values())
