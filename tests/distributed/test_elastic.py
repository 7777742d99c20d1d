"""Pipelines that get shorter while layers freeze, on real ranks: the training of one process that freezes the same."""

from __future__ import annotations

import dataclasses
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import InputError
from testbed.core.spec.run_spec import Part, RunSpec
from testbed.worker.strategies.hybrid import Hybrid
from testbed.worker.training.parts import build_parts
from tests.distributed.harness import Outcome, make_spec, part, run
from tests.unit.worker.chained import SAMPLES

RANKS, BATCH, STEPS = 4, 2, 18
EPOCH = SAMPLES // (RANKS * BATCH)
FROZEN = [2, 3, 4]
"""Of five layers, after the first three epochs, by thirds of what is active."""
LENGTHS = {None: [4, 4, 4, 4], "pipe": [4, 2, 1, 1], "data": [4, 2, 1, 1]}
"""Of the pipeline, before and after each."""
REPLICAS = {None: [1, 1, 1, 1], "pipe": [1, 1, 1, 1], "data": [1, 2, 4, 4]}


def spec(elastic: str | None, ranks: int = RANKS, cache: str | None = None, **given: Any) -> RunSpec:
    transform = part("transform", "freeze", {"alpha": 1 / 3, "cache": cache} | given.pop("transform_params", {}))
    if ranks > 1:
        given = {"strategy": "hybrid", "strategy_params": {"pp": 4, "elastic": elastic}} | given
    params = given.pop("workload_params", {"optimizer": "adamw"})
    batch_size = RANKS * BATCH // ranks
    made = make_spec(transform=transform, steps=STEPS, batch_size=batch_size, workers=ranks, **given)
    return dataclasses.replace(made, workload=Part("chained", "tests.distributed.chained_model.ChainedModel", params))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    return run(spec(None, ranks=1), tmp_path_factory.mktemp("alone")).losses(0)


def losses(found: Outcome) -> list[float]:
    """Of each step, the mean over the ranks that have the last stage."""
    told = [[e["loss"] for e in found.of("step") if e["step"] == step + 1] for step in range(STEPS)]
    there = [[loss for loss in step if loss is not None] for step in told]
    return [sum(step) / len(step) for step in there]


@pytest.mark.parametrize("elastic", LENGTHS)
@pytest.mark.parametrize("cache", [None, "1 MB"])
def test_the_training_is_that_of_one_process(
    elastic: str | None, cache: str | None, tmp_path: Path, alone: list[float]
) -> None:
    """Optimizers go on with their momenta on whatever rank: AdamW without them takes other steps."""
    found = run(spec(elastic, cache=cache), tmp_path)
    assert losses(found) == pytest.approx(alone, rel=1e-5)
    assert len({done["parameters_crc32"] for done in found.of("done")}) == 1
    assert [note["frozen"] for note in found.of("freeze")] == FROZEN
    plans = [(note["pp"], note["dp"]) for note in found.of("pipeline")]
    assert plans == list(zip(LENGTHS[elastic], REPLICAS[elastic], strict=True))
    looked_up = sum(note["whole"] + note["part"] for note in found.of("cache"))
    assert (looked_up > 0) == (cache is not None)


@pytest.mark.tier("test")
def test_norms_of_layers_are_those_of_whoever_has_them(tmp_path: Path) -> None:
    policy = {"policy": "grad_norm"}
    folders = [tmp_path / name for name in ("many", "one")]
    for folder in folders:
        folder.mkdir()
    found = run(spec("data", transform_params=policy), folders[0])
    one = run(spec(None, ranks=1, transform_params=policy), folders[1])
    first, expected = found.of("freeze")[0], one.of("freeze")[0]
    assert first["gradient_norms"] == pytest.approx(expected["gradient_norms"], rel=1e-4)
    assert all(norm > 0 for norm in first["gradient_norms"])
    assert [note["frozen"] for note in found.of("freeze")] == [note["frozen"] for note in one.of("freeze")]


def test_what_elastic_cannot_do_is_refused_at_once() -> None:
    for params, fault in (
        ({"pp": 4, "elastic": "both", "tp": 2}, "elastic=both"),
        ({"pp": 4, "elastic": "data", "tp": 2}, "tp=2: elastic pipelines share no layers"),
    ):
        with pytest.raises(InputError) as caught:
            build_parts(spec("data", strategy_params=params))
        assert fault in str(caught.value)
    given = {"pp": 4, "elastic": "data", "cuts": [0, 2, 4, 6], "placement": [0, 1, 2, 3], "dp": 1, "plan": "auto"}
    with pytest.raises(InputError) as caught:
        build_parts(spec("data", strategy_params=given))
    for fault in ("dp=1: elastic says", "cuts=[0, 2, 4, 6]: elastic says", "placement=[0, 1, 2, 3]", "plan=auto"):
        assert fault in str(caught.value), fault


class DiesHandingOver(Hybrid):
    """Whose rank 1 is gone when the second plan takes over from the first."""

    def hand_over(self) -> None:
        if self._context.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        super().hand_over()


def test_who_is_gone_at_a_transition_is_an_error_of_all_others_that_says_where(tmp_path: Path) -> None:
    whole = spec("data")
    target = f"{__name__}.{DiesHandingOver.__name__}"
    found = run(dataclasses.replace(whole, strategy=dataclasses.replace(whole.strategy, target=target)), tmp_path)
    assert found.status[1] == -signal.SIGKILL and 0 not in found.status.values()
    said = {fault["rank"]: fault["message"] for fault in found.of("fault")}
    assert set(said) == {0, 2, 3}
    for message in said.values():
        assert f"failed in step {EPOCH} " in message and "all_reduce" in message
    assert not found.of("done") and {note["frozen"] for note in found.of("freeze")} <= {FROZEN[0]}
