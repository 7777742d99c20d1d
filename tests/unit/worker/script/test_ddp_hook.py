"""The hook for torch's DDP over a communicator in memory, and what a script can ask of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from compressors.base.compressor import Compressor, Exchange, Layout, Traits
from compressors.base.feedback import with_feedback
from compressors.topk import TopK
from testbed.core.errors import InputError
from testbed.core.spec.run_spec import Part
from testbed.worker import ddp_hook
from testbed.worker.communication.communicator import Communicator
from testbed.worker.communication.pending import Pending
from testbed.worker.device.clock import PhaseClock
from testbed.worker.reduction.reducer import Reducer
from testbed.worker.script.ddp_hook import NO_LINKS, CompressionHook
from tests.waiting import HANG_S

ROOT = Path(__file__).resolve().parents[4]
TOPK = Part("topk", "compressors.topk.TopK", {"density": 0.1})


class Mirror(Communicator):
    """Two ranks that send the same."""

    def __init__(self) -> None:
        super().__init__(rank=0, world_size=2, timeout_s=1)
        self.asked: list[Exchange] = []

    def run(self, exchange: Exchange) -> Pending:
        self.asked.append(exchange)
        if exchange.kind == "all_reduce":
            return self._done([2 * exchange.data[0]])
        return self._done([exchange.data[0].clone()] * 2)

    def exchange_sizes(self, sizes: Sequence[int]) -> Pending:
        return self._done([torch.tensor(sizes)])


class Bucket:
    """As torch hands it to a hook."""

    def __init__(self, index: int, parameters: Sequence[nn.Parameter], flat: Tensor, *, last: bool) -> None:
        self._index, self._parameters, self._flat, self._last = index, list(parameters), flat, last

    def index(self) -> int:
        return self._index

    def parameters(self) -> list[nn.Parameter]:
        return list(self._parameters)

    def buffer(self) -> Tensor:
        return self._flat

    def is_last(self) -> bool:
        return self._last


def _hook(part: Part = TOPK) -> tuple[CompressionHook, Mirror]:
    hook, comm = CompressionHook(part), Mirror()
    hook.join(comm)
    return hook, comm


def _reduce(hook: CompressionHook, buckets: Sequence[Sequence[nn.Parameter]], seed: int) -> list[list[Tensor]]:
    """One backward; what went in and what came out, by bucket."""
    generator = torch.Generator().manual_seed(seed)
    given, futures = [], []
    for index, parameters in enumerate(buckets):
        flat = torch.randn(sum(p.numel() for p in parameters), generator=generator)
        given.append(flat.clone())
        futures.append(hook(None, Bucket(index, parameters, flat, last=index + 1 == len(buckets))))
        assert all(future.done() == (index + 1 == len(buckets)) for future in futures)
    return [given, [future.value() for future in futures]]


def _parameters(*shapes: tuple[int, ...]) -> list[nn.Parameter]:
    return [nn.Parameter(torch.zeros(shape)) for shape in shapes]


def test_buckets_are_reduced_as_a_strategy_reduces_them() -> None:
    a, b, c = _parameters((20, 30), (30,), (7, 5))
    hook, comm = _hook()
    theirs = Mirror()
    reducer = Reducer(with_feedback(TopK(density=0.1)), theirs, PhaseClock(), NO_LINKS, seed=0)
    layouts = [Layout(((20, 30), (30,)), 0), Layout(((7, 5),), 1)]
    for step in range(3):
        given, got = _reduce(hook, [[a, b], [c]], seed=step)
        for flat, layout in zip(given, layouts, strict=True):
            reducer.start(flat, layout, step)
        reducer.finish()
        assert all(torch.equal(ours, other) for ours, other in zip(got, given, strict=True))
    assert [len(e.data[0]) for e in comm.asked] == [len(e.data[0]) for e in theirs.asked] == [8 * 63, 8 * 4] * 3


def test_nothing_is_lost_when_buckets_are_laid_anew() -> None:
    a, b, c, d = _parameters((20, 30), (30,), (7, 5), (11,))
    total = {p: torch.zeros(p.numel()) for p in (a, b, c, d)}
    hook, _ = _hook()
    layings = [[[a], [b, c, d]]] * 2 + [[[a], [d, c], [b]]] * 2 + [[[d, b, a, c]]]
    for seed, buckets in enumerate(layings):
        given, got = _reduce(hook, buckets, seed)
        for parameters, came, went in zip(buckets, given, got, strict=True):
            for p, difference in zip(parameters, (came - went).split([p.numel() for p in parameters]), strict=True):
                total[p] += difference
    held = {p: residual for slot in hook._models[0].slots for p, residual in _residuals(slot).items()}
    assert held.keys() == total.keys()
    for p, difference in total.items():
        assert difference.abs().max() > 1  # there was something to lose
        assert torch.allclose(held[p], difference, atol=1e-5)
    assert not hook._models[0].gone


def test_powersgd_keeps_to_its_rank_in_new_buckets() -> None:
    a, b = _parameters((20, 30), (40, 50))
    hook, comm = _hook(Part("powersgd", "compressors.powersgd.PowerSGD", {"rank": 2}))
    _reduce(hook, [[a, b]], seed=0)
    _reduce(hook, [[b], [a]], seed=1)
    _reduce(hook, [[b], [a]], seed=2)
    assert [e.data[0].numel() for e in comm.asked] == [120, 160] + [80, 40, 100, 60] * 2


def _residuals(slot: Any) -> dict[torch.Tensor, torch.Tensor]:
    kept = slot.compressor.state_dict()["residuals"][f"{slot.layout.bucket}/0/"]
    return dict(zip(slot.parameters, kept.split(slot.layout.numels), strict=True))


class Few(Compressor):
    traits = Traits(sum_dtype=torch.float32, max_world=1)

    def payload_bytes(self, layout: Layout, context: object) -> int:
        return 4 * layout.numel


def test_too_many_ranks_are_refused() -> None:
    hook = ddp_hook("few", _target_=f"{__name__}.Few")
    with pytest.raises(InputError, match="compressor=few: workers=2: Few sums at most 1 ranks"):
        hook.join(Mirror())


@pytest.mark.parametrize(
    ("name", "params", "fault"),
    [
        (
            "dgc",
            {},
            r"takes the momentum out of the optimizer, .* give it as momentum=0\.9, and give the optimizer none",
        ),
        (
            "topk",
            {"feedback": "momentum"},
            r"takes the momentum out of the optimizer, .* use feedback=on, or strategy=ddp",
        ),
        ("signum", {}, "takes the optimizer's place, .* use strategy=ddp"),
        ("onebit_adam", {}, "takes the optimizer's place, .* use strategy=ddp"),
        (
            "policy",
            {"rules": [{"names": "*.bias", "compressor": {"_target_": "compressors.none.Uncompressed"}}]},
            r"rules\[0\]\.names=.* go by size",
        ),
    ],
)
def test_what_a_hook_does_not_see_is_refused_before_the_first_exchange(
    name: str, params: dict[str, Any], fault: str
) -> None:
    comm = Mirror()
    with pytest.raises(InputError, match=f"compressor={name}: .*{fault}"):
        ddp_hook(name, **params).join(comm)
    assert not comm.asked


def test_momentum_that_is_given_is_applied() -> None:
    hook = ddp_hook("dgc", momentum=0.5, density=0.05, sample=1.0, warmup_steps=0)
    hook.join(Mirror())
    parameters = _parameters((40,))
    ((first,), (at_once,)), ((second,), (then,)) = (_reduce(hook, [parameters], seed) for seed in range(2))
    held = (at_once == 0) & (then == 0)  # where nothing was sent, so that no velocity began anew
    assert 20 < held.sum() < 40
    velocities = hook._models[0].slots[0].compressor.state_dict()["velocities"]["0/0/"]
    assert torch.allclose(velocities[held], (0.5 * first + second)[held])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_gradients_than_float32_are_refused(dtype: torch.dtype) -> None:
    hook, _ = _hook()
    with pytest.raises(Exception, match="dense float32 gradients on CPUs, found"):
        hook(None, Bucket(0, _parameters((4,)), torch.zeros(4, dtype=dtype), last=True))


def test_a_script_names_a_compressor_as_a_run_does() -> None:
    hook = ddp_hook("topk", density=0.5)
    assert hook.payload_bytes == 0
    compressor = hook._first.inner
    assert isinstance(compressor, TopK) and compressor.density == 0.5
    assert ddp_hook("topk")._part.params == {"density": 0.01, "feedback": "auto"}
    assert isinstance(ddp_hook("mine", _target_="compressors.topk.TopK", feedback="off")._first, TopK)


def test_what_it_asks_for_wrongly_is_said_all_at_once() -> None:
    with pytest.raises(InputError) as caught:
        ddp_hook("topk", densty=0.1, density=2)
    assert caught.value.faults == (
        "compressor.densty=0.1: unknown; did you mean density? topk knows: density, feedback",
        "compressor.density=2: must be in (0, 1]",
    )
    with pytest.raises(InputError, match=r"compressor=topkk: unknown; known: acpsgd, .*fp16, .*topk"):
        ddp_hook("topkk")
    with pytest.raises(InputError, match=r"in no run, so that none is given; name one of acpsgd, "):
        ddp_hook()


def test_the_package_is_had_without_torch() -> None:
    code = "import sys, testbed.worker; print('torch' in sys.modules); from testbed.worker import ddp_hook"
    code += "; print(callable(ddp_hook), 'torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=HANG_S, check=True
    )
    assert done.stdout.split() == ["False", "True", "True"]
