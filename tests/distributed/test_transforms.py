"""Models that change while real ranks train them: what is sent, what is learnt, with whom it goes together."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import InputError
from testbed.core.spec.run_spec import RunSpec
from testbed.worker.training.parts import build_parts
from tests.distributed.harness import Outcome, make_spec, part, run

WARM_UP, STEPS = 3, 6
FULL = 10 * 640 + 10 + 640 * 640 + 640 + 1024 * 640 + 640 + 64 * 32 * 9 + 64 + 32 * 9 + 32
"""Elements of `digits`' parameters."""
SAVED = (640 * 640 - 160 * 1280) + (1024 * 640 - 160 * 1664) + (64 * 288 - 16 * 352)
"""By factors at a quarter of the rank; the first layer and the last stay as they are."""


def spec(name: str = "pufferfish", **given: Any) -> RunSpec:
    params = {"warm_up_steps": WARM_UP} if name == "pufferfish" else {}
    transform = part("transform", name, params | given.pop("transform_params", {}))
    return make_spec(transform=transform, workload="digits", steps=STEPS, **given)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run(spec("none"), tmp_path_factory.mktemp("full"))


def check(found: Outcome, ranks: int = 2) -> dict[str, Any]:
    """What the model became, where all ranks ended with the same one."""
    assert len({done["parameters_crc32"] for done in found.of("done")}) == 1
    assert {len(found.losses(rank)) for rank in range(ranks)} == {STEPS}
    (note,) = found.of("transform")
    assert (note["rank"], note["step"]) == (0, WARM_UP)
    assert (note["parameters_before"], note["parameters"]) == (FULL, FULL - SAVED)
    return note


@pytest.mark.tier("test")
def test_before_the_switch_the_model_is_the_full_one_and_after_it_less_is_sent(tmp_path: Path, full: Outcome) -> None:
    found = run(spec(), tmp_path)
    note = check(found)
    assert [(layer["layer"], layer["rank"]) for layer in note["factorised"]] == [("2", 16), ("6", 160), ("8", 160)]
    assert set(note["kept"]) == {"0", "10"}
    for rank in range(2):
        assert found.losses(rank)[:WARM_UP] == full.losses(rank)[:WARM_UP]
        assert found.payloads(rank) == [4 * FULL] * WARM_UP + [4 * (FULL - SAVED)] * (STEPS - WARM_UP)
        # the loss of the same batch differs by what the weights have lost
        assert found.losses(rank)[WARM_UP] != full.losses(rank)[WARM_UP]
        assert found.losses(rank)[WARM_UP] < 1.5 * found.losses(rank)[0]
    assert full.payloads(0) == [4 * FULL] * STEPS


@pytest.mark.parametrize(
    ("strategy", "compressor"),
    [
        ("dear", "none"),
        ("torch_ddp", "none"),
        ("pad_kfac", "none"),
        ("diloco", "none"),
        ("gossip", "topk"),
        ("dear", "topk"),
        ("ddp", "onebit_adam"),
    ],
)
def test_strategies_and_compressors_begin_anew_with_the_changed_model(
    tmp_path: Path, strategy: str, compressor: str
) -> None:
    # the switch is no multiple of it: K-FAC's first step after it has to take factors all the same
    rarely = {"factor_every": 2, "inverse_every": 2} if strategy == "pad_kfac" else {}
    found = run(spec(strategy=strategy, compressor=compressor, strategy_params=rarely), tmp_path)
    check(found)
    if strategy != "diloco":  # which exchanges once in fifty steps
        assert found.payloads(0)[-1] < found.payloads(0)[WARM_UP - 1]
    assert all(b < 2 * a for a, b in itertools.pairwise(found.losses(0)[WARM_UP:]))


def test_rounds_of_a_server_begin_anew_with_the_changed_model(tmp_path: Path) -> None:
    found = run(spec(strategy="parameter_server", strategy_params={"local_steps": 2}, workers=3), tmp_path)
    check(found, ranks=3)
    rounds = [(event["step"], event["round"], event["clients"]) for event in found.of("round")]
    # what is left of a round is averaged before the switch, and at the end
    assert rounds == [(2, 0, 2), (3, 1, 2), (5, 0, 2), (6, 1, 2)]
    full, changed = (event["model_bytes"] for event in found.of("last_model"))
    assert (full, changed) == (4 * FULL, 4 * (FULL - SAVED))


def test_powerfish_sends_the_factors_as_they_are(tmp_path: Path) -> None:
    found = run(spec(compressor="powersgd", transform_params={"compress_after": False}), tmp_path)
    check(found)
    assert found.payloads(0)[0] < FULL
    assert found.payloads(0)[WARM_UP:] == [4 * (FULL - SAVED)] * (STEPS - WARM_UP)


@pytest.mark.tier("test")
def test_stable_ranks_that_hardly_change_end_the_full_model(tmp_path: Path) -> None:
    """With a wide enough epsilon they have settled once the tail is full. A large learning rate makes a few singular
    values far larger than the others."""
    params = {"observations": 4, "window": 0.5, "tail": 0.5, "epsilon": 400.0, "rewarm_steps": 2}
    found = run(spec("cuttlefish", transform_params=params, workload_params={"learning_rate": 0.05}), tmp_path)
    (note,) = found.of("transform")
    assert {layer["layer"] for layer in note["factorised"]} == {"2", "6", "8"}
    assert all(0 < layer["rank"] < layer["full_rank"] / 2 for layer in note["factorised"])
    assert found.payloads(0)[-1] == 4 * note["parameters"] < found.payloads(0)[0]
    assert len({done["parameters_crc32"] for done in found.of("done")}) == 1


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"transform_params": {"warm_up_steps": 6}}, "leaves none of the run's 6 steps"),
        ({"compressor": "signsgd", "transform_params": {"rewarm_steps": 5}}, "compressor=signsgd takes over the opt"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(given: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        build_parts(spec(**given))
