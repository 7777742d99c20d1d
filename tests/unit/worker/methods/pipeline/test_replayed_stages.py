"""Replayed models in stages: when they are paced, by measured timelines."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from testbed.core.device import Measured, Paced
from testbed.core.device.profile import Profile
from testbed.core.models.catalogue import MODEL_NAMES, find_model
from testbed.core.parallelism.plan import Plan
from testbed.worker.data.replayed_blocks import blocks_of
from testbed.worker.device.compute_times import ComputeTimes
from testbed.worker.methods.pipeline.stage_times import StageTimes
from testbed.worker.model import pieces as chains
from testbed.worker.workloads.replay import Replay
from tests.unit.core.device.replays import replay

CHAINED = [name for name in MODEL_NAMES if blocks_of(find_model(name))]


@pytest.mark.parametrize("model", CHAINED)
def test_blocks_are_all_of_a_transformer_in_order(model: str) -> None:
    table = find_model(model)
    blocks = blocks_of(table)
    assert [number for block in blocks for number in block.layers] == list(range(len(table.layers)))
    assert [block.name for block in (blocks[0], blocks[-1])] == ["embeddings", "head"]
    assert all(block.values for block in blocks[:-1]) and blocks[-1].values == 0
    alike = [
        tuple(layer.shapes for layer in table.layers[block.layers.start : block.layers.stop])
        for block in blocks
        if block.name.startswith("block")
    ]
    assert len(set(alike)) <= 1


def test_what_passes_between_blocks_is_tokens_times_width() -> None:
    assert set(CHAINED) == {name for name in MODEL_NAMES if name.startswith(("bert", "gpt2", "swin", "vit"))}
    for model, values, heads in (("bert-base", 128 * 768, 12), ("gpt2-xl", 1024 * 1600, 25), ("vit-b", 197 * 768, 12)):
        blocks = blocks_of(find_model(model))
        assert {block.values for block in blocks[:-1]} == {values}
        assert {block.heads for block in blocks if block.is_block} == {heads}
    swin = {block.name: block.values for block in blocks_of(find_model("swin-t"))}
    assert [swin[name] for name in ("embeddings", "stage1.1", "merge2", "stage4.1")] == [
        56 * 56 * 96,
        56 * 56 * 96,
        28 * 28 * 192,
        7 * 7 * 768,
    ]
    # 34 values of a token's width in 16 bits, by Korthikanti et al., 2022, of which dropout masks are three
    (kept,) = {block.kept for block in blocks_of(find_model("gpt2")) if block.is_block}
    assert kept / (1024 * 768) == 16
    assert [block.tied for block in blocks_of(find_model("gpt2")) if block.tied is not None] == [0]


def _stages(profile: Profile, model: str, cuts: tuple[int, ...], micro_batch: int, tp: int = 1) -> StageTimes:
    workload = Replay(model=model, scale=1000)
    made = workload.model(0)
    pieces = workload.pieces(made)
    assert list(chains.faults(made, pieces)) == []
    plan = Plan(pp=len(cuts), dp=1, tp=tp, micro_batch=micro_batch, cuts=cuts, placement=tuple(range(len(cuts) * tp)))
    return StageTimes(ComputeTimes(profile, made), made, pieces, plan, profile.batch_size)


def test_stages_take_the_measured_times_of_their_layers() -> None:
    profile = Measured(accelerator="h200").profile(replay("swin-t", 64, scale=1000))
    cuts = (0, 5, 9, 14)
    times = _stages(profile, "swin-t", cuts, 64)
    forward = [times.forward_s(stage) or 0.0 for stage in range(4)]
    backward = [times.backward_s(stage) or 0.0 for stage in range(4)]
    assert (sum(forward), sum(backward)) == pytest.approx((profile.forward_s, profile.backward_s))
    # when the gradients of the later stages are ready, by the timeline
    blocks = blocks_of(find_model("swin-t"))
    for stage, cut in list(enumerate(cuts))[1:]:
        later = sum(layer.parameters for layer in profile.layers[blocks[cut].layers.start :])
        share = profile.ready_s(later) / sum(layer.backward_s for layer in profile.layers)
        assert sum(backward[stage:]) == pytest.approx(share * profile.backward_s)
    # FLOPs would have it otherwise
    paced = _stages(Paced(step_s=0.1).profile(replay("swin-t", 64, scale=1000)), "swin-t", cuts, 64)
    by_flop = [(paced.forward_s(stage) or 0.0) / (0.1 / 3) for stage in range(4)]
    by_time = [one / profile.forward_s for one in forward]
    assert max(abs(a - b) for a, b in zip(by_flop, by_time, strict=True)) > 0.05


def test_micro_batches_take_what_batches_of_their_size_were_measured_to_take() -> None:
    profile = Measured(accelerator="h200").profile(replay("vit-b", 64, scale=1000))
    known = dict(profile.passes)
    assert list(known) == [32, 64]
    for samples, share in ((64, 1.0), (32, known[32] / known[64]), (8, known[32] / known[64]), (128, 2.0)):
        times = _stages(profile, "vit-b", (0, 7), samples)
        whole_s = (times.forward_s(0) or 0.0) + (times.forward_s(1) or 0.0)
        assert whole_s == pytest.approx(share * profile.forward_s)
    between = ComputeTimes(profile).share(48, 64)
    assert between == pytest.approx((1 + known[32] / known[64]) / 2)
    # of one batch alone nobody knows what a part of it takes
    for alone in ((), ((64, known[64]),)):
        assert ComputeTimes(replace(profile, passes=alone)).share(8, 64) == 1 / 8


def test_micro_batches_that_were_not_measured_are_marked() -> None:
    cpu = replay("bert-large", 8)

    def unknowns(params: str, target: str = "hybrid.Hybrid") -> tuple[str, ...]:
        strategy = f"testbed.worker.strategies.{target} {params}"
        return Measured(accelerator="h200").profile(replace(cpu, provenance={"strategy": strategy})).unknowns

    marked = [unknowns(text) for text in ('{"micro_batch": 2}', '{"micro_batch": null, "plan": "auto"}')]
    assert all("micro-batches of other than 8, 32 samples" in one[-1] for one in marked)
    for params, target in (('{"micro_batch": null}', "hybrid.Hybrid"), ("{}", "ddp.DDP")):
        assert not any("micro-batches" in one for one in unknowns(params, target))


def test_scaled_devices_scale_all_batches() -> None:
    whole = Measured(accelerator="h200").profile(replay("vit-b", 64))
    slower = Measured(accelerator="h200", step_s=10 * dict(whole.passes)[64]).profile(replay("vit-b", 64))
    for (_, fast_s), (_, slow_s) in zip(whole.passes, slower.passes, strict=True):
        assert slow_s == pytest.approx(10 * fast_s)
    # beyond the measured batches there is the shape of the nearest alone
    beyond = Measured(accelerator="h200", step_s=1.0).profile(replay("vit-b", 256))
    assert [size for size, _ in beyond.passes] == [256]
    assert Profile.from_json(whole.to_json()).passes == whole.passes
    assert all(a <= b for a, b in itertools.pairwise(one for _, one in whole.passes))
