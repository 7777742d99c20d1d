"""A server and its clients, as real processes: what plain training and data parallelism come to, and what a round sends
and outlives."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.benchmarks.learning.lockstep_training import LockstepTraining
from testbed.core.spec.run_spec import RunSpec
from testbed.worker.methods.parameter_server.messages.schema import Schema
from testbed.worker.methods.parameter_server.transport.frames import frame_bytes
from testbed.worker.training.parts import build_parts
from tests.distributed.harness import Outcome, Workers, make_spec, run
from tests.distributed.trainings import Answers, Case, parameters, play

STEPS = 6
EXACT = {"uplink": {"payload": "params"}, "downlink": {"payload": "params"}}
"""Parameters themselves, raw: no difference is taken, so that none is rounded."""
TIGHT = {"_target_": "testbed.worker.methods.parameter_server.bounds.baselines.Fixed", "alpha": 0.001}
CASES: dict[str, dict[str, Any]] = {
    "exact": {"strategy_params": {"local_steps": 1, **EXACT}},
    "differences": {"strategy_params": {"local_steps": 1}},
    "three steps": {"strategy_params": {"local_steps": 3}},
    "a part of a round": {"strategy_params": {"local_steps": 4}},
    "sz3": {"strategy_params": {"local_steps": 2}, "compressor": "sz3"},
    "sz3, tight": {"strategy_params": {"local_steps": 1, "bound": TIGHT}, "compressor": "sz3"},
    "topk": {"strategy_params": {"local_steps": 2}, "compressor": "topk"},
    "int8": {"strategy_params": {"local_steps": 2}, "compressor": "int8"},
    "sz3, parameters": {
        "strategy_params": {"local_steps": 2, "bound": TIGHT, "uplink": {"payload": "params", "dither": True}},
        "compressor": "sz3",
    },
    "gradients": {"strategy_params": {"local_steps": 1, "uplink": {"payload": "grad"}, "downlink": EXACT["downlink"]}},
    "gradients, sz3": {
        "strategy_params": {"local_steps": 1, "uplink": {"payload": "grad", "feedback": True}},
        "compressor": "sz3",
    },
    "three steps, dilated": {"strategy_params": {"local_steps": 3}, "dilation": 2.0},
    "ddp": {"strategy": "ddp"},
}
SERVED = {"_target_": "tests.distributed.served_model.ServedModel"}
ADAPTIVE = {"_target_": "testbed.worker.methods.parameter_server.bounds.adaptive.AdaptiveBound"}
JUMPS = [8, 9, 10, 11]
"""Of rounds 4 and 5, of two steps each."""


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
        parts.workload,
        lambda: build_parts(spec).compressor,
        spec.topology,
        seed=spec.seed,
        batch_size=spec.batch_size,
        steps=STEPS,
    )
    for _ in range(STEPS):
        training.step()
    return training


def _flat(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().view(-1) for p in model.parameters()])


@pytest.mark.parametrize(
    ("name", "most"), [("exact", 1e-5), ("differences", 1e-5), ("sz3, tight", 0.1), ("gradients", 1e-5)]
)
def test_with_one_local_step_it_is_data_parallelism_of_its_clients(
    name: str, most: float, four: Answers, folder: Path
) -> None:
    """Momenta go on, and the mean of three steps is a step of the mean gradient; gradients are as well sent as such."""
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


def test_dilation_changes_nothing_of_what_is_learnt_and_sent(four: Answers) -> None:
    for answer in four:
        for key in ("losses", "crc32", "sent"):
            assert answer["three steps, dilated"][key] == answer["three steps"][key]


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
    *notes, last = four[0]["sz3"]["notes"]
    assert (last["event"], last["round"], last["left"]) == ("last_model", 3, {})
    assert [note["round"] for note in notes] == [0, 1, 2] and not any(note["whole"] for note in notes)
    assert [(note["alpha"], note["bound"]["lossless"]) for note in notes] == [(0.5, True), (0.5, False), (0.5, False)]
    assert all(note["clients"] == 3 and not note["left"] for note in notes)
    assert all(note["alpha"] is None is note["bound"] for note in four[0]["topk"]["notes"][:-1])
    assert notes[2]["update_bytes"] < 0.5 * four[0]["differences"]["notes"][2]["update_bytes"]


def test_one_client_with_all_data_is_plain_training(tmp_path: Path) -> None:
    found = play([Case(name="one", spec=_spec(strategy_params={"local_steps": 2, **EXACT}), end=STEPS)], 2, tmp_path)
    plain = play([Case(name="plain", spec={"strategy": "ddp"}, end=STEPS)], 1, tmp_path)
    assert found[1]["one"]["losses"] == plain[0]["plain"]["losses"]
    assert {answer["one"]["crc32"] for answer in found} == {plain[0]["plain"]["crc32"]}


FED = {"cutoff": 100, "feedback": True}


def _served(**given: Any) -> dict[str, Any]:
    """Models go down raw, so that what clients have is what the server has."""
    params = {
        "local_steps": 2,
        "bound": ADAPTIVE,
        "uplink": {"cutoff": 100},
        "downlink": {"codec": "raw", "payload": "params"},
    }
    workload = SERVED | given.pop("workload_params", {})
    params |= given.pop("strategy_params", {})
    return _spec(strategy_params=params, compressor="sz3", workload_params=workload, batch_size=16, **given)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """A server and two clients."""
    coded = _served(strategy_params={"downlink": {"cutoff": 100}, "uplink": FED | {"importance": True}})
    objecting = _served(workload_params={"objects": True}, strategy_params={"downlink": {"cutoff": 100}})
    cases = [
        Case(name="jumps", spec=_served(workload_params={"jumps": JUMPS}), end=18),
        Case(name="objects", spec=objecting, end=8),
        Case(name="coded", spec=coded, end=8),
    ]
    return play(cases, 3, tmp_path_factory.mktemp("two"))


def test_after_a_divergence_a_run_goes_on_from_where_it_was_good(two: Answers) -> None:
    """The jump is seen in rounds 4 and 5; the last round that was good is 3, and it began with what is gone back to."""
    answers = [answer["jumps"] for answer in two]
    *notes, _ = answers[0]["notes"]
    assert [note["bound"]["why"] == "divergence" for note in notes] == [False] * 5 + [True] + [False] * 3
    assert [note["whole"] for note in notes] == [False] * 6 + [True] + [False] * 2
    assert notes[5]["bound"]["restore"] and notes[6]["bound"]["lossless"] and notes[6]["alpha"] == 0.01
    assert notes[6]["update_bytes"] > 2 * notes[7]["update_bytes"]
    for answer in answers[1:]:
        losses = answer["losses"]
        assert losses[8] > 10 * losses[7] and losses[12] == losses[6]
        assert losses[13] != losses[7], "momenta are forgotten"
        assert losses[17] < losses[12]


def test_what_held_out_samples_object_to_goes_down_exactly(two: Answers) -> None:
    *notes, _ = two[0]["objects"]["notes"]
    assert [note["bound"]["violations"] for note in notes] == [0, 3, 3, 3]
    assert all(note["bound"]["lossless"] for note in notes)
    loose = two[0]["coded"]["notes"]
    assert notes[1]["model_bytes"] > 2 * loose[1]["model_bytes"]


def test_a_round_goes_on_without_a_client_that_died(tmp_path: Path) -> None:
    spec = make_spec("parameter_server", workers=4, steps=30, strategy_params={"local_steps": 2})

    def on_event(event: dict[str, Any], workers: Workers) -> None:
        if event["event"] == "step" and event["rank"] == 2 and event["step"] == 5:
            workers[2].send_signal(signal.SIGKILL)

    outcome: Outcome = run(spec, tmp_path, on_event=on_event, stops={2: {5}})
    rounds = outcome.of("round")
    assert len(rounds) == 15 and rounds[0]["clients"] == 3 and rounds[-1]["clients"] == 2
    left = rounds[-1]["left"]
    assert list(left) == ["1"] and "connection of client 1 is over" in left["1"]
    assert len(outcome.losses(1)) == len(outcome.losses(3)) == 30
    assert outcome.status == {0: 0, 1: 0, 2: -signal.SIGKILL, 3: 0} and not outcome.of("fault")
