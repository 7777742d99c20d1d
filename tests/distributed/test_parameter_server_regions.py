"""A parameter server with servers in regions, as real processes: what it comes to, what crosses between regions, and
what a region outlives."""

from __future__ import annotations

import dataclasses
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.benchmarks.learning.lockstep_training import LockstepTraining
from testbed.core.errors import EXIT_LEFT
from testbed.core.spec.run_spec import Part
from testbed.orchestrator.run.workers.messages import checked_message
from testbed.worker.methods.parameter_server.messages.schema import Schema
from testbed.worker.methods.parameter_server.transport.frames import frame_bytes
from testbed.worker.training.parts import build_parts
from tests.distributed.crashing import DEATH, PAUSE, CrashingInRegion
from tests.distributed.harness import Workers, make_spec, run
from tests.distributed.trainings import Answers, Case, parameters, play

REGIONS = [2, 3]
SERVER, TRAINERS = 2, (1, 3, 4)
"""Ranks: of the second region, and those that train."""
RANKS, STEPS = 5, 6
LOCAL_STEPS, ROUNDS = 2, 6
PARAMS = {"payload": "params"}
FED = {"local_steps": 2, "uplink": {"cutoff": 100, "feedback": True}, "downlink": {"cutoff": 100}}
TIGHT = {"_target_": "testbed.worker.methods.parameter_server.bounds.baselines.Fixed", "alpha": 0.001}
CASES: dict[str, dict[str, Any]] = {
    "exact": {"strategy_params": {"local_steps": 1, "uplink": PARAMS, "downlink": PARAMS}},
    "differences": {"strategy_params": {"local_steps": 1}},
    "gradients": {"strategy_params": {"local_steps": 1, "uplink": {"payload": "grad"}, "downlink": PARAMS}},
    "sz3, tight": {"strategy_params": {"local_steps": 1, "bound": TIGHT, "decoders": 1}, "compressor": "sz3"},
    "sz3": {"strategy_params": FED, "compressor": "sz3"},
    "groups": {"strategy_params": FED | {"group_rounds": 2}, "compressor": "sz3"},
}


def _spec(**given: Any) -> dict[str, Any]:
    params = given.pop("strategy_params") | {"region_servers": True}
    return {"strategy": "parameter_server", "regions": REGIONS, "strategy_params": params, **given}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("five")


@pytest.fixture(scope="module")
def five(folder: Path) -> Answers:
    """A server and its client; a region's server and two clients."""
    torch.set_num_threads(1)
    cases = [Case(name=name, spec=_spec(**given), end=STEPS) for name, given in CASES.items()]
    return play(cases, RANKS, folder)


def _flat(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().view(-1) for p in model.parameters()])


@pytest.mark.parametrize(
    ("name", "most"), [("exact", 1e-5), ("differences", 1e-5), ("gradients", 1e-5), ("sz3, tight", 0.1)]
)
def test_with_one_local_step_it_is_data_parallelism_of_those_who_train(
    name: str, most: float, five: Answers, folder: Path
) -> None:
    """As it is without servers in regions: the mean of regions' means, weighted by samples, is that of all."""
    spec = make_spec(workers=len(TRAINERS))
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
    initial, expected = _flat(parts.workload.model(spec.seed)), _flat(training.model)
    for rank in range(RANKS):
        found = parameters(folder, name, rank)
        assert float((found - expected).norm() / (expected - initial).norm()) < most


@pytest.mark.parametrize("name", CASES)
def test_all_end_with_the_same_parameters_and_servers_train_on_nothing(name: str, five: Answers) -> None:
    answers = [answer[name] for answer in five]
    assert len({answer["crc32"] for answer in answers}) == 1
    assert answers[0]["losses"] == answers[SERVER]["losses"] == [None] * STEPS
    losses = [sum(step) for step in zip(*(answers[rank]["losses"] for rank in TRAINERS), strict=True)]
    assert losses[-1] < 0.97 * losses[0]


def test_a_region_costs_rank_0_as_much_as_one_client(five: Answers) -> None:
    schema = Schema.of(build_parts(make_spec()).workload.model(0))
    whole = frame_bytes(len(schema.items), sum(4 * item.numel for item in schema.items))
    models, updates = STEPS + 1, STEPS
    sent = [answer["exact"]["sent"] for answer in five]
    assert sent == [2 * models * whole, updates * whole, (2 * models + updates) * whole, *[updates * whole] * 2]


def test_regions_note_their_rounds(five: Answers) -> None:
    notes = five[SERVER]["sz3"]["notes"]
    assert [(note["event"], note["round"], note["clients"]) for note in notes] == [
        ("region_round", round_, 2) for round_ in range(3)
    ]
    assert all(note["region"] == "r1" and not note["left"] and not note["back"] for note in notes)
    above = five[0]["sz3"]["notes"]
    assert [note["model_bytes"] for note in notes] == [note["model_bytes"] for note in above[:-1]]
    assert all(note["clients"] == 2 for note in above[:-1])
    raw = five[SERVER]["differences"]["notes"][2]
    assert 2 * raw["sent_bytes"] == raw["update_bytes"] and notes[2]["sent_bytes"] < 0.7 * raw["sent_bytes"]
    assert not any(five[rank]["sz3"]["notes"] for rank in TRAINERS)


def test_a_region_with_rounds_of_its_own_tells_rank_0_of_every_second(five: Answers) -> None:
    notes, above = five[SERVER]["groups"]["notes"], five[0]["groups"]["notes"]
    assert [(note["round"], note["clients"], note["sent_bytes"] > 0) for note in notes] == [
        (0, 2, False),
        (1, 2, True),
        (2, 2, False),
    ], "the last one is cut short, and sent as it is"
    assert [(note["event"], note["round"]) for note in above] == [("round", 0), ("round", 1), ("last_model", 2)]
    assert all(checked_message({"t_s": 0.0, "step": 1, "rank": SERVER, **note}, SERVER) for note in notes)


def test_a_region_goes_on_without_a_client_and_takes_it_in_again(tmp_path: Path) -> None:
    dies, waits = CrashingInRegion.dies, CrashingInRegion.waits
    spec = make_spec("parameter_server", "sz3", regions=REGIONS, steps=LOCAL_STEPS * ROUNDS)
    params = {**spec.strategy.params, "local_steps": LOCAL_STEPS, "region_servers": True}
    crashing = Part("crashing", "tests.distributed.crashing.CrashingInRegion", params)

    def on_event(event: dict[str, Any], workers: Workers) -> int | None:
        is_begun = event["event"] == "step" and event["rank"] == waits and event["step"] == LOCAL_STEPS * PAUSE + 1
        return dies if is_begun else None

    outcome = run(dataclasses.replace(spec, strategy=crashing), tmp_path, on_event=on_event)

    assert [(note["clients"], note["left"]) for note in outcome.of("round")] == [(2, {})] * ROUNDS
    rounds = outcome.of("region_round", SERVER)
    (back,) = (round_ for round_, note in enumerate(rounds) if note["back"])
    assert PAUSE <= back <= PAUSE + 1, "its server may have begun the round in which the other region waits"
    assert [note["clients"] for note in rounds] == [2, *[1] * (back - DEATH), *[2] * (ROUNDS - back)]
    gone = str(dies - 1)
    assert "it closed the connection" in rounds[DEATH]["left"][gone] and not rounds[-1]["left"]
    assert [note["back"] for note in rounds] == [[dies - 1] if round_ == back else [] for round_ in range(ROUNDS)]
    assert all(checked_message(note, SERVER) == note for note in rounds), "the orchestrator takes them"
    assert set(outcome.status.values()) == {0} and not outcome.of("fault"), outcome.logs
    assert len({event["parameters_crc32"] for event in outcome.of("done")}) == 1 and len(outcome.of("done")) == RANKS


def test_the_others_go_on_without_a_region_whose_server_dies(tmp_path: Path) -> None:
    params = {"local_steps": LOCAL_STEPS, "region_servers": True}
    spec = make_spec("parameter_server", regions=[2, 2], steps=30, strategy_params=params)

    def on_event(event: dict[str, Any], workers: Workers) -> None:
        if event["event"] == "step" and event["rank"] == SERVER and event["step"] == 5:
            workers[SERVER].send_signal(signal.SIGKILL)

    outcome = run(spec, tmp_path, on_event=on_event, stops={SERVER: {5}})
    assert outcome.status == {0: 0, 1: 0, SERVER: -signal.SIGKILL, 3: EXIT_LEFT} and not outcome.of("fault")
    (said,) = outcome.of("leaving")
    assert said["rank"] == 3 and "connection of the server is over" in said["message"]
    last = outcome.of("round")[-1]
    assert last["round"] == 14 and last["clients"] == 1 and list(last["left"]) == [str(SERVER - 1)]
