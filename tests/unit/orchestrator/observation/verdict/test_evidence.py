"""A recorded run of which events were removed, cut or altered is never `valid`, and says what is not known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.core.record.run_directory import RunDir
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.config.config import compose
from testbed.orchestrator.observation.verdict.evidence_rules import Evidence
from testbed.orchestrator.observation.verdict.judge import Judge

Event = dict[str, Any]
RUNS = Path(__file__).resolve().parents[4] / "data" / "oracles" / "runs"
RUN = RunDir(next(RUNS.glob("*-federated-int8-*")))
CALM: dict[str, Event] = {
    "host": {"cpu_idle_ratio": 0.5, "cpu_pressure_s": 0.0, "steal_s": 0.0, "sampler_late_s": 0.0},
    "step": {"late_s": 0.0, "queued_s": 0.0},
    "delay_line": {"late_p99_s": 1e-4},
}
"""The machine that recorded it was busy. These figures are those of a quiet one."""


def recorded() -> list[Event]:
    return [{**event, **CALM.get(event["event"], {})} for event in RUN.read_events()]


def judged(events: list[Event]) -> Judge:
    spec = RunSpec.from_json(json.loads(RUN.spec.read_text()))
    judge = Judge(spec)
    for event in events:
        judge.add(event)
    judge.close(spec.dilation)
    return judge


def without(kind: str, *, rank: int | None = None, after_s: float = -1e9, before_s: float = 1e9) -> list[Event]:
    """Return the record without the events of a kind, of one rank or of a time."""
    return [
        event
        for event in recorded()
        if event["event"] != kind
        or (rank is not None and event["rank"] != rank)
        or not after_s < event["t_s"] < before_s
    ]


def test_the_whole_record_is_valid() -> None:
    judge = judged(recorded())
    assert judge.verdict() == ("valid", [])
    assert judge.unknowns() == []


OF_WORKERS = ("start", "step", "done", "model", "evaluation")
OF_KERNEL = ("measurement", "host", "link", "node", "tcp", "rtt", "delay_line")


@pytest.mark.parametrize("kind", [*OF_WORKERS, *OF_KERNEL, "schedule"])
def test_no_kind_of_event_can_be_missing(kind: str) -> None:
    judge = judged(without(kind))
    word, reasons = judge.verdict()
    assert word != "valid" and any("not in the record" in reason for reason in reasons), reasons
    assert judge.unknowns()


def test_no_record_at_all_is_not_valid() -> None:
    judge = judged([])
    assert judge.verdict()[0] != "valid"
    assert any("steps of rank 0" in text for text in judge.unknowns())


@pytest.mark.parametrize("share", [0.3, 0.7, 0.97])
def test_a_record_that_was_cut_is_not_valid(share: float) -> None:
    events = recorded()
    assert judged(events[: int(share * len(events))]).verdict()[0] != "valid"
    assert judged(events[int((1 - share) * len(events)) :]).verdict()[0] != "valid"


@pytest.mark.parametrize("kind", ["host", "link", "node", "delay_line", "rtt"])
def test_what_falls_silent_is_named_with_the_time(kind: str) -> None:
    last_s = max(event["t_s"] for event in recorded() if event["event"] == "step")
    for after_s, before_s in ((0.4 * last_s, 0.9 * last_s), (0.4 * last_s, 1e9), (-1.0, 0.6 * last_s)):
        word, reasons = judged(without(kind, after_s=after_s, before_s=before_s)).verdict()
        assert word != "valid" and any(" and " in reason for reason in reasons), (kind, after_s, reasons)


@pytest.mark.parametrize("kind", ["start", "step", "done"])
def test_one_rank_that_says_nothing_is_named(kind: str) -> None:
    _, reasons = judged(without(kind, rank=2)).verdict()
    assert any("rank 2" in reason for reason in reasons), reasons


def test_a_rank_that_the_others_went_on_without_owes_nothing() -> None:
    gone = {"event": "left", "t_s": 1.0, "rank": 2, "node": "virginia-0", "message": "was killed", "late": False}
    word, reasons = judged([*without("step", rank=2), gone]).verdict()
    assert word == "suspect" and len(reasons) == 1 and "left at" in reasons[0], reasons


def test_probes_of_a_link_that_is_down_are_not_awaited() -> None:
    last_s = max(event["t_s"] for event in recorded() if event["event"] == "step")
    link = next(event["name"] for event in recorded() if event["event"] == "rtt")
    down, up = ({"event": "change", "what": what, "name": link, "from": None} for what in ("down", "up"))
    events = without("rtt", after_s=0.1 * last_s, before_s=0.9 * last_s)
    assert "probes of link" in str(judged(events).verdict())
    events += [{**down, "t_s": 0.1 * last_s}, {**up, "t_s": 0.88 * last_s}]
    assert "probes of link" not in str(judged(events).verdict())


def test_a_probe_may_take_its_round_trip_at_a_large_dilation() -> None:
    """100 ms, and as much in a full queue, are 9.5 s by the wall at k = 45 until the first one is back."""
    spec = compose(["topo=wan1g", "topo.rtt=100 ms", "dilation=45"])
    evidence = Evidence(spec)
    link = spec.topology.wan_links[0].name
    for t_s, kind in ((0.21, "rtt"), (0.5, "step")):
        evidence.add({"event": kind, "name": link, "t_s": t_s, "rank": 0, "step": 1})
    assert not any("probes" in text for text in evidence.missing(is_emulated=True))
    evidence.add({"event": "step", "t_s": 3.0, "rank": 0, "step": 2})
    assert any("probes" in text for text in evidence.missing(is_emulated=True))


ALTERED: dict[str, tuple[str, Callable[[Event], Event]]] = {
    "nan_in_lateness": ("step", lambda e: {**e, "late_s": float("nan")}),
    "negative_lateness": ("step", lambda e: {**e, "late_s": -5.0}),
    "infinite_time": ("rtt", lambda e: {**e, "t_s": float("inf")}),
    "text_for_a_time": ("host", lambda e: {**e, "t_s": "soon"}),
    "nan_within": ("measurement", lambda e: {**e, "burst": {"gaps": {"error_p90_ratio": float("nan")}}}),
    "null_bytes": ("step", lambda e: {**e, "payload_bytes": None}),
    "negative_bytes": ("link", lambda e: {**e, "wire_bytes": -1}),
    "idle_below_zero": ("host", lambda e: {**e, "cpu_idle_ratio": -1.0}),
    "no_probes": ("measurement", lambda e: {key: e[key] for key in e if key != "probes_span_s"}),
}


@pytest.mark.parametrize("name", ALTERED)
def test_a_single_altered_event_is_no_evidence(name: str) -> None:
    kind, alter = ALTERED[name]
    events = recorded()
    index = max(index for index, event in enumerate(events) if event["event"] == kind)
    events[index] = alter(events[index])
    word, reasons = judged(events).verdict()
    assert word != "valid" and reasons


@pytest.mark.parametrize("key", ["cpu_pressure_s", "softnet_dropped"])
def test_a_feature_that_the_kernel_lacks_changes_no_grade(key: str) -> None:
    events = [{**event, key: None} if event["event"] == "host" else event for event in recorded()]
    assert judged(events).verdict() == ("valid", [])
