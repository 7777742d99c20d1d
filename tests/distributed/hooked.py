"""One rank of the hook's test: trains small models through torch's DDP and prints what came of it as one JSON object.

Arguments: names of compressors. Rank, world size and address come from torchrun's environment.
No `from __future__ import annotations` here: torch compares a hook's annotations with classes.
"""

import contextlib
import json
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist  # noqa: TID251 - it plays a user's script
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook  # noqa: TID251 - to compare
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook  # noqa: TID251
from torch.nn.parallel import DistributedDataParallel

from compressors.base.compressor import Context, Layout, Route, choose_route
from compressors.parts.low_rank import matrix_shape
from compressors.powersgd import PowerSGD
from testbed.worker import ddp_hook
from testbed.worker.communication.communicator import Communicator
from testbed.worker.device.clock import PhaseClock
from testbed.worker.interfaces.strategy import WorkerContext
from testbed.worker.interfaces.workload import parameters_crc32
from testbed.worker.script.ddp_hook import CompressionHook
from testbed.worker.strategies.ddp import DDP
from testbed.worker.training.parts import build_parts
from tests.distributed.harness import make_spec, part

STEPS = 20
START, RANK = 3, 2
"""Parameters of PowerSGD in the comparison with torch: the first compressed step, and columns of its factors."""
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()


class Net(nn.Module):
    """Two branches, of which every other step may use only one; several buckets of 0.05 MiB."""

    def __init__(self, *, alternate: bool = False) -> None:
        super().__init__()
        self.stem = nn.Linear(16, 160)
        self.left, self.right = nn.Linear(160, 160), nn.Linear(160, 160)
        self.head = nn.Linear(160, 4)
        self.alternate, self.calls = alternate, 0

    def forward(self, images: Tensor) -> Tensor:
        self.calls += 1
        stem = self.stem(images).relu()
        hidden = self.left(stem)
        if not (self.alternate and self.calls % 2):
            hidden = hidden + self.right(stem)
        return self.head(hidden.relu())


def batch(step: int) -> tuple[Tensor, Tensor]:
    images = torch.randn(24, 16, generator=torch.Generator().manual_seed(1000 * step + rank))
    return images, images[:, :4].argmax(dim=1)


def model(hook: Callable[..., Any] | None, *, alternate: bool = False, **options: Any) -> DistributedDataParallel:
    torch.manual_seed(7)
    ddp = DistributedDataParallel(Net(alternate=alternate), bucket_cap_mb=0.05, **options)
    if hook is not None:
        ddp.register_comm_hook(None, hook)
    return ddp


def train(ddp: DistributedDataParallel, steps: int = STEPS, *, accumulate: bool = False) -> list[float]:
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        for part_of_step in range(2 if accumulate else 1):
            held = ddp.no_sync() if accumulate and part_of_step == 0 else contextlib.nullcontext()
            images, labels = batch(2 * step + part_of_step)
            with held:
                loss = nn.functional.cross_entropy(ddp(images), labels)
                loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def distance(ours: nn.Module, theirs: nn.Module) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


def compare_with_plain() -> dict[str, Any]:
    cases: dict[str, dict[str, Any]] = {
        "plain": {},
        "views": {"gradient_as_bucket_view": True},
        "static": {"static_graph": True},
        "unused": {"find_unused_parameters": True, "alternate": True},
        "accumulate": {"accumulate": True},
    }
    found = {}
    for name, options in cases.items():
        accumulate = options.pop("accumulate", False)
        ours, theirs = model(ddp_hook("none"), **options), model(None, **options)
        losses = train(ours, accumulate=accumulate), train(theirs, accumulate=accumulate)
        found[name] = {"losses": losses, "distance": distance(ours, theirs)}
    return found


def residuals(slot: Any) -> dict[torch.Tensor, torch.Tensor]:
    """Of each parameter what has been held back of its gradients; nothing without feedback."""
    kept = slot.compressor.state_dict().get("residuals", {}).get(f"{slot.layout.bucket}/0/")
    return {} if kept is None else dict(zip(slot.parameters, kept.split(slot.layout.numels), strict=True))


class Observed(CompressionHook):
    """Notes each bucket, and the sum of all gradients that went in and came out."""

    def note(self, net: nn.Module) -> None:
        self.steps: list[list[Layout]] = []
        self.orders: list[list[int]] = []
        self.sent: list[int] = []
        self.given = {p: torch.zeros_like(p) for p in net.parameters()}
        self.applied = {p: torch.zeros_like(p) for p in net.parameters()}
        self.buckets: list[tuple[list[Tensor], list[Tensor]]] = []
        self.names = list(self.given)

    @torch.no_grad()
    def __call__(self, state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        parameters, gradients = bucket.parameters(), bucket.gradients()
        if bucket.index() == 0:
            self.steps.append([])
            self.orders.append([])
            self.before = self.payload_bytes
        self.steps[-1].append(Layout(tuple(tuple(p.shape) for p in parameters), bucket.index()))
        self.orders[-1] += [next(i for i, known in enumerate(self.names) if known is p) for p in parameters]
        for parameter, gradient in zip(parameters, gradients, strict=True):
            self.given[parameter] += gradient
        self.buckets.append((parameters, gradients))
        future = super().__call__(state, bucket)
        if bucket.is_last():
            self.sent.append(self.payload_bytes - self.before)
            for parameters, gradients in self.buckets:
                for parameter, gradient in zip(parameters, gradients, strict=True):
                    self.applied[parameter] += gradient
            self.buckets = []
        return future

    def lost(self) -> float:
        """How far what was given, in the mean over ranks, is from what was applied plus what is still held back."""
        held = {p: kept for model in self._models for slot in model.slots for p, kept in residuals(slot).items()}
        worst = 0.0
        for parameter, given in self.given.items():
            mean = (given - held[parameter].view_as(given) if parameter in held else given.clone()) / world_size
            dist.all_reduce(mean)
            worst = max(worst, float((mean - self.applied[parameter]).abs().max()))
        return worst


def compress(name: str) -> dict[str, Any]:
    hook = Observed(part("compressor", name))
    ddp = model(hook)
    hook.note(ddp.module)
    losses = train(ddp)
    declared = []
    codec = hook._first
    for layouts in hook.steps:
        routes = [choose_route(codec, layout, world_size, alpha_s=0, beta_s_byte=0) for layout in layouts]
        declared.append(sum(codec.sent_bytes(lay, world_size, r) for lay, r in zip(layouts, routes, strict=True)))
    unused = ddp_hook(name)
    train(alternating := model(unused, find_unused_parameters=True, alternate=True), 6)
    return {
        "losses": losses,
        "crc32": [parameters_crc32(ddp.module), parameters_crc32(alternating.module)],
        "buckets": [[layout.numel for layout in layouts] for layouts in hook.steps],
        "orders": hook.orders,
        "sent": hook.sent,
        "declared": declared,
        "fixed_size": codec.traits.fixed_size,
        "lost": hook.lost(),
        "unused_sent": unused.payload_bytes,
    }


def beside_strategy(name: str) -> dict[str, Any]:
    """One bucket holds the whole model, for DDP and for the strategy, so that both reduce the same."""
    steps = 3
    spec = make_spec(compressor=name, workers=world_size, strategy_params={"bucket_size": "100 MiB"}, steps=steps)
    parts = build_parts(spec)
    assert isinstance(parts.strategy, DDP)
    workload, comm = parts.workload, Communicator(rank, world_size, 60.0)
    net = workload.model(0)
    context = WorkerContext(
        spec=spec,
        workload=workload,
        model=net,
        optimizer=workload.optimizer(net.parameters()),
        compressor=parts.compressor,
        comm=comm,
        clock=PhaseClock(),
    )
    parts.strategy.bind(context)
    hook = ddp_hook(name)
    ddp = DistributedDataParallel(workload.model(0), bucket_cap_mb=100)
    ddp.register_comm_hook(None, hook)
    optimizer = workload.optimizer(ddp.parameters())
    sent: list[list[int]] = [[], []]
    for step in range(steps):
        given = workload.batch(step, rank=rank, world_size=world_size, batch_size=32, seed=0)
        before = comm.payload_bytes, hook.payload_bytes
        parts.strategy.step(given, step)
        optimizer.zero_grad()
        workload.loss(ddp, given).backward()
        optimizer.step()
        sent[0].append(comm.payload_bytes - before[0])
        sent[1].append(hook.payload_bytes - before[1])
    return {"strategy": sent[0], "hook": sent[1]}


def beside_torch() -> dict[str, Any]:
    """Losses with a hook of ours, with torch's of the same method, and with ours that starts at once."""

    def losses(hook: Callable[..., Any], state: object = None) -> list[float]:
        torch.manual_seed(7)
        ddp = DistributedDataParallel(Net(), bucket_cap_mb=100)  # one bucket
        ddp.register_comm_hook(state, hook)
        return train(ddp)

    options = {"matrix_approximation_rank": RANK, "start_powerSGD_iter": START, "min_compression_rate": 1}
    return {
        "fp16": [losses(ddp_hook("fp16")), losses(fp16_compress_hook)],
        "powersgd": [
            losses(hook := ddp_hook("powersgd", rank=RANK, start_step=START)),
            losses(powersgd_of_torch, PowerSGDState(None, **options)),
            losses(at_once := ddp_hook("powersgd", rank=RANK)),
        ],
        "sent": [hook.payload_bytes, at_once.payload_bytes],
    }


def powersgd_of_torch(state: PowerSGDState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Torch's hook, with the Q that ours draws in the first step that is compressed."""
    if state.iter == START and not state.q_memory_dict:
        codec, layout = PowerSGD(rank=RANK), Layout(tuple(tuple(p.shape) for p in bucket.parameters()))
        context = Context(layout=layout, route=Route.OWN, seed=0, step=START, rank=rank, world_size=world_size)
        shapes = [shape for shape in map(matrix_shape, layout.shapes) if codec.is_thin(*shape)]
        drawn: dict[tuple[int, int], list[Tensor]] = {}  # torch lays matrices of one shape side by side
        for index, (n, m) in enumerate(shapes):
            drawn.setdefault((n, m), []).append(codec.warm("", m, index, context, torch.device("cpu")).T.reshape(-1))
        state.q_memory_dict[0] = torch.cat([q for same in drawn.values() for q in same])
        state.p_memory_dict[0] = torch.empty(RANK * sum(n for n, _ in shapes))
    return powerSGD_hook(state, bucket)


def disagree() -> str:
    ddp = model(ddp_hook("topk", density=0.1 if rank == 0 else 0.2))
    try:
        train(ddp, 1)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was raised"


def refuse() -> str:
    ddp = DistributedDataParallel(nn.Linear(2, 2).double())
    ddp.register_comm_hook(None, ddp_hook("none"))
    try:
        ddp(torch.ones(1, 2, dtype=torch.float64)).sum().backward()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was raised"


answer: dict[str, Any] = {"plain": compare_with_plain(), "disagree": disagree(), "refuse": refuse()}
answer["compressors"] = {name: compress(name) for name in sys.argv[1:]}
answer["torch"] = beside_torch()
answer["strategy"] = {name: beside_strategy(name) for name in sys.argv[1:]}
dist.barrier()
dist.destroy_process_group()
sys.stdout.write(json.dumps(answer))
