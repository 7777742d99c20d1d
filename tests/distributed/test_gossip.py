"""Replicas without a server over real ranks: the papers' steps, held against one process, and every byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from testbed.core.device.profile import Collective
from testbed.core.errors import InputError
from testbed.worker.methods.gossip import mixing_matrix
from testbed.worker.profile.step_times import measure
from testbed.worker.training.parts import build_parts, first_model
from tests.distributed.harness import make_spec, run
from tests.distributed.trainings import Answers, Case, parameters, play

RANKS, STEPS = 4, 6
SMALL = {"_target_": "tests.distributed.small_model.SmallModel", "learning_rate": 0.05}
FULL = 6 * 9 + 6 + 96 * 24 + 24 + 2 * 24 + 24 * 5 + 5
"""Parameters of the small model."""
PLAIN = {**SMALL, "momentum": 0.0}
ALL_ENTRIES = {"compressor": "topk", "compressor_params": {"density": 1.0}}


def _given(strategy: str = "gossip", workload: dict[str, Any] = SMALL, **given: Any) -> dict[str, Any]:
    strategy_params = {
        name: given.pop(name) for name in ("graph", "local_steps", "consensus_step_size") if name in given
    }
    return {
        "strategy": strategy,
        "strategy_params": strategy_params,
        "workload_params": workload,
        "batch_size": 8,
        "regions": (2, 2),
        **given,
    }


CASES = [
    Case(name="ddp", spec=_given("ddp", PLAIN), end=STEPS),
    Case(name="complete", spec=_given(workload=PLAIN, graph="complete"), end=STEPS),
    Case(name="ring", spec=_given(graph="ring"), end=STEPS, finishes=False),
    Case(name="ring to the end", spec=_given(graph="ring"), end=STEPS),
    Case(name="regions", spec=_given(graph="regions"), end=STEPS),
    Case(name="rarely", spec=_given(graph="ring", local_steps=4), end=STEPS),
    Case(name="apart", spec=_given(graph="regions", local_steps=5), end=4, finishes=False),
    Case(name="mixed", spec=_given(graph="regions", local_steps=4), end=4, finishes=False),
    Case(name="all entries", spec=_given(consensus_step_size=1.0, **ALL_ENTRIES), end=STEPS, finishes=False),
    Case(
        name="topk",
        spec=_given(graph="regions", compressor="topk", compressor_params={"density": 0.05}),
        end=STEPS,
    ),
]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gossip")


@pytest.fixture(scope="module")
def played(folder: Path) -> Answers:
    return play(CASES, RANKS, folder)


def _all(folder: Path, name: str) -> Tensor:
    return torch.stack([parameters(folder, name, rank) for rank in range(RANKS)])


def _sent(played: Answers, name: str) -> list[int]:
    return [answer[name]["sent"] for answer in played]


def _matrix(graph: str) -> Tensor:
    rows = mixing_matrix.metropolis_weights(mixing_matrix.neighbours(graph, [[0, 1], [2, 3]]))
    return torch.tensor([[row.get(column, 0.0) for column in range(RANKS)] for row in rows])


def _in_one_process(graph: str) -> tuple[Tensor, list[list[float]]]:
    """D-PSGD in one piece: replicas, and the losses of each."""
    spec = make_spec(workers=RANKS, **_given(graph=graph))
    parts = build_parts(spec)
    models = [first_model(spec, parts)[0] for _ in range(RANKS)]
    optimizers = [parts.workload.optimizer(model.parameters()) for model in models]
    losses: list[list[float]] = [[] for _ in models]
    for step in range(STEPS):
        for rank, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            batch = parts.workload.batch(step, rank=rank, world_size=RANKS, batch_size=spec.batch_size, seed=spec.seed)
            optimizer.zero_grad()
            loss = parts.workload.loss(model, batch)
            loss.backward()
            optimizer.step()
            losses[rank].append(float(loss.detach()))
        replicas = torch.stack([nn.utils.parameters_to_vector(model.parameters()).detach() for model in models])
        for model, mixed in zip(models, _matrix(graph) @ replicas, strict=True):
            nn.utils.vector_to_parameters(mixed.clone(), model.parameters())
    return _matrix(graph) @ replicas, losses


def test_with_everyone_a_neighbour_it_is_data_parallelism(played: Answers, folder: Path) -> None:
    assert torch.allclose(parameters(folder, "complete"), parameters(folder, "ddp"), atol=1e-6)
    for answer in played:
        assert answer["complete"]["losses"] == pytest.approx(answer["ddp"]["losses"], rel=1e-5)
        assert answer["complete"]["notes"][-1]["distance"] < 1e-6


def test_replicas_take_the_steps_of_the_paper(played: Answers, folder: Path) -> None:
    """Each with momentum of its own."""
    replicas, losses = _in_one_process("ring")
    assert torch.allclose(_all(folder, "ring"), replicas, atol=1e-5)
    for answer, expected in zip(played, losses, strict=True):
        assert answer["ring"]["losses"] == pytest.approx(expected, rel=1e-4)
    assert len({answer["ring"]["crc32"] for answer in played}) == RANKS


def test_an_exchange_brings_replicas_nearer_to_each_other(played: Answers, folder: Path) -> None:
    before, after = _all(folder, "apart"), _all(folder, "mixed")
    assert torch.allclose(after, _matrix("regions") @ before, atol=1e-6)
    gap = mixing_matrix.spectral_gap(
        mixing_matrix.metropolis_weights(mixing_matrix.neighbours("regions", [[0, 1], [2, 3]]))
    )
    distances = [float((replicas - replicas.mean(0)).norm()) for replicas in (before, after)]
    assert 0 < distances[1] <= (1 - gap) * distances[0] + 1e-6


@pytest.mark.parametrize("name", ["complete", "ring to the end", "regions", "rarely", "topk"])
def test_in_the_end_all_have_the_mean(name: str, played: Answers, folder: Path) -> None:
    assert len({answer[name]["crc32"] for answer in played}) == 1
    if name == "ring to the end":
        assert torch.allclose(parameters(folder, name), _all(folder, "ring").mean(0), atol=1e-6)
        apart = _all(folder, "ring") - _all(folder, "ring").mean(0)
        for answer, distance in zip(played, apart.norm(dim=1) / parameters(folder, name).norm(), strict=True):
            assert answer[name]["notes"][-1] == {"event": "consensus", "distance": pytest.approx(float(distance), 1e-3)}


def test_choco_of_all_entries_takes_the_steps_of_plain_averaging(played: Answers, folder: Path) -> None:
    assert torch.allclose(_all(folder, "all entries"), _all(folder, "ring"), atol=1e-5)


def test_a_rank_sends_one_payload_to_each_neighbour_and_nobody_else(played: Answers) -> None:
    """A ring has two, an end of the bridge between two regions of two likewise, and the others one; the mean in the
    end costs what an all-reduce does."""
    size, mean = 4 * FULL, 2 * (RANKS - 1) * 4 * FULL // RANKS
    assert _sent(played, "ring") == [STEPS * 2 * size] * RANKS
    assert _sent(played, "ring to the end") == pytest.approx([STEPS * 2 * size + mean] * RANKS, abs=4)
    assert _sent(played, "rarely") == pytest.approx([2 * size + mean] * RANKS, abs=4)
    assert _sent(played, "regions") == pytest.approx([STEPS * n * size + mean for n in (2, 1, 2, 1)], abs=4)
    kept = -(-FULL // 20)
    assert _sent(played, "topk") == pytest.approx([STEPS * n * 8 * kept + mean for n in (2, 1, 2, 1)], abs=4)
    assert _sent(played, "apart") == [0] * RANKS


def test_the_graph_is_told_once_by_the_first_rank(played: Answers) -> None:
    told = [[note for note in answer["topk"]["notes"] if note["event"] == "mixing"] for answer in played]
    gap = mixing_matrix.spectral_gap(
        mixing_matrix.metropolis_weights(mixing_matrix.neighbours("regions", [[0, 1], [2, 3]]))
    )
    facts = {"edges": 3, "wan_edges": 1, "most_neighbours": 2, "spectral_gap": gap, "consensus_step_size": 0.1}
    assert told == [[{"event": "mixing", "graph": "regions", **facts}], [], [], []]
    (note,) = [note for note in played[0]["ring"]["notes"] if note["event"] == "mixing"]
    assert (note["wan_edges"], note["consensus_step_size"]) == (2, 1.0)


def test_digits_are_learnt_from_a_hundredth_of_the_entries(tmp_path: Path) -> None:
    """By workers, as a run has them; what is evaluated is rank 0's replica before the mean."""
    outcome = run(make_spec("gossip", "topk", workers=3, steps=30, evaluate_every=15, workload="digits"), tmp_path)
    assert set(outcome.status.values()) == {0}, outcome.of("fault")
    (model,) = outcome.of("model")
    assert [found["step"] for found in outcome.of("evaluation")] == [15, 30]
    assert outcome.of("evaluation")[-1]["value"] > 0.9
    assert len({done["parameters_crc32"] for done in outcome.of("done")}) == 1
    kept = -(-model["parameters"] // 100)
    assert [outcome.payloads(rank) for rank in range(3)] == [[2 * 8 * kept] * 30] * 3
    assert sum(done["finish_payload_bytes"] for done in outcome.of("done")) == model["dense_bytes_step"]
    assert [note["rank"] for note in outcome.of("mixing")] == [0]
    assert sorted(note["rank"] for note in outcome.of("consensus")) == [0, 1, 2]
    assert all(0 < note["distance"] < 0.1 for note in outcome.of("consensus"))


def test_what_is_measured_beforehand_knows_its_exchanges() -> None:
    asked = make_spec(workers=RANKS, **_given("gossip", local_steps=3, compressor="topk"))
    found = measure(asked)
    assert found.cycle_steps == 3
    # two neighbours of the three others
    assert found.collectives == (Collective(kind="all_to_all", size_bytes=round(2 * 4 / 3 * 4 * FULL)),)


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"graph": "star", "local_steps": 0}, ["graph=star: unknown", "local_steps=0"]),
        ({"consensus_step_size": 1.5}, ["consensus_step_size=1.5: must be above 0 and at most 1, or null"]),
    ],
)
def test_bad_parameters_are_named_all_at_once(params: dict[str, Any], said: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        build_parts(make_spec("gossip", strategy_params=params))
    assert all(text in str(caught.value) for text in said)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"compressor": "powersgd"}, ["PowerSGD works among all ranks at once"]),
        ({"compressor": "signsgd"}, ["SignSGD takes over the optimizer", "SignSGD works among all ranks"]),
        ({"compressor": "terngrad"}, ["TernGrad may err by more than what it is given"]),
        (
            {"compressor": "randomk", "compressor_params": {"scaled": True}},
            ["RandomK may err by more than what it is given"],
        ),
        ({"compressor": "topk", "compressor_params": {"feedback": "on"}}, ["TopK with feedback=on: what was left out"]),
    ],
)
def test_what_it_cannot_run_is_refused(given: dict[str, Any], said: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        build_parts(make_spec("gossip", **given))
    faults = caught.value.faults
    assert len(faults) == len(said)
    for fault, text in zip(faults, said, strict=True):
        assert fault.startswith("strategy=gossip: ") and text in fault and "use " in fault
