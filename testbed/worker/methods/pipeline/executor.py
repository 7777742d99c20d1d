"""One rank's part of a step: forwards and backwards of its stages in the order of a schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from testbed.core.parallelism.schedules import Action
from testbed.worker.device.clock import PhaseClock
from testbed.worker.interfaces.workload import Batch
from testbed.worker.interfaces.workload_capabilities import Prompted, Sequential
from testbed.worker.methods.pipeline.boundary import Receiver, Sender, finish_all
from testbed.worker.methods.pipeline.gradients import Gradients
from testbed.worker.methods.pipeline.stage_times import StageTimes
from testbed.worker.methods.pipeline.stages import FrozenPart, Stage


@dataclass(frozen=True, kw_only=True)
class Ends:
    """A stage's ends of what passes to and from it; None where nothing does."""

    activations_in: Receiver | None = None
    activations_out: Sender | None = None
    gradients_in: Receiver | None = None
    gradients_out: Sender | None = None


class Executor:
    """Messages leave as soon as they are made, and nothing waits for them until the step is over: what a stage waits
    for is what it is to compute with next."""

    def __init__(
        self,
        actions: Sequence[Action],
        stages: Sequence[Stage],
        ends: Mapping[int, Ends],
        gradients: Mapping[int, Gradients],
        workload: Sequential,
        clock: PhaseClock,
        times: StageTimes,
        frozen: FrozenPart | None = None,
    ) -> None:
        """
        Args:
            frozen: of the first stage, what is looked up.
        """
        self._frozen = frozen
        self._actions, self._workload, self._clock, self._times = actions, workload, clock, times
        self._stages = {stage.number: stage for stage in stages}
        self._ends, self._gradients = ends, gradients
        self._micro_batches = 1 + max(action.micro_batch for action in actions)
        self._kept: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        self._losses: list[Tensor] = []

    def run(self, parts: Sequence[Batch] | None, step: int) -> float | None:
        """Leaves gradients of the mean over all micro-batches where parameters have them.

        Args:
            parts: the micro-batches, where this rank has the first stage or the last, or pieces are prompted.

        Returns:
            The loss, of a rank that has the last stage.
        """
        self._losses = []
        for ends in self._ends.values():
            for receiver in (ends.activations_in, ends.gradients_in):
                if receiver is not None:
                    receiver.begin(self._micro_batches)
        for action in self._actions:
            if action.is_forward:
                self._forward(action, parts, step)
            else:
                self._backward(action, step)
        return float(torch.stack(self._losses).sum()) if self._losses else None

    def finish(self) -> None:
        """
        Raises:
            CollectiveError: something that was sent did not arrive.
        """
        for ends in self._ends.values():
            finish_all([end for end in (ends.activations_out, ends.gradients_out) if end is not None])

    def _forward(self, action: Action, parts: Sequence[Batch] | None, step: int) -> None:
        stage, number = self._stages[action.stage], action.micro_batch
        ends = self._ends[action.stage]
        if ends.activations_in is None:
            assert parts is not None, "the first stage draws the batch"
            given = self._workload.inputs(parts[number])
        else:
            given = ends.activations_in.receive(step, number).requires_grad_(stage.passes_gradients)
        looked_up = self._frozen if ends.activations_in is None else None
        batch = parts[number] if parts is not None else None
        spared = [] if looked_up is None else looked_up.spared(batch)
        seconds = self._times.forward_s(action.stage, spared)
        if isinstance(self._workload, Prompted):
            assert batch is not None, "ranks of all stages draw it"
            self._workload.prompt(stage.module, batch)
        with self._clock.phase("forward", seconds), torch.set_grad_enabled(stage.learns):
            made = stage.module(given) if looked_up is None else looked_up.through(stage.module, batch, given)
            if ends.activations_out is None:
                assert parts is not None, "the last stage draws the batch"
                made = self._workload.loss_of(made, parts[number]) / self._micro_batches
                self._losses.append(made.detach())
        if stage.learns:
            self._kept[action.stage, number] = given, made
        if ends.activations_out is not None:
            ends.activations_out.send(made, step, number)

    def _backward(self, action: Action, step: int) -> None:
        stage, number = self._stages[action.stage], action.micro_batch
        if not stage.learns:
            return  # nor does any stage before it: nobody sends it gradients, and nobody waits for its own
        ends, gradients = self._ends[action.stage], self._gradients[action.stage]
        given, made = self._kept.pop((action.stage, number))
        upstream = None if ends.gradients_in is None else ends.gradients_in.receive(step, number)
        gradients.before(number, self._micro_batches)
        with self._clock.phase("backward", self._times.backward_s(action.stage)):
            made.backward(upstream)
            gradients.after(number, self._micro_batches)
        if ends.gradients_out is not None:
            assert given.grad is not None
            ends.gradients_out.send(given.grad, step, number)
