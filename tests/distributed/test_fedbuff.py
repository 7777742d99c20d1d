"""Buffered asynchronous learning as real processes: what it comes to, what it outlives, and what waiting costs."""

from __future__ import annotations

import signal
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch

from testbed.core.device.profile import Profile
from tests.distributed.harness import Workers, make_spec, run
from tests.distributed.trainings import Answers, Case, play

WORKERS, VERSIONS = 3, 10
SERVED = {"_target_": "tests.distributed.labelled_model.LabelledModel"}
PACED = Profile(workload="", compressor="", batch_size=8, layers=(), forward_s=0.02, backward_s=0.04, optimizer_s=0.01)
"""A client of some 20 samples takes 0.2 s, by far the most of it asleep."""
CLIENTS = {"clients": 20, "partition": {"_target_": "testbed.worker.data.partitions.Iid"}, "learning_rate": 0.3}
STRAGGLERS = CLIENTS | {"straggler_sigma": 1.0}
TOPK = {"codec": "topk", "cutoff": 100}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def _case(name: str, strategy: str, **params: Any) -> Case:
    spec = {"strategy": strategy, "strategy_params": params, "workload_params": SERVED, "batch_size": 8}
    return Case(name=name, spec=spec, end=VERSIONS, profile=PACED.to_json())


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """A server and three workers."""
    cases = [
        _case("equal", "fedbuff", size=WORKERS, **CLIENTS),
        _case("buffered", "fedbuff", size=WORKERS, **STRAGGLERS),
        _case("in rounds", "federated", participants=WORKERS, **STRAGGLERS),
        _case("topk", "fedbuff", size=WORKERS, method="fedprox", mu=0.001, uplink=TOPK, **CLIENTS),
    ]
    return play(cases, WORKERS + 1, tmp_path_factory.mktemp("four"))


@pytest.mark.parametrize("name", ["equal", "buffered", "topk"])
def test_all_end_with_the_same_parameters_and_have_learnt(name: str, four: Answers) -> None:
    answers = [answer[name] for answer in four]
    assert len({answer["crc32"] for answer in answers}) == 1
    assert set(answers[0]["losses"]) == {None}
    *notes, last = answers[0]["notes"]
    assert [note["version"] for note in notes] == list(range(1, len(answers[0]["losses"]) + 1))
    assert last["event"] == "last_model" and last["round"] == len(notes) and not last["left"]
    assert notes[-1]["train_loss"] < 0.97 * notes[0]["train_loss"]
    assert not any(answer["notes"] for answer in answers[1:])


def test_who_is_as_fast_as_the_others_is_hardly_late(four: Answers) -> None:
    """With as many updates a version as there are workers. Where a neighbour on the machine holds one worker up, an
    update of its is later than that, and the next is not."""
    notes = four[0]["equal"]["notes"][:-1]
    assert statistics.median(note["staleness_max"] for note in notes) <= 2
    assert sum(note["staleness_mean"] for note in notes) / len(notes) <= 1
    assert notes[0]["staleness_max"] == 0


def test_under_stragglers_nobody_waits_for_the_longest_as_in_rounds(four: Answers) -> None:
    """Judged by clients and versions, not by seconds, which other users of this machine decide."""
    rounds = [note for note in four[0]["in rounds"]["notes"] if note["event"] == "federated_round"]
    lasted_s = sum(WORKERS * note["longest_client_s"] for note in rounds)
    assert sum(note["all_clients_s"] for note in rounds) < 0.85 * lasted_s, "rounds last as long as their longest"
    longest = max(four[0]["buffered"]["notes"][:-1], key=lambda note: note["longest_client_s"])
    assert longest["longest_client_s"] > 4 * 0.175, "of four clients of a worker that is as fast as it can be"
    assert longest["staleness_max"] >= 1, "meanwhile the others made a version without it"


def test_it_goes_on_without_a_worker_that_died(tmp_path: Path) -> None:
    spec = make_spec("fedbuff", workers=4, steps=40, strategy_params={"size": 2, "clients": 20}, workload_params=SERVED)

    def on_event(event: dict[str, Any], workers: Workers) -> None:
        if event["event"] == "step" and event["rank"] == 2 and event["step"] == 5:
            workers[2].send_signal(signal.SIGKILL)

    outcome = run(spec, tmp_path, on_event=on_event, stops={2: {5}})
    assert outcome.status == {0: 0, 1: 0, 2: -signal.SIGKILL, 3: 0} and not outcome.of("fault")
    found = outcome.of("fedbuff_version")
    assert len(found) == 40 and (found[0]["workers"], found[-1]["workers"]) == (3, 2)
    assert list(found[-1]["left"]) == ["1"] and "connection of client 1 is over" in found[-1]["left"]["1"]
    done = outcome.of("done")
    assert len(done) == 3 and len({one["parameters_crc32"] for one in done}) == 1
