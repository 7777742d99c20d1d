"""Replicas that meet now and then: against the papers' formulas, replica after replica in one process."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from testbed.core.errors import InputError
from testbed.core.spec.run_spec import RunSpec
from testbed.worker.training.parts import build_parts
from tests.distributed.harness import make_spec, run

STEPS = 12


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def _flat(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().view(-1) for p in model.parameters()])


def _put(model: nn.Module, flat: Tensor) -> None:
    nn.utils.vector_to_parameters(flat, model.parameters())


class _Replicas:
    """DiLoCo in one piece: inner steps, then the outer step of all, at once or `overlap` steps late."""

    def __init__(self, spec: RunSpec, *, rate: float, momentum: float, mix: float = 0.0) -> None:
        self.spec, self.rate, self.momentum, self.mix = spec, rate, momentum, mix
        self.workload = build_parts(spec).workload
        first = self.workload.model(spec.seed)
        self.models = [copy.deepcopy(first) for _ in range(spec.workers)]
        self.optimizers = [self.workload.optimizer(model.parameters()) for model in self.models]
        self.anchor, self.speed = _flat(first), torch.zeros_like(_flat(first))

    def inner(self, step: int) -> list[float]:
        losses = []
        for rank, (model, optimizer) in enumerate(zip(self.models, self.optimizers, strict=True)):
            batch = self.workload.batch(
                step, rank=rank, world_size=self.spec.workers, batch_size=self.spec.batch_size, seed=self.spec.seed
            )
            optimizer.zero_grad()
            loss = self.workload.loss(model, batch)
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        return losses

    def pseudo_gradient(self) -> Tensor:
        return torch.stack([self.anchor - _flat(model) for model in self.models]).mean(0)

    def outer(self, gradient: Tensor) -> None:
        self.speed = self.momentum * self.speed + gradient
        self.anchor = self.anchor - self.rate * (gradient + self.momentum * self.speed)
        for model in self.models:
            _put(model, (1 - self.mix) * self.anchor + self.mix * _flat(model))


def _spec(**params: Any) -> RunSpec:
    return make_spec("diloco", workers=3, steps=STEPS, evaluate_every=4, strategy_params=params)


@pytest.mark.parametrize(("rate", "momentum"), [(0.7, 0.9), (1.0, 0.0)], ids=["diloco", "local SGD"])
def test_it_takes_the_outer_steps_of_the_paper(rate: float, momentum: float, tmp_path: Path) -> None:
    spec = _spec(sync_every=4, outer_learning_rate=rate, outer_momentum=momentum)
    outcome = run(spec, tmp_path)
    assert set(outcome.status.values()) == {0}, outcome.of("fault")
    ours = _Replicas(spec, rate=rate, momentum=momentum)
    for step in range(STEPS):
        losses = ours.inner(step)
        assert [outcome.losses(rank)[step] for rank in range(3)] == pytest.approx(losses, rel=1e-4)
        if (step + 1) % 4 == 0:
            ours.outer(ours.pseudo_gradient())
    assert len({done["parameters_crc32"] for done in outcome.of("done")}) == 1
    assert outcome.of("evaluation")[-1]["value"] == pytest.approx(ours.workload.evaluate(ours.models[0]), abs=0.01)
    (model,) = outcome.of("model")
    sent = [sum(step) for step in zip(*(outcome.payloads(rank) for rank in range(3)), strict=True)]
    assert sent == [0, 0, 0, model["dense_bytes_step"]] * 3
    assert [done["finish_payload_bytes"] for done in outcome.of("done")] == [0, 0, 0]


def test_what_arrives_late_is_mixed_in(tmp_path: Path) -> None:
    spec = _spec(sync_every=4, overlap_steps=2, mix=0.5)
    outcome = run(spec, tmp_path)
    assert set(outcome.status.values()) == {0}, outcome.of("fault")
    ours = _Replicas(spec, rate=0.7, momentum=0.9, mix=0.5)
    due: dict[int, Tensor] = {}
    for step in range(STEPS):
        losses = ours.inner(step)
        assert [outcome.losses(rank)[step] for rank in range(3)] == pytest.approx(losses, rel=1e-4)
        if (step + 1) % 4 == 0:
            due[step + 3] = ours.pseudo_gradient()
        if step + 1 in due:
            ours.outer(due[step + 1])
    assert len({done["parameters_crc32"] for done in outcome.of("done")}) == 1


@pytest.mark.parametrize("steps", [15, 20])
def test_streaming_as_it_is_configured_ends_with_all_replicas_alike(steps: int, tmp_path: Path) -> None:
    params = {"sync_every": 15}
    outcome = run(make_spec("streaming_diloco", workers=2, steps=steps, strategy_params=params), tmp_path)
    assert set(outcome.status.values()) == {0}, outcome.of("fault")
    assert len({done["parameters_crc32"] for done in outcome.of("done")}) == 1


def test_fragments_take_turns_and_all_agree_in_the_end(tmp_path: Path) -> None:
    outcome = run(_spec(sync_every=6, fragments=2), tmp_path)
    assert set(outcome.status.values()) == {0}, outcome.of("fault")
    sent = [sum(step) for step in zip(*(outcome.payloads(rank) for rank in range(3)), strict=True)]
    assert [step for step, size in enumerate(sent, 1) if size] == [6, 9, 12]
    (model,) = outcome.of("model")
    assert sent[5] + sent[8] == model["dense_bytes_step"]
    assert len({done["parameters_crc32"] for done in outcome.of("done")}) == 1
    assert sum(done["finish_payload_bytes"] for done in outcome.of("done")) == sent[8]  # of the one that trained on


@pytest.mark.parametrize("compressor", ["int4", "topk"])
def test_what_replicas_have_learnt_can_be_compressed(compressor: str, tmp_path: Path) -> None:
    spec = make_spec("diloco", compressor, workers=2, steps=STEPS, workload="digits", strategy_params={"sync_every": 3})
    outcome = run(spec, tmp_path)
    assert set(outcome.status.values()) == {0}, outcome.of("fault")
    (model,) = outcome.of("model")
    assert 0 < sum(map(sum, (outcome.payloads(rank) for rank in range(2)))) < 4 * 0.3 * model["dense_bytes_step"]
    assert outcome.losses(0)[-1] < 0.8 * outcome.losses(0)[0]
    assert len({done["parameters_crc32"] for done in outcome.of("done")}) == 1


def test_a_region_is_one_replica(tmp_path: Path) -> None:
    """Two of four workers share a region and must stay alike in every step; regions part ways until they meet."""
    params = {"sync_every": 4, "replicas": "region", "collective": "hierarchical"}
    spec = make_spec("diloco", workers=4, steps=4, batch_size=16, strategy_params=params)
    outcome = run(spec, tmp_path)
    assert set(outcome.status.values()) == {0}, outcome.of("fault")
    (tmp_path / "two").mkdir()
    two = run(make_spec("diloco", workers=2, steps=4, strategy_params={"sync_every": 4}), tmp_path / "two")
    assert len({done["parameters_crc32"] for done in outcome.of("done")}) == 1
    # ranks 0 and 1 have between them the batch that rank 0 of two has
    for region in range(2):
        pair = zip(outcome.losses(2 * region), outcome.losses(2 * region + 1), strict=True)
        assert [sum(losses) / 2 for losses in pair] == pytest.approx(two.losses(region), rel=1e-4)


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"sync_every": 0, "mix": 2}, ["sync_every=0", "mix=2"]),
        ({"sync_every": 4, "fragments": 5}, ["fragments=5: at most one a step"]),
        ({"sync_every": 4, "fragments": 2, "overlap_steps": 2}, ["overlap_steps=2: turns are 2 steps apart"]),
    ],
)
def test_bad_parameters_are_named_all_at_once(params: dict[str, Any], said: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        build_parts(_spec(**params))
    assert all(text in str(caught.value) for text in said)
