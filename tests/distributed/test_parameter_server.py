"""A server and its clients, as real processes: what plain training and data parallelism come to, and what a round sends
and outlives."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from testbed.core.frames import frame_bytes
from testbed.core.spec import RunSpec
from testbed.worker.laws.training import LockstepTraining
from testbed.worker.parts import build_parts
from testbed.worker.server.schema import Schema
from tests.distributed.harness import Outcome, Workers, make_spec, run
from tests.distributed.trainings import Answers, Case, parameters, play

STEPS = 6
EXACT = {"uplink": {"payload": "params"}, "downlink": {"payload": "params"}}
"""Parameters themselves, raw: no difference is taken, so that none is rounded."""
TIGHT = {"_target_": "testbed.core.bound_baselines.Fixed", "alpha": 0.001}
CASES: dict[str, dict[str, Any]] = {
    "exact": {"strategy_params": {"local_steps": 1, **EXACT}},
    "differences": {"strategy_params": {"local_steps": 1}},
    "three steps": {"strategy_params": {"local_steps": 3}},
    "a part of a round": {"strategy_params": {"local_steps": 4}},
    "sz3": {"strategy_params": {"local_steps": 2}, "compressor": "sz3"},
    "sz3, tight": {"strategy_params": {"local_steps": 1, "bound": TIGHT}, "compressor": "sz3"},
    "topk": {"strategy_params": {"local_steps": 2}, "compressor": "topk"},
    "int8": {"strategy_params": {"local_steps": 2}, "compressor": "int8"},
    "ddp": {"strategy": "ddp"},
}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def _spec(**given: Any) -> dict[str, Any]:
    return {"strategy": "parameter_server", "evaluate_every": 2, **given}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("four")


@pytest.fixture(scope="module")
def four(folder: Path) -> Answers:
    """A server and three clients."""
    return play([Case(name=name, spec=_spec(**given), end=STEPS) for name, given in CASES.items()], 4, folder)


def _lockstep(spec: RunSpec) -> LockstepTraining:
    """Data parallelism of three workers."""
    parts = build_parts(spec)
    training = LockstepTraining(
        parts.workload, lambda: build_parts(spec).compressor, spec.topology, seed=spec.seed, batch_size=spec.batch_size
    )
    for _ in range(STEPS):
        training.step()
    return training


def _flat(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().view(-1) for p in model.parameters()])


@pytest.mark.parametrize(("name", "most"), [("exact", 1e-5), ("differences", 1e-5), ("sz3, tight", 0.1)])
def test_with_one_local_step_it_is_data_parallelism_of_its_clients(
    name: str, most: float, four: Answers, folder: Path
) -> None:
    """Momenta go on, and the mean of three steps is a step of the mean gradient."""
    spec = make_spec(workers=3)
    initial, expected = _flat(build_parts(spec).workload.model(spec.seed)), _flat(_lockstep(spec).model)
    for rank in range(4):
        found = parameters(folder, name, rank)
        assert float((found - expected).norm() / (expected - initial).norm()) < most


@pytest.mark.parametrize("name", [name for name in CASES if name != "ddp"])
def test_all_end_with_the_same_parameters_and_the_server_trains_on_nothing(name: str, four: Answers) -> None:
    answers = [answer[name] for answer in four]
    assert len({answer["crc32"] for answer in answers}) == 1
    assert answers[0]["losses"] == [None] * STEPS
    losses = [sum(step) for step in zip(*(answer["losses"] for answer in answers[1:]), strict=True)]
    assert losses[-1] < 0.97 * losses[0]


def test_what_is_sent_is_what_frames_take(four: Answers) -> None:
    """Raw: a model to each client and an update from each, a round, and the last model."""
    model = build_parts(make_spec(workers=4)).workload.model(0)
    schema = Schema.of(model)
    items, raw = len(schema.items), sum(4 * item.numel for item in schema.items)
    whole = frame_bytes(items, raw)
    for name, rounds in (("exact", 6), ("three steps", 2), ("a part of a round", 2)):
        sent = [answer[name]["sent"] for answer in four]
        assert sent == [3 * (rounds + 1) * whole] + [rounds * whole] * 3
    assert sum(answer["sz3"]["sent"] for answer in four) < 0.5 * sum(answer["differences"]["sent"] for answer in four)


def test_the_server_notes_each_round(four: Answers) -> None:
    assert all(not answer["sz3"]["notes"] for answer in four[1:])
    notes = four[0]["sz3"]["notes"]
    assert [note["round"] for note in notes] == [0, 1, 2]
    assert [(note["alpha"], note["bound"]["lossless"]) for note in notes] == [(0.3, True), (0.3, False), (0.3, False)]
    assert all(note["clients"] == 3 and not note["left"] for note in notes)
    assert all(note["alpha"] is None is note["bound"] for note in four[0]["topk"]["notes"])
    assert notes[2]["update_bytes"] < 0.5 * four[0]["differences"]["notes"][2]["update_bytes"]


def test_one_client_with_all_data_is_plain_training(tmp_path: Path) -> None:
    found = play([Case(name="one", spec=_spec(strategy_params={"local_steps": 2, **EXACT}), end=STEPS)], 2, tmp_path)
    plain = play([Case(name="plain", spec={"strategy": "ddp"}, end=STEPS)], 1, tmp_path)
    assert found[1]["one"]["losses"] == plain[0]["plain"]["losses"]
    assert {answer["one"]["crc32"] for answer in found} == {plain[0]["plain"]["crc32"]}


def test_a_round_goes_on_without_a_client_that_died(tmp_path: Path) -> None:
    spec = make_spec("parameter_server", workers=4, steps=30, strategy_params={"local_steps": 2})

    def on_event(event: dict[str, Any], workers: Workers) -> None:
        if event["event"] == "step" and event["rank"] == 2 and event["step"] == 5:
            workers[2].send_signal(signal.SIGKILL)

    outcome: Outcome = run(spec, tmp_path, on_event=on_event)
    rounds = outcome.of("round")
    assert len(rounds) == 15 and rounds[0]["clients"] == 3 and rounds[-1]["clients"] == 2
    left = rounds[-1]["left"]
    assert list(left) == ["1"] and "connection of 1 is over" in left["1"]
    assert len(outcome.losses(1)) == len(outcome.losses(3)) == 30
    assert outcome.status == {0: 0, 1: 0, 2: -signal.SIGKILL, 3: 0} and not outcome.of("fault")
