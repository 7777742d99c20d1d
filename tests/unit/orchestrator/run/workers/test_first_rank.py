"""A server that is killed and started again by events: the run waits for it, and takes what it tells again once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import RunError
from testbed.core.spec.schedule import Change
from testbed.orchestrator.run.workers import workers
from tests.distributed.harness import topology
from tests.unit.orchestrator.launched import Launched

SERVER = topology("gather", 3).nodes[0].name
OUTLIVED = (0, 1, 2)
EVENTS = tuple(Change(t_s=t_s, kind=kind, node=SERVER) for t_s, kind in ((5, "crash"), (9, "join")))
KILLED = "was ended by SIGKILL before it was done; its last words: its last line"


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_POLL_S", 0.001)
    monkeypatch.setattr(workers, "_BLAME_S", 0.01)


def _drained(workers: Launched) -> list[tuple[int, str]]:
    """What comes for the record of all that was said."""
    found = []
    while len(workers.conversations.inbox):
        found += workers.hear()
    return found


def _lasting(folder: Path, **given: Any) -> Launched:
    return Launched(folder, **{"outlived": OUTLIVED, "events": EVENTS, **given})


def _started_again(workers: Launched) -> Any:
    """The server, killed, in its second life."""
    workers.crash(SERVER)
    workers.join(SERVER)
    fake: Any = workers.fakes[0]
    workers.conversations.channels[SERVER] = fake
    return fake


def test_a_server_that_is_to_join_again_is_waited_for(tmp_path: Path) -> None:
    workers = _lasting(tmp_path)
    workers.crash(SERVER)
    assert workers.hear() == [(0, KILLED)]
    for rank in (1, 2):  # they have looked for it for as long as they do
        workers.say(rank, {"event": "leaving", "message": "no server came"})
    assert workers.hear() == [(1, "no server came"), (2, "no server came")]
    assert not workers.all_done, "it is still to come"


def test_it_goes_on_and_the_run_ends_with_all(tmp_path: Path) -> None:
    workers = _lasting(tmp_path)
    fake = _started_again(workers)
    fake.told.clear()
    workers.say(0, {"event": "model", "outlived": list(OUTLIVED)})
    workers.say(0, {"event": "warm"})
    workers.say(0, {"event": "start"})
    assert _drained(workers) == [(0, KILLED), (0, "start")]
    assert fake.told == [{"event": "go", "t0_s": 0.0}]
    for rank in (0, 1, 2):
        assert not workers.all_done
        workers.say(rank, {"event": "done"})
        assert workers.hear() == [(rank, "done")]
    assert workers.all_done


def test_what_it_tells_again_is_not_recorded_again(tmp_path: Path) -> None:
    workers = _lasting(tmp_path)
    told: list[dict[str, Any]] = [
        {"event": "step", "step": 6},
        {"event": "round", "round": 2},
        {"event": "gate", "round": 2, "direction": "down"},
        {"event": "evaluation", "step": 6, "name": "accuracy"},
        {"event": "last_model", "round": 3},
    ]
    for message in told:
        workers.say(0, message)
        workers.say(1, message)
    assert [rank for rank, _ in workers.hear()] == [0, 1] * len(told)
    for message in told:
        workers.say(0, message)
    workers.say(0, {"event": "step", "step": 7})
    workers.say(1, told[0])
    assert _drained(workers) == [(0, "step"), (1, "step")]


@pytest.mark.parametrize(
    "given",
    [{"outlived": (1, 2)}, {"events": EVENTS[:1]}, {"begun": False}],
    ids=["no state", "no join", "no step yet"],
)
def test_otherwise_its_end_is_that_of_the_run(given: dict[str, Any], tmp_path: Path) -> None:
    workers = _lasting(tmp_path, **given)
    workers.crash(SERVER)
    with pytest.raises(
        RunError, match=f"^worker 0 on {SERVER} {KILLED}; nothing goes on without it, but with strategy"
    ):
        workers.hear()


def test_one_that_nobody_asked_to_die_ends_the_run_though_a_join_is_to_come(tmp_path: Path) -> None:
    workers = _lasting(tmp_path)
    workers.fakes[0].kill()
    with pytest.raises(RunError, match=r"strategy\.checkpoint=true after a crash event and a join event"):
        workers.hear()


def test_one_that_fails_having_come_back_ends_the_run(tmp_path: Path) -> None:
    workers = _lasting(tmp_path)
    _started_again(workers)
    workers.hear()
    workers.say(0, {"event": "fault", "message": "it is no state that a server has left"})
    with pytest.raises(RunError, match=f"worker 0 on {SERVER}: it is no state that a server has left"):
        workers.hear()
