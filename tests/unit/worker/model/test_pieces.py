"""Models as chains: what the pieces compute together is what the model computes, and stages' times are its own."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from testbed.core.device.profile import LayerTimes, Profile
from testbed.core.parallelism.plan import Plan
from testbed.worker.device.compute_times import ComputeTimes
from testbed.worker.interfaces.workload import Workload
from testbed.worker.methods.pipeline.stage_times import StageTimes
from testbed.worker.methods.pipeline.tensor_parallel import Split
from testbed.worker.model.pieces import Piece, faults, pieces_of
from testbed.worker.workloads.bytelm import Bytelm
from testbed.worker.workloads.digits import Digits
from testbed.worker.workloads.glyphs import Glyphs


def example(workload: Workload) -> Tensor | tuple[Tensor, Tensor]:
    drawn = torch.Generator().manual_seed(3)
    if isinstance(workload, Bytelm):
        return torch.randint(256, (4, 65), generator=drawn)
    pixels = 8 if isinstance(workload, Digits) else 32
    return torch.randn(4, 1, pixels, pixels, generator=drawn), torch.arange(4)


@pytest.mark.parametrize("workload", [Bytelm(), Digits(), Glyphs()], ids=["bytelm", "digits", "glyphs"])
def test_pieces_one_after_another_are_the_model_bit_for_bit(workload: Workload) -> None:
    model, batch = workload.model(1), example(workload)
    pieces = workload.pieces(model)
    assert not list(faults(model, pieces)) and len(pieces) > 3
    flowing = workload.inputs(batch)
    for piece in pieces:
        flowing = piece.module(flowing)
    loss = workload.loss_of(flowing, batch)
    assert torch.equal(loss, workload.loss(model, batch))
    loss.backward()
    twin = copy.deepcopy(model)
    twin.zero_grad()
    workload.loss(twin, batch).backward()
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert mine.grad is not None and theirs.grad is not None and torch.equal(mine.grad, theirs.grad)


def test_a_piece_begins_with_weights() -> None:
    names = [piece.name for piece in pieces_of(Glyphs().model(0))]  # type: ignore[arg-type]
    assert names == ["0", "3", "7", "11", "15", "17"]
    flat = nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    assert [len(piece.module) for piece in pieces_of(flat)] == [3, 1]  # type: ignore[arg-type]


def test_chains_that_would_not_be_the_model_are_named() -> None:
    first, second, norm = nn.Linear(4, 4), nn.Linear(4, 4, bias=False), nn.BatchNorm1d(4)
    second.weight = first.weight
    model = nn.Sequential(first, second, norm, nn.Linear(4, 1, bias=False))
    pieces = [Piece("first", first), Piece("second", second), Piece("norm", norm)]
    said = list(faults(model, pieces))
    assert said[0] == "0.weight is shared by first and second, which may lie on different ranks"
    assert said[1] == "3.weight is in no piece of the chain"
    assert len(said) == 5 and said[2].startswith("2.running_mean changes in forward")


def test_shards_parts_make_up_the_whole() -> None:
    whole = nn.Parameter(torch.arange(48.0).view(12, 4))
    split = Split(whole, dim=0, runs=3, degree=2)
    assert split.index(0).tolist() == [0, 1, 4, 5, 8, 9] and split.shape == (6, 4)
    parts = [split.taken(shard) for shard in range(2)]
    kept = whole.detach().clone()
    whole.data.zero_()
    for shard, part in enumerate(parts):
        split.put(shard, part.flatten())
    assert torch.equal(whole, kept)
    assert Split(whole, dim=1, runs=1, degree=4).taken(3).flatten().tolist() == kept[:, 3].tolist()


def test_stages_share_the_times_of_the_whole_model() -> None:
    workload = Bytelm()
    model = workload.model(0)
    pieces = workload.pieces(model)
    layers = tuple(
        LayerTimes(name=name, parameters=1, forward_s=1.0, backward_s=2.0)
        for name in ("bytes", "blocks.0.widen", "blocks.1.widen", "blocks.2.widen", "head")
    )
    profile = Profile(
        workload="", compressor="", batch_size=8, layers=layers, forward_s=10.0, backward_s=20.0, optimizer_s=3.0
    )
    plan = Plan(pp=2, dp=1, tp=1, micro_batch=4, cuts=(0, 2), placement=(0, 1))
    times = StageTimes(ComputeTimes(profile, model), model, pieces, plan, 8)
    assert times.forward_s(0) == pytest.approx(2.0) and times.forward_s(1) == pytest.approx(3.0)
    assert times.backward_s(1) == pytest.approx(6.0)
    widen = model.get_submodule("blocks.1.widen").parameters()
    assert times.backward_of(widen, shared=False) == pytest.approx(2.0)
    assert times.optimizer_s(model.parameters()) == pytest.approx(3.0)
    shared = replace(plan, dp=1, tp=2, placement=(0, 1, 2, 3))
    assert StageTimes(ComputeTimes(profile, model), model, pieces, shared, 8).forward_s(0) == pytest.approx(1.5)
    assert StageTimes(ComputeTimes(), model, pieces, plan, 8).forward_s(0) is None
