"""What nothing told stands beside the reasons of a verdict, and changes no grade."""

from __future__ import annotations

from typing import Any

from testbed.orchestrator.observation.verdict.judge import Judge
from testbed.orchestrator.observation.verdict.unknowns import Unknowns, of_device, unseeded
from tests.unit.analysis.synthetic import make_events, make_spec

HOST: dict[str, Any] = {"event": "host", "cpu_pressure_s": 0.1, "softnet_dropped": 0}
LINE: dict[str, Any] = {"event": "delay_line", "packets": 10, "late_p99_s": 1e-4}
NODE: dict[str, Any] = {"event": "node", "throttled_s": 0.0}


def texts(*events: dict[str, Any]) -> list[str]:
    unknowns = Unknowns()
    for event in events:
        unknowns.add(event)
    return unknowns.texts()


def test_where_everything_was_told_nothing_is_unknown() -> None:
    assert texts(HOST, LINE, NODE) == []


def test_each_figure_that_nothing_told_is_named() -> None:
    assert texts({**HOST, "cpu_pressure_s": None}, LINE, NODE) == ["cpu pressure (kernel without PSI)"]
    assert texts(HOST, {**LINE, "late_p99_s": None}, NODE) == ["lateness of the delays (netem tells none)"]
    assert len(texts({**HOST, "softnet_dropped": None}, LINE, {**NODE, "throttled_s": None})) == 2


def test_a_second_without_packets_has_no_lateness_to_be_missed() -> None:
    assert texts({**LINE, "packets": 0, "late_p99_s": None}) == []
    assert texts({**LINE, "late_p99_s": None}, LINE) == []


def test_sizes_of_drawn_values_are_assumed_where_they_depend_on_them() -> None:
    drawn: dict[str, Any] = {"event": "drawn_changes", "texture": "texts", "assumed": []}
    assert texts(HOST, LINE, NODE, drawn) == []
    (unknown,) = texts(HOST, LINE, NODE, {**drawn, "assumed": ["SZ3"]})
    assert unknown.startswith("how small SZ3 makes what this model would send (assumed: ")


def test_the_grade_does_not_change() -> None:
    spec = make_spec()
    grades = []
    for pressure in (True, False):
        judge = Judge(spec)
        for event in make_events(spec):
            hidden = event["event"] == "host" and not pressure
            judge.add({**event, "cpu_pressure_s": None} if hidden else event)
        grades.append(judge.verdict())
        assert ("cpu pressure (kernel without PSI)" in judge.unknowns()) is not pressure
    assert grades[0] == grades[1]


def test_chance_that_is_not_seeded_is_named_where_there_is_any() -> None:
    def network(seeded: bool, **asked: float) -> dict[str, Any]:
        return {"links": [{"asked": asked, "read_back": {"seeded": seeded}}]}

    assert len(list(unseeded({}, network(False, loss_ratio=0.01)))) == 1
    assert len(list(unseeded({"events": [{}]}, network(False, loss_ratio=0.0)))) == 1
    assert list(unseeded({}, network(True, loss_ratio=0.01))) == []
    assert list(unseeded({}, network(False, loss_ratio=0.0))) == []
    assert list(unseeded({}, {})) == []


def test_what_is_not_known_of_the_devices_times_is_named() -> None:
    assert list(of_device({"device_profile": {"unknowns": ["when gradients are ready (scaled: x)"]}})) == [
        "when gradients are ready (scaled: x)"
    ]
    assert (
        list(of_device({"device_profile": {}}))
        == list(of_device({"device_profile": None}))
        == list(of_device({}))
        == []
    )
