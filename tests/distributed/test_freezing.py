"""Layers that freeze while real ranks train them: what is sent, what is learnt, with whom it goes together."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import InputError
from testbed.core.spec.run_spec import Part, RunSpec
from testbed.worker.interfaces.workload import parameters_crc32
from testbed.worker.training.parts import build_parts
from tests.distributed.chained_model import ChainedModel
from tests.distributed.harness import Outcome, make_spec, part, run
from tests.unit.worker.chained import LAYERS, SAMPLES, chain

RANKS, BATCH, STEPS = 2, 10, 9
EPOCH = SAMPLES // (RANKS * BATCH)
FROZEN = [3, 4, 5]
"""After the first three epochs, by halves of what is active."""


def spec(**given: Any) -> RunSpec:
    transform = part("transform", "freeze", {"alpha": 0.5} | given.pop("transform_params", {}))
    params = given.pop("workload_params", {})
    made = make_spec(transform=transform, **{"steps": STEPS, "batch_size": BATCH, "workers": RANKS} | given)
    workload = Part("chained", "tests.distributed.chained_model.ChainedModel", params)
    return dataclasses.replace(made, workload=workload)


def active_bytes(frozen: int) -> int:
    model = chain()
    model.freeze(frozen)
    return 4 * sum(p.numel() for p in model.parameters() if p.requires_grad)


def check(found: Outcome) -> None:
    assert len({done["parameters_crc32"] for done in found.of("done")}) == 1
    assert {len(found.losses(rank)) for rank in range(RANKS)} == {STEPS}
    notes = found.of("freeze")
    assert [(note["rank"], note["step"], note["frozen"]) for note in notes] == [
        (0, EPOCH * (epoch + 1), frozen) for epoch, frozen in enumerate(FROZEN)
    ]
    assert [4 * note["parameters"] for note in notes] == [active_bytes(frozen) for frozen in FROZEN]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run(spec(), tmp_path_factory.mktemp("plain"))


@pytest.mark.tier("test")
def test_what_is_frozen_is_not_sent(plain: Outcome) -> None:
    check(plain)
    expected = [active_bytes(frozen) for frozen in (0, *FROZEN) for _ in range(EPOCH)]
    expected += expected[-1:] * (STEPS - len(expected))
    for rank in range(RANKS):
        assert plain.payloads(rank) == expected


def test_with_a_cache_all_learn_the_same_and_samples_are_found_that_a_rank_has_had(
    tmp_path: Path, plain: Outcome
) -> None:
    found = run(spec(transform_params={"cache": "1 MB"}), tmp_path)
    check(found)
    for rank in range(RANKS):
        assert found.losses(rank) == pytest.approx(plain.losses(rank), rel=1e-6)
        notes = found.of("cache", rank)
        assert [note["epoch"] for note in notes] == [2, 3, 4, 5]
        looked_up = [note["whole"] + note["part"] + note["none"] for note in notes]
        assert looked_up == [SAMPLES // RANKS] * 3 + [BATCH]
        # samples are dealt anew each epoch: what comes again is chance, but what a rank has had it knows
        assert (notes[0]["whole"], notes[0]["part"], notes[0]["cached_samples"]) == (0, 0, SAMPLES // RANKS)
        assert all(a["cached_samples"] <= b["cached_samples"] for a, b in itertools.pairwise(notes))
        assert notes[-1]["cached_samples"] == SAMPLES // RANKS + sum(note["none"] for note in notes[1:])


def test_an_optimizer_goes_on_with_its_momenta(plain: Outcome) -> None:
    """As one process that never made a new optimizer, on the batches of both ranks."""
    workload, model = ChainedModel(), chain()
    optimizer = workload.optimizer(model.parameters())
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        loss = workload.loss(model, workload.batch(step, rank=0, world_size=1, batch_size=RANKS * BATCH, seed=0))
        loss.backward()
        optimizer.step()
        mean = sum(plain.losses(rank)[step] for rank in range(RANKS)) / RANKS
        assert mean == pytest.approx(loss.item(), rel=1e-5)
        if (step + 1) % EPOCH == 0 and step // EPOCH < len(FROZEN):
            model.freeze(FROZEN[step // EPOCH])


@pytest.mark.parametrize(
    ("strategy", "compressor"),
    [("dear", "none"), ("diloco", "none"), ("ddp", "onebit_adam")],
)
def test_strategies_and_compressors_go_on_with_fewer_layers(tmp_path: Path, strategy: str, compressor: str) -> None:
    found = run(spec(strategy=strategy, compressor=compressor, transform_params={"cache": "1 MB"}), tmp_path)
    check(found)
    if strategy != "diloco":  # which exchanges once in fifty steps
        assert found.payloads(0)[-1] < found.payloads(0)[1] / 4


def test_all_ranks_freeze_what_rank_0_has_found_by_gradients(tmp_path: Path) -> None:
    found = run(spec(transform_params={"policy": "grad_norm"}, strategy="dear"), tmp_path)
    assert len({done["parameters_crc32"] for done in found.of("done")}) == 1
    notes = found.of("freeze")
    assert notes
    for note in notes:
        norms = note["gradient_norms"]
        assert len(norms) == LAYERS and max(norms) > 0
    assert found.payloads(0)[-1] < found.payloads(0)[1]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"transform_params": {"epoch_steps": 9}}, "transform.epoch_steps=9: the run has 9 steps"),
        (
            {"transform_params": {"policy": "grad_norm"}, "compressor": "signsgd"},
            "compressor=signsgd takes over the opt",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(given: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        build_parts(spec(**given))


def test_a_cache_beside_random_shifts_is_refused() -> None:
    shifting = part("workload", "tiny_vit", {"augment": 2})
    with pytest.raises(InputError, match=r"transform\.cache=1000000 B: the workload makes something else of a sample"):
        build_parts(dataclasses.replace(spec(transform_params={"cache": "1 MB"}), workload=shifting))


def test_initial_parameters_are_those_of_the_seed() -> None:
    assert parameters_crc32(build_parts(spec()).workload.model(3)) == parameters_crc32(chain(3))
