"""Clients on workers, as real processes: what FedAvg comes to by hand, whoever runs whom, and what SCAFFOLD sends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from testbed.worker.data.partitions import Dirichlet
from testbed.worker.methods.federated.clients.population import Population
from testbed.worker.workloads.digits import Digits
from tests.distributed.harness import Outcome, make_spec, run

CLIENTS, ROUNDS, BATCH = 6, 3, 32
RATE = 0.02
"""Not so high that training multiplies what sums of another order differ by in the last bit."""


def _outcome(folder: Path, workers: int, **params: Any) -> Outcome:
    params = {"clients": CLIENTS, "participants": None, "learning_rate": RATE, **params}
    spec = make_spec(
        "federated",
        workers=workers,
        steps=ROUNDS,
        batch_size=BATCH,
        evaluate_every=1,
        workload="digits",
        strategy_params=params,
    )
    outcome = run(spec, folder)
    assert set(outcome.status.values()) == {0}, outcome.logs
    return outcome


@pytest.fixture(scope="module")
def on_two(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return _outcome(tmp_path_factory.mktemp("two"), 3)


def _by_hand() -> list[float]:
    """The accuracy after each round."""
    torch.set_num_threads(1)
    workload = Digits()
    model = workload.model(0)
    labels = workload.labels().tolist()
    parts = Dirichlet(alpha=0.3).divide(labels, CLIENTS, 0)
    population = Population(parts, batch_size=BATCH, epochs=1, seed=0)
    found = []
    for round_ in range(ROUNDS):
        began = [parameter.detach().clone() for parameter in model.parameters()]
        mean = [torch.zeros_like(one, dtype=torch.float64) for one in began]
        for client in range(CLIENTS):
            _put(model, began)
            optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
            for numbers in population.batches(client, round_):
                optimizer.zero_grad()
                workload.loss(model, workload.picked(numbers)).backward()
                optimizer.step()
            for total, parameter in zip(mean, model.parameters(), strict=True):
                total.add_(parameter.detach(), alpha=len(parts[client]) / len(labels))
        _put(model, mean)
        found.append(workload.evaluate(model))
    return found


def _put(model: torch.nn.Module, values: list[Tensor]) -> None:
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), values, strict=True):
            parameter.copy_(value)


def _accuracies(outcome: Outcome) -> list[float]:
    return [event["value"] for event in outcome.of("evaluation")]


def test_fedavg_is_what_it_is_by_hand(on_two: Outcome) -> None:
    assert _accuracies(on_two) == pytest.approx(_by_hand(), abs=0.006)  # two of 360 images
    assert len({event["parameters_crc32"] for event in on_two.of("done")}) == 1
    rounds = on_two.of("federated_round")
    assert [(one["asked"], one["came"]) for one in rounds] == [(CLIENTS, CLIENTS)] * ROUNDS
    for told in rounds:
        assert sorted(told["clients"]) == list(range(CLIENTS)) and set(told["ranks"]) == {1, 2}
        of_round = {one["rank"]: one for one in on_two.of("step") if one["step"] == told["step"]}
        for rank in (1, 2):  # what it trained, and nothing it waited for, is part of its step
            clients_s = sum(s for s, at in zip(told["elapsed_s"], told["ranks"], strict=True) if at == rank)
            assert 0 < clients_s < of_round[rank]["step_s"] - of_round[rank]["phase_s"]["exposed_communication"]
            assert of_round[0]["payload_bytes"] == 2 * of_round[rank]["payload_bytes"], (
                "a model is as long as an update"
            )


def test_it_makes_no_difference_who_runs_whom(on_two: Outcome, tmp_path: Path) -> None:
    other = _outcome(tmp_path, 4, placement="equal", speeds=[1, 0.9, 0.8])
    assert _accuracies(other) == pytest.approx(_accuracies(on_two), abs=0.006)
    losses = [[event["train_loss"] for event in one.of("round")] for one in (on_two, other)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_scaffold_sends_twice_as_much_and_its_variates_move(on_two: Outcome, tmp_path: Path) -> None:
    scaffold = _outcome(tmp_path, 3, method="scaffold")
    assert len({event["parameters_crc32"] for event in scaffold.of("done")}) == 1
    for name in ("model_bytes", "update_bytes"):
        twice, once = (max(event[name] for event in one.of("round")) for one in (scaffold, on_two))
        assert 1.9 * once < twice < 2.1 * once
    plain, corrected = ([event["train_loss"] for event in one.of("round")] for one in (on_two, scaffold))
    assert plain[0] == pytest.approx(corrected[0], rel=1e-5), "there is nothing to correct by yet"
    assert plain[1] != pytest.approx(corrected[1], rel=1e-3)


def test_who_is_away_is_not_drawn_and_rounds_of_which_nothing_comes_leave_the_model(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("client,from_s,until_s\n" + "".join(f"{one},0,1e9\n" for one in (0, 2, 3, 5)))
    trace = {
        "_target_": "testbed.worker.methods.federated.clients.availability.Trace",
        "file": str(tmp_path / "trace.csv"),
    }
    oort = {"_target_": "testbed.worker.methods.federated.clients.oort.Oort"}
    given = {"availability": trace, "selection": oort, "participants": 3}
    for name, deadline_s, came in (("all", 1e5, 3), ("none", 1e-9, 0)):
        (tmp_path / name).mkdir()
        outcome = _outcome(tmp_path / name, 3, deadline_s=deadline_s, **given)
        assert len({event["parameters_crc32"] for event in outcome.of("done")}) == 1
        notes = outcome.of("federated_round")
        found = [(one["available"], one["came"], one["late"], one["dropped"]) for one in notes]
        assert found == [(4, came, 3 - came, 0)] * ROUNDS
        assert len(outcome.of("round")) == (ROUNDS if came else 0)
        assert (len(set(_accuracies(outcome))) == 1) is (came == 0)


def test_a_secure_sum_is_the_sum_and_updates_hold_reports_alone(on_two: Outcome, tmp_path: Path) -> None:
    asked = {
        "_target_": "testbed.worker.methods.federated.secure_aggregation.secure.Secure",
        "privacy": 1,
        "dropouts": 0,
    }
    secure = _outcome(tmp_path, 4, secure=asked, placement="equal")
    assert _accuracies(secure) == pytest.approx(_accuracies(on_two), abs=0.012)  # four of 360: what is added is rounded
    losses = [[event["train_loss"] for event in one.of("round")] for one in (on_two, secure)]
    assert losses[0] == pytest.approx(losses[1], rel=2e-2)  # by the third round, rounding has been learnt from twice
    assert len({event["parameters_crc32"] for event in secure.of("done")}) == 1
    sums = secure.of("secure_round")
    assert [(one["round"], one["survivors"], one["dropped"]) for one in sums] == [
        (round_, [0, 1, 2], {}) for round_ in range(ROUNDS)
    ]
    parameters = sum(one.numel() for one in Digits().model(0).parameters())
    assert [one["masked_bytes"] for one in sums] == [3 * 4 * parameters] * ROUNDS
    assert all(event["update_bytes"] < 3 * 14 * CLIENTS + 3 * 100 for event in secure.of("round"))
