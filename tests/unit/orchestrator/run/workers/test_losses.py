"""A worker that is killed, fails or leaves: the others go on without it where their strategy says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import RunError
from testbed.orchestrator.run.workers import workers as workers_module
from tests.unit.orchestrator.launched import Fake, Launched

STEP = {"event": "step"}


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_module, "_POLL_S", 0.001)
    monkeypatch.setattr(workers_module, "_BLAME_S", 0.01)


def test_one_that_is_killed_is_noted_once_and_the_run_ends_with_the_rest(tmp_path: Path) -> None:
    workers = Launched(tmp_path)
    workers.crash(workers.nodes[2])
    said = "was ended by SIGKILL before it was done; its last words: its last line"
    assert workers.hear() == [(2, said)]
    for rank in (0, 1):
        assert not workers.all_done
        workers.say(rank, {"event": "done"})
        assert workers.hear() == [(rank, "done")]
    assert workers.all_done


def test_one_that_is_killed_is_noted_while_the_others_keep_on_talking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers_module, "_LOOK_S", 0.0)
    workers = Launched(tmp_path)
    for _ in range(3):
        workers.say(1, STEP)
    workers.fakes[2].kill()
    assert [workers.next_message()[1]["event"] for _ in range(4)] == ["left", "step", "step", "step"]  # type: ignore[index]


def test_no_loss_is_left_out_because_all_others_are_done(tmp_path: Path) -> None:
    workers = Launched(tmp_path)
    for rank in (0, 1):
        workers.say(rank, {"event": "done"})
    workers.say(2, {"event": "leaving", "message": "this client is out"})
    assert workers.hear() == [(0, "done"), (1, "done"), (2, "this client is out")]


@pytest.mark.parametrize("event", ["fault", "leaving"])
def test_what_one_says_last_is_why_it_left(event: str, tmp_path: Path) -> None:
    workers = Launched(tmp_path)
    workers.say(1, {"event": event, "message": "the loss of step 3 is nan"})
    assert workers.hear() == [(1, "the loss of step 3 is nan")]
    workers.fakes[1].code = 4
    assert workers.hear() == []


def test_rank_0_ends_the_run_and_who_had_left_before_is_told(tmp_path: Path) -> None:
    workers = Launched(tmp_path, outlived=(0, 1, 2))
    workers.say(2, {"event": "fault", "message": "nan"})
    workers.hear()
    workers.say(0, {"event": "fault", "message": "no client is left"})
    server, client = workers.nodes[0], workers.nodes[2]
    with pytest.raises(
        RunError, match=f"^worker 0 on {server}: no client is left; worker 2 on {client} had left: nan$"
    ):
        workers.hear()


@pytest.mark.parametrize("given", [{"outlived": ()}, {"begun": False}], ids=["of another strategy", "before step 1"])
@pytest.mark.parametrize("event", [None, "fault", "leaving"])
def test_otherwise_every_loss_ends_the_run(given: dict[str, Any], event: str | None, tmp_path: Path) -> None:
    workers = Launched(tmp_path, **given)
    if event is None:
        workers.crash(workers.nodes[2])
    else:
        workers.say(2, {"event": event, "message": "it is broken"})
    with pytest.raises(RunError, match=f"worker 2 on {workers.nodes[2]}.*(its last line|it is broken)"):
        workers.hear()


def test_one_that_is_started_again_is_told_to_go_and_waited_for_once_it_has_begun(tmp_path: Path) -> None:
    workers = Launched(tmp_path)
    node, process = workers.nodes[2], workers.fakes[2]
    workers.crash(node)
    workers.join(node)
    assert workers.hear() == [(2, "was ended by SIGKILL before it was done; its last words: its last line")]
    fake: Any = process
    workers.conversations.channels[node] = fake
    process.told.clear()
    workers.say(2, {"event": "warm"})
    assert workers.hear() == []
    assert process.told == [{"event": "go", "t0_s": 0.0}]
    workers.say(2, {"event": "start"})
    for rank in (0, 1):
        workers.say(rank, {"event": "done"})
    assert workers.hear() == [(2, "start"), (0, "done"), (1, "done")]
    assert not workers.all_done
    process.kill()
    assert [rank for rank, _ in workers.hear()] == [2] and workers.all_done


def test_one_that_is_not_back_in_time_keeps_nobody(tmp_path: Path) -> None:
    workers = Launched(tmp_path)
    workers.crash(workers.nodes[2])
    workers.join(workers.nodes[2])
    for rank in (1, 0):
        workers.say(rank, {"event": "done"})
    assert [rank for rank, _ in workers.hear()] == [2, 1, 0]
    assert workers.all_done


def test_one_that_says_it_is_too_late_was_late_and_one_that_breaks_was_not(tmp_path: Path) -> None:
    workers = Launched(tmp_path)
    for node, event in ((1, "leaving"), (2, "fault")):
        workers.crash(workers.nodes[node])
        workers.join(workers.nodes[node])
        workers.conversations.channels[workers.nodes[node]] = workers.fakes[node]  # type: ignore[assignment]
        workers.say(node, {"event": event, "message": "the server is over"})
    found = []
    while (received := workers.next_message()) is not None or len(found) < 4:
        found += [received[1]] if received is not None else []
    assert [(one["rank"], one["late"]) for one in found] == [(1, False), (2, False), (1, True), (2, False)]


def test_what_the_process_before_had_said_is_not_of_the_one_that_came_back(tmp_path: Path) -> None:
    workers = Launched(tmp_path)
    workers.crash(workers.nodes[2])
    workers.join(workers.nodes[2])
    fake: Any = workers.fakes[2]
    workers.conversations.channels[workers.nodes[2]] = fake
    workers.hear()
    for message in ({"event": "fault", "message": "nan"}, {"event": "done"}, {"event": "warm"}):
        workers.say(2, message, by=Fake())
        assert workers.hear() == []
    assert fake.code is None and not workers.all_done


def test_who_is_done_is_not_lost_any_more(tmp_path: Path) -> None:
    workers = Launched(tmp_path)
    for rank in (0, 1, 2):
        workers.say(rank, {"event": "done"})
        workers.hear()
    workers._is_for_the_record(workers.nodes[2], {"event": "fault", "message": "nan"})
    assert workers.all_done and workers.next_message() is None


def test_a_server_that_stays_alone_without_a_word_ends_the_run(tmp_path: Path) -> None:
    workers = Launched(tmp_path, timeout_s=0.01)
    for rank in (1, 2):
        workers.say(rank, {"event": "leaving", "message": "this client is out"})

    def listen() -> None:
        while not workers.all_done:
            workers.hear()

    with pytest.raises(RunError, match=r"neither went on nor ended alone; worker 1 on .* had left: this client is out"):
        listen()


def test_one_that_hangs_is_not_waited_for_longer_than_a_time_out_after_the_server(tmp_path: Path) -> None:
    workers = Launched(tmp_path, timeout_s=0.001)
    workers.say(1, {"event": "done"})
    assert workers.hear() == [(1, "done")] and not workers.all_done
    workers.say(0, {"event": "done"})
    said = f"was not done 0.001 s of wall time after {workers.nodes[0]}"
    assert workers.hear() == [(0, "done"), (2, said)] and workers.all_done
