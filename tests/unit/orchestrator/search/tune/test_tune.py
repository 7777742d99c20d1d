"""`longhaul tune` as a user calls it; runs are made up, and what they come to follows from their settings."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import Interrupted, RunError
from testbed.core.record import run_directory
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.cli.main import main
from testbed.orchestrator.executors import registry
from testbed.orchestrator.machine import ownership
from testbed.orchestrator.search.sweep import retry, specs
from testbed.orchestrator.search.sweep.estimates import UNKNOWN, Estimate
from testbed.orchestrator.search.sweep.specs import RunRequest
from testbed.orchestrator.search.tune import trials, tune_command
from tests.unit.orchestrator.made_runs import Place

SEARCHED = (
    "topo=wan100m",
    "workers=2",
    "steps=4",
    "compressor=none,topk",
    "compressor.density=tag(log,interval(0.001,0.1))",
)
TARGET = 0.9


def taken(spec: RunSpec) -> tuple[float, float]:
    """The denser the more bytes; slowest far from a density of 0.01. Uncompressed is slower than all."""
    density = spec.compressor.params.get("density", 1.0)
    return 10 + abs(density - 0.01) * 100, 1e6 * density


def end_of(spec: RunSpec) -> dict[str, Any]:
    seconds, sent = taken(spec)
    found = {"name": "accuracy", "value": TARGET, "best": TARGET, "target": TARGET, "time_to_target_s": seconds}
    return {
        "time_s": 2 * seconds,
        "metric": found,
        "bytes": {"payload": 1, "wire_total": 1, "wire_wan": 2 * sent, "dense": 1},
    }


@pytest.fixture
def place(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Place]:
    def reached(_: str, *paths: str, **__: Any) -> list[dict[str, Any]]:
        summaries = [json.loads((Path(path) / "summary.json").read_text()) for path in paths]
        return [
            {"time_to_target_s": one["metric"]["time_to_target_s"], "wan_bytes": one["bytes"]["wire_wan"] / 2}
            for one in summaries
        ]

    monkeypatch.setattr(run_directory, "RUNTIME_ROOT", tmp_path / "run")
    monkeypatch.setattr(specs, "machine_checks", lambda resolved, runs_root: [])
    monkeypatch.setattr(specs, "check_all", lambda asked: [{"faults": [], "computes": True} for _ in asked])
    monkeypatch.setattr(tune_command, "check_parts", lambda spec: {"metric": {"name": "accuracy"}})
    monkeypatch.setattr(trials, "ask_analysis", reached)
    monkeypatch.setattr(retry, "estimates", lambda asked, *_: {one.spec.hash: Estimate(None, UNKNOWN) for one in asked})

    write = tune_command.results.write

    def put(ends: Callable[[int, RunSpec], Any] = lambda number, spec: end_of(spec), *, pages: bool = False) -> Place:
        found = Place(runs, ends)
        monkeypatch.setattr(tune_command.results, "write", write if pages else lambda *_: None)
        monkeypatch.setattr(registry, "executor", lambda *_, **__: found)
        return found

    return put


def tune(runs: Path, capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> dict[str, Any]:
    assert main(["tune", "--json", "--runs", str(runs), *SEARCHED, *words]) == status
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def best(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in found["trials"] if row["front"]]


def settings(made: Sequence[RunSpec]) -> list[tuple[str, float | None]]:
    return [(spec.compressor.name, spec.compressor.params.get("density")) for spec in made]


@pytest.mark.tier("all")
def test_the_search_goes_where_the_target_is_reached_soonest(
    place: Callable[..., Place], runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = place()
    found = tune(runs, capsys, "--trials", "24")
    assert len(found["trials"]) == 24 and found["by"] == ["time_to_target_s"]
    first = best(found)[0]
    assert first["values"]["compressor"] == "topk" and first["figures"]["time_to_target_s"] < 10.5
    seconds = [row["figures"]["time_to_target_s"] for row in found["trials"]]
    assert min(seconds) == first["figures"]["time_to_target_s"]
    assert sum(name == "none" for name, _ in settings(there.begun)) == 1, "the same spec is made once"
    assert all((density is None) == (name == "none") for name, density in settings(there.begun))
    assert sum(seconds[12:]) / 12 < sum(seconds[:12]) / 12, "what came of trials guides those behind them"


@pytest.mark.tier("all")
def test_by_both_the_front_is_of_those_that_no_other_beats(
    place: Callable[..., Place], runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place()
    found = tune(runs, capsys, "--by", "both", "--trials", "16")
    edge = sorted((row["figures"]["time_to_target_s"], row["figures"]["wan_bytes"]) for row in best(found))
    assert len(set(edge)) > 1
    for row in found["trials"]:
        mine = row["figures"]["time_to_target_s"], row["figures"]["wan_bytes"]
        beaten = any(one != mine and one[0] <= mine[0] and one[1] <= mine[1] for one in edge)
        assert beaten != row["front"]
    assert main(["tune", "--by", "both", "--trials", "16", "--runs", str(runs), *SEARCHED]) == 0
    out = capsys.readouterr().out
    assert out.count("front") == len(set(edge)) and "16 of 16 trials reached the target (emulated)" in out


@pytest.mark.tier("all")
def test_what_ended_it_is_gone_on_from_and_a_longer_search_from_a_shorter(
    place: Callable[..., Place], runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = place(lambda number, spec: Interrupted("stopped by SIGINT") if number == 6 else end_of(spec))
    short = tune(runs, capsys, "--trials", "12", status=4)
    assert len(there.begun) == 6 and 5 <= len(short["trials"]) < 12
    again = place()
    whole = tune(runs, capsys, "--trials", "12")
    assert whole["trials"][: len(short["trials"])] == [
        {**one, "front": row["front"]} for one, row in zip(short["trials"], whole["trials"], strict=False)
    ]
    assert not set(settings(again.begun)) & set(settings(there.begun[:5])), "none is made again"
    third = place()
    assert tune(runs, capsys, "--trials", "12") == whole and third.begun == []
    place(pages=True)
    longer = tune(runs, capsys, "--trials", "14")
    assert [row["values"] for row in longer["trials"][:12]] == [row["values"] for row in whole["trials"]]
    (folder,) = (runs / ".sweeps").iterdir()
    assert json.loads((folder / "trials.json").read_text()) == longer
    journal = [json.loads(line) for line in (folder / "study.journal").read_text().splitlines()]
    assert len(journal) > 14 and (folder / "results.csv").exists() and (folder / "report.html").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("ended", [True, False], ids=["with its child", "alone"])
def test_a_signal_while_a_trial_is_read_leaves_what_is_there_and_the_table(
    place: Callable[..., Place],
    runs: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    ended: bool,
) -> None:
    there = place()
    reached = trials.ask_analysis
    read: list[tuple[str, ...]] = []

    def stopped(*words: str, **flags: Any) -> Any:
        read.append(words)
        if len(read) == 3:
            os.kill(os.getpid(), number)
            if ended:  # as by a terminal, whose signal goes to all in the foreground
                raise RunError("reached: the analysis ended with status -2")
        return reached(*words, **flags)

    monkeypatch.setattr(trials, "ask_analysis", stopped)
    before = signal.signal(number, signal.default_int_handler)  # where nothing takes it, it ends no test runner
    try:
        assert main(["tune", "--json", "--runs", str(runs), *SEARCHED, "--trials", "12"]) == 4
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, before)
    captured = capsys.readouterr()
    assert len(json.loads(captured.out)["trials"]) == (2 if ended else 3) and len(there.begun) <= 3
    assert captured.err.splitlines()[-1] == f"longhaul: stopped by {number.name}"
    (folder,) = (runs / ".sweeps").iterdir()
    assert json.loads((folder / "trials.json").read_text()) == json.loads(captured.out)


def test_a_signal_while_a_trial_is_measured_begins_no_run(
    place: Callable[..., Place], runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(asked: Sequence[RunRequest], *_: object) -> dict[str, Estimate]:
        os.kill(os.getpid(), signal.SIGINT)
        return {one.spec.hash: Estimate(None, UNKNOWN) for one in asked}

    there = place()
    monkeypatch.setattr(retry, "estimates", measured)
    assert tune(runs, capsys, "--trials", "3", status=4)["trials"] == [] and there.begun == []


@pytest.mark.parametrize("is_new", [True, False])
def test_new_folders_are_the_caller_s(
    place: Callable[..., Place],
    runs: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    is_new: bool,
) -> None:
    given: list[Path] = []
    monkeypatch.setattr(tune_command, "give_to_caller", given.append)
    monkeypatch.setattr(ownership, "give_to_caller", given.append)
    if is_new:
        runs.rmdir()
    place()
    tune(runs, capsys, "--trials", "1")
    assert given == [runs if is_new else runs / ".sweeps", runs / ".sweeps"]


def test_invalid_runs_are_failed_trials_and_told_at_the_end(
    place: Callable[..., Place], runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place(lambda number, spec: {**end_of(spec), "verdict": "invalid" if spec.compressor.name == "none" else "valid"})
    assert main(["tune", "--trials", "10", "--runs", str(runs), *SEARCHED]) == 0
    captured = capsys.readouterr()
    failed = [line for line in captured.err.splitlines() if "compressor=none: failed: " in line and "invalid" in line]
    assert len({line for line in failed if not line.startswith("longhaul: trial 1 of")}) >= 1
    _, table = captured.out.split("trials reached the target")
    assert " ddp " in table and " topk " in table and " none " not in table, "they give no figure"


@pytest.mark.tier("all")
def test_runs_that_do_not_reach_the_target_teach_and_are_told(
    place: Callable[..., Place], runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def short_of(number: int, spec: RunSpec) -> dict[str, Any]:
        end = end_of(spec)
        if spec.compressor.params.get("density", 1.0) > 0.03:
            end["metric"] |= {"best": 0.45, "time_to_target_s": None}
        return end

    place(short_of)
    found = tune(runs, capsys, "--trials", "24")
    missed = [row for row in found["trials"] if not row["reached"]]
    assert missed and all(row["shortfall"] == pytest.approx(0.5) and not row["front"] for row in missed)
    assert sum(not row["reached"] for row in found["trials"][12:]) < sum(
        not row["reached"] for row in found["trials"][:12]
    )
    (first,) = {row["label"] for row in best(found)}
    assert float(first.split("density=")[1]) <= 0.03
    place(lambda number, spec: {**end_of(spec), "status": "failed"})
    assert main(["tune", "--trials", "2", "--runs", str(runs), *SEARCHED, "seed=7"]) == 4
    assert "0 of 2 trials reached the target" in capsys.readouterr().out


def test_a_trial_has_a_run_of_each_seed(
    place: Callable[..., Place], runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = place(lambda number, spec: {**end_of(spec), "time_s": 1.0})
    found = tune(runs, capsys, "--trials", "2", "seed=range(3)")
    assert [len(row["run_ids"]) for row in found["trials"]] == [3, 3]
    assert [spec.seed for spec in there.begun[:3]] == [0, 1, 2]
    assert "seed" not in found["trials"][0]["label"]


def test_what_plug_ins_refuse_is_a_failed_trial(
    place: Callable[..., Place], runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def checked(asked: list[RunSpec]) -> list[dict[str, Any]]:
        return [
            {"faults": ["compressor=none: not here"] if spec.compressor.name == "none" else [], "computes": True}
            for spec in asked
        ]

    monkeypatch.setattr(specs, "check_all", checked)
    place()
    found = tune(runs, capsys, "--trials", "8")
    refused = [row for row in found["trials"] if row["why_not"]]
    assert refused and all(row["why_not"] == "refused: compressor=none: not here" for row in refused)


def test_what_all_trials_have_is_looked_at_with_the_strategy_that_was_given(
    place: Callable[..., Place], runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[RunSpec] = []
    monkeypatch.setattr(
        tune_command, "check_parts", lambda spec: looked.append(spec) or {"metric": {"name": "accuracy"}}
    )
    place()
    tune(runs, capsys, "strategy=local_sgd", "strategy.sync_every=7", "--trials", "1")
    (spec,) = looked
    assert (spec.strategy.name, spec.strategy.params["sync_every"], spec.compressor.name) == ("local_sgd", 7, "none")


def test_all_faults_at_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune_command, "check_parts", lambda spec: {"metric": None})
    words = ["compressor=none,topkk", "compressor.density=interval(1,0)", "workers=2,4", "strategy.speed=range(3)"]
    assert main(["tune", *words]) == 2
    assert "an interval needs two finite ends" in capsys.readouterr().err
    assert main(["tune", "--trials", "0", "--by", "luck", words[0], *words[2:], "topo.rate=range(2)"]) == 2
    said = capsys.readouterr().err
    for line in (
        "--trials 0: must be at least 1",
        "--by luck: unknown; known: time, bytes, both",
        "compressor=topkk: unknown compressor; did you mean topk?",
        "workers: is not searched",
        "topo.rate: is not searched",
        "strategy.speed: unknown parameter of ddp",
    ):
        assert line in said
    assert main(["tune", "topo=lan", "--by", "both", "compressor=none,topk"]) == 2
    said = capsys.readouterr().err
    assert "topo=lan has no WAN link" in said and "workload=digits: has no metric" in said
