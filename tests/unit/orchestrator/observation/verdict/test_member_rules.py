"""Workers that a run went on without: asked for by an event, or a reason to doubt."""

from __future__ import annotations

from typing import Any

from testbed.orchestrator.observation.verdict.member_rules import Departures


def left(node: str, t_s: float, message: str = "was ended by SIGKILL", *, late: bool = False) -> dict[str, Any]:
    return {"event": "left", "t_s": t_s, "rank": int(node[-1]), "node": node, "message": message, "late": late}


def crash(node: str, t_s: float = 1.0) -> dict[str, Any]:
    return {"event": "change", "t_s": t_s, "what": "crash", "node": node}


def findings(*events: dict[str, Any]) -> list[tuple[bool, str]]:
    rule = Departures()
    for event in events:
        rule.add(event)
    return list(rule.findings())


def test_nobody_left_or_an_event_took_it_is_no_finding() -> None:
    assert findings() == []
    assert findings(left("eu-1", 4.0), crash("eu-1")) == []


def test_one_that_left_by_itself_is_told_with_its_reason() -> None:
    (found,) = findings(crash("eu-1"), left("eu-1", 1.0), left("eu-2", 4.0, "no frame\nnor any other"))
    assert found == (False, "worker 2 on eu-2 left at 4 s, and the others went on: no frame; nor any other")


def test_a_crash_asks_for_no_departure_before_it() -> None:
    (found,) = findings(left("eu-1", 10.0, "refused (late)"), crash("eu-1", 60.0))
    assert "left at 10 s" in found[1]
    assert findings(left("eu-1", 59.5), crash("eu-1", 60.0)) == []


def test_who_did_not_come_back_in_time_is_no_finding_beside_the_crash() -> None:
    assert findings(crash("eu-1"), left("eu-1", 1.0), left("eu-1", 9.0, late=True)) == []


def test_an_event_asks_for_one_departure() -> None:
    (found,) = findings(crash("eu-1"), left("eu-1", 1.0), left("eu-1", 9.0))
    assert not found[0] and "left at 9 s" in found[1]
