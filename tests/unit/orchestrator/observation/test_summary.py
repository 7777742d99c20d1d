from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from testbed.core.record.events.base import Event, json_name
from testbed.core.record.run_directory import RunDir
from testbed.core.record.summary import LINK_KEYS, SUMMARY_KEYS, left_out_line
from testbed.orchestrator.observation.summary import _Record, summarise
from testbed.orchestrator.observation.verdict.judge import Judge
from tests.unit.analysis.synthetic import PHASES, RUN_ID, STEPS, make_run, make_spec

EVENTS = Path(__file__).resolve().parents[3] / "data" / "events" / "lines.jsonl"


def summary_of(run: RunDir, **changes: Any) -> dict[str, Any]:
    told: dict[str, Any] = {"status": "completed", "reasons": [], "verdict": "valid", "wall_s": 61.5}
    summary = summarise(run, **told | changes)
    json.dumps(summary, allow_nan=False)
    return summary


def test_a_whole_run_gives_figures_worked_out_by_hand(tmp_path: Path) -> None:
    summary = summary_of(make_run(tmp_path), reasons=["link x: measured 99 Mbit/s"])

    assert list(summary) == list(SUMMARY_KEYS)
    assert summary["run_id"] == RUN_ID
    assert (summary["status"], summary["verdict"], summary["kind"]) == ("completed", "valid", "emulated")
    assert summary["reasons"] == ["link x: measured 99 Mbit/s"]
    parts = [summary[key] for key in ("topo", "strategy", "compressor", "workload", "device", "workers")]
    assert parts == ["wan", "ddp", "topk", "digits", "native", 4]
    assert (summary["steps"], summary["wall_s"]) == (60, 61.5)
    assert summary["time_s"] == pytest.approx(59.95)  # the slowest rank ends step 60 at 59 + 0.95 s
    assert summary["step_time_s"] == pytest.approx({"mean": 0.95, "p50": 0.95, "p95": 0.95, "exchange_p50": 0.95})
    assert summary["phase_s"] == pytest.approx(PHASES)
    # 4 ranks x 60 steps x 1000 B; 4 nodes x 60 s x 1500 B/s; 60 s x (2000 + 2500) B/s; 60 steps x 24,000 B
    assert summary["bytes"] == {"payload": 240_000, "wire_total": 360_000, "wire_wan": 270_000, "dense": 1_440_000}
    assert summary["compression_ratio"] == 6.0
    assert summary["metric"] == {
        "name": "accuracy",
        "value": pytest.approx(0.9),
        "best": pytest.approx(0.9),
        "target": 0.9,
        "time_to_target_s": 60,
    }


def test_every_direction_of_a_link_has_its_own_entry(tmp_path: Path) -> None:
    links = summary_of(make_run(tmp_path))["links"]

    assert len(links) == 10  # one WAN link and four access links, both ways
    assert all(set(link) == set(LINK_KEYS) for link in links)
    assert links[1] == {
        "name": "oregon-virginia",
        "from": "virginia",
        "to": "oregon",
        "wan": True,
        "wire_bytes": 150_000,
        "rate_bit_s": {"asked": 100e6, "measured": pytest.approx(99e6)},
        "rtt_s": {"asked": pytest.approx(0.06), "measured": 0.0605},
        "loss_ratio": {"asked": 0.001, "measured": None},
        "changes": 0,
    }


def test_percentiles_of_the_step_time_are_those_of_the_slowest_rank(tmp_path: Path) -> None:
    run = make_run(tmp_path, steps=5)
    lines = [json.loads(line) for line in run.events.read_text().splitlines()]
    for event in lines:
        if event["event"] == "step" and event["rank"] == 3:
            event["step_s"] = float(event["step"])  # 1, 2, 3, 4, 5 s
    run.events.write_text("".join(json.dumps(event) + "\n" for event in lines))

    assert summary_of(run)["step_time_s"] == pytest.approx({"mean": 3.0, "p50": 3.0, "p95": 4.8, "exchange_p50": 3.0})


def test_a_target_of_the_spec_comes_before_the_workloads_own(tmp_path: Path) -> None:
    metric = summary_of(make_run(tmp_path, target=0.83))["metric"]
    assert (metric["target"], metric["time_to_target_s"]) == (0.83, 20)  # 0.8333 at step 20

    metric = summary_of(make_run(tmp_path, target=0.95))["metric"]
    assert (metric["target"], metric["time_to_target_s"]) == (0.95, None)


@pytest.mark.parametrize("cut_bytes", [1, 200, 5_000, 60_000, 10**9])
def test_a_record_cut_anywhere_is_summarised(tmp_path: Path, cut_bytes: int) -> None:
    run = make_run(tmp_path, cut_bytes=cut_bytes)
    summary = summary_of(run, status="killed", verdict="invalid", wall_s=None)
    steps = summary["steps"]
    if steps:
        assert steps <= STEPS
        assert summary["bytes"]["payload"] == 4000 * steps
        assert summary["bytes"]["dense"] == 24_000 * steps
        assert summary["compression_ratio"] == 6.0
    else:
        assert summary["time_s"] is None
        assert summary["bytes"] == {"payload": None, "wire_total": None, "wire_wan": None, "dense": None}


def test_a_step_some_rank_did_not_finish_does_not_count(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    lines = [json.loads(line) for line in run.events.read_text().splitlines()]
    kept = [e for e in lines if not (e["event"] == "step" and e["rank"] == 2 and e["step"] > 40)]
    run.events.write_text("".join(json.dumps(event) + "\n" for event in kept))

    summary = summary_of(run, status="failed", verdict="invalid")
    assert summary["steps"] == 40
    assert summary["time_s"] == pytest.approx(39.95)
    assert summary["bytes"]["payload"] == 160_000


@pytest.mark.parametrize(
    "without",
    [("network.json",), ("spec.json",), ("events.jsonl",), ("spec.json", "network.json", "events.jsonl")],
)
def test_missing_files_leave_nulls(tmp_path: Path, without: tuple[str, ...]) -> None:
    summary = summary_of(make_run(tmp_path, without=without), status="failed", verdict="invalid", wall_s=None)
    if without == ("network.json",):
        assert summary["links"][0]["rate_bit_s"] == {"asked": 100e6, "measured": None}
        assert summary["links"][0]["rtt_s"]["asked"] == pytest.approx(0.06)
        assert summary["bytes"]["wire_wan"] == 270_000
    if "events.jsonl" in without:
        assert summary["steps"] is None
        assert summary["compression_ratio"] is None
    if "spec.json" in without:
        assert (summary["topo"], summary["workers"]) == (None, None)


def test_numbers_that_are_not_finite_become_null(tmp_path: Path) -> None:
    run = make_run(tmp_path, nan_from=30)
    with run.events.open("a") as file:
        row = {"event": "evaluation", "t_s": 61, "rank": 0, "step": 60, "name": "accuracy", "value": float("inf")}
        file.write(json.dumps(row) + "\n")
    metric = summary_of(run)["metric"]
    assert metric["value"] is None
    assert metric["best"] == pytest.approx(0.9)


def test_broken_events_are_left_out(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    text = run.events.read_text()
    broken = '{"event": "step"}\n{"t_s": 1}\n[1]\n{"event": "ste\n{"event": "link", "t_s": "?"}\n'
    run.events.write_text(broken + text)
    assert summary_of(run)["bytes"]["payload"] == 240_000


def test_bytes_of_a_run_that_learns_nothing_are_known(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    lines = [json.loads(line) for line in run.events.read_text().splitlines()]
    for line in lines:
        if line["event"] == "model":
            line |= {"metric_name": None, "metric_target": None, "higher_is_better": None}
    run.events.write_text("".join(json.dumps(line) + "\n" for line in lines if line["event"] != "evaluation"))
    summary = summary_of(run)
    assert (summary["bytes"]["dense"], summary["compression_ratio"]) == (1_440_000, 6.0)
    assert set(summary["metric"].values()) == {None}


@pytest.mark.parametrize("text", EVENTS.read_text().splitlines(), ids=lambda text: json.loads(text)["event"])
def test_nulls_that_an_event_may_have_do_not_make_it_unread(text: str) -> None:
    line = json.loads(text)
    hints = get_type_hints(Event.kinds[line["event"]])
    nulls = {json_name(name): None for name, kind in hints.items() if type(None) in get_args(kind)}
    _Record()._add(line | nulls)
    as_it_is, without = Judge(make_spec()), Judge(make_spec())
    as_it_is.add(line)
    without.add(line | nulls)
    assert without._unread == as_it_is._unread  # a link of another network is none of this run's


def test_a_part_of_the_wire_does_not_pass_for_the_whole(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    lines = run.events.read_text().splitlines(keepends=True)
    run.events.write_text("".join(line for line in lines if '"from": "oregon-0"' not in line))
    assert summary_of(run)["bytes"]["wire_total"] is None


def test_an_unknown_verdict_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="verdict 'good'"):
        summary_of(make_run(tmp_path), verdict="good")


def test_of_a_run_that_went_on_without_a_rank_steps_are_those_of_the_rest(tmp_path: Path) -> None:
    run = make_run(tmp_path, steps=10)
    assert summary_of(run)["workers_at_end"] == 4
    kept = [json.loads(line) for line in run.events.read_text().splitlines()]
    kept = [event for event in kept if not (event["event"] == "step" and event["rank"] == 3 and event["step"] > 4)]

    def told(*more: dict[str, Any]) -> tuple[Any, Any]:
        run.events.write_text("".join(json.dumps(event) + "\n" for event in [*kept, *more]))
        summary = summary_of(run)
        return summary["steps"], summary["workers_at_end"]

    left = {
        "event": "left",
        "t_s": 4.5,
        "rank": 3,
        "node": "virginia-1",
        "message": "was ended by SIGKILL",
        "late": False,
    }
    assert told() == (4, 4)
    assert told(left) == (10, 3)
    assert told(left, {"event": "start", "t_s": 8.0, "rank": 3, "late_s": 0.0}) == (10, 4)


def disturbed(run: RunDir, *, is_known: bool = True) -> None:
    """Give a run a process outside of it that was busy in seconds 31 and 32, and slowed steps 31 and 32."""
    lines = [json.loads(line) for line in run.events.read_text().splitlines()]
    for event in lines:
        if event["event"] == "step" and event["step"] in (31, 32):
            event["step_s"] *= 1.05
            event["phase_s"] = dict.fromkeys(PHASES, 9.0)
        elif event["event"] == "host" and is_known:
            taken_s = 0.9 if event["t_s"] in (31, 32) else 0.0
            event |= {"foreign_cpu_s": taken_s, "stopped_processes": 0, "cpu_count": 2, "cpu_idle_ratio": 0.4}
    run.events.write_text("".join(json.dumps(event) + "\n" for event in lines))


def test_steps_that_others_spoiled_are_left_out_of_times_and_of_nothing_else(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    whole = summary_of(run)
    disturbed(run)
    summary = summary_of(run)
    (reason,) = summary["left_out"]["reasons"]
    assert summary["left_out"] == {"count": 2, "steps": [31, 32], "reasons": [reason]}
    assert "a process outside of the run took up to 0.90 of a core" in reason
    assert summary["step_time_s"] == pytest.approx(whole["step_time_s"])
    assert summary["phase_s"] == pytest.approx(whole["phase_s"])
    same = set(summary) - {"left_out", "step_time_s", "phase_s"}
    assert {key: summary[key] for key in same} == {key: whole[key] for key in same}
    assert left_out_line(summary) == f"2 of 60 steps left out: {reason}"


def test_a_record_of_before_leaves_nothing_out(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    disturbed(run, is_known=False)
    summary = summary_of(run)
    assert summary["left_out"] == {"count": None, "steps": None, "reasons": None}
    assert left_out_line(summary) is None
    assert summary["step_time_s"]["mean"] == pytest.approx(0.95 * (58 + 2 * 1.05) / 60)
