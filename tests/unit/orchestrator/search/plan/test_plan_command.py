"""`longhaul plan`: what it prints and refuses; the worker's answer is given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import EXIT_COMPLETED, EXIT_INPUT
from testbed.core.parallelism.links import links_to_json
from testbed.core.parallelism.model import MeasuredLayer, ModelProfile
from testbed.core.parallelism.problem import LinkMatrix
from testbed.orchestrator.cli.main import main
from testbed.orchestrator.config.config import resolve

RUN_ID = "20260101T000000Z-wan100m-hybrid-none-0a1b2c3d"
ASKED = ("topo=wan100m", "workload=bytelm", "workers=4", "batch_size=8")
MODEL = ModelProfile(
    layers=tuple(
        MeasuredLayer(
            name=f"{index}",
            forward_s={1: 0.01},
            parameter_bytes=1_000_000,
            activation_bytes=1000,
            stored_bytes=2000,
        )
        for index in range(4)
    ),
    optimizer_states=2,
)


@pytest.fixture(autouse=True)
def _worker(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(command: str, question: dict[str, Any], what: str, time_limit_s: float) -> dict[str, Any]:
        assert (command, question["spec"]["workload"]["name"]) == ("pieces", "bytelm")
        return {"faults": [], "model": MODEL.to_json()}

    monkeypatch.setattr("testbed.orchestrator.search.plan.plan_command.ask_worker", told)


def _planned(capfd: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["plan", *arguments, "--json"]) == EXIT_COMPLETED
    found: dict[str, Any] = json.loads(capfd.readouterr().out)
    return found


def _probed_run(runs: Path, rate_bit_s: float) -> None:
    links = LinkMatrix.of_regions(
        resolve(ASKED).spec.topology.regions[0:1] * 2 + resolve(ASKED).spec.topology.regions[1:2] * 2,
        lambda a, b: 1e-4 if a == b else 0.02,
        lambda a, b: 1e9 if a == b else rate_bit_s,
    )
    run = runs / RUN_ID
    run.mkdir(parents=True)
    (run / "spec.json").write_text(json.dumps(resolve(ASKED).spec.to_json()))
    event = {"event": "link_probe", "t_s": 1.0, "rank": 0, **links_to_json(links)}
    (run / "events.jsonl").write_text(json.dumps({"event": "step"}) + "\n" + json.dumps(event) + "\n")


def test_plans_for_links_as_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    found = _planned(capfd, *ASKED, "topo.rate='20 Mbit/s'")
    assert found["links_are"].startswith("as asked for")
    assert found["global_batch"] == 32
    assert found["links"]["rate_bit_s"][0][3] == pytest.approx(20e6 * 1448 / 1514)
    times = [one["predicted_s"] for one in found["plans"]]
    assert times == sorted(times)
    assert found["choices"]["auto"]["predicted_s"] == times[0]


def test_the_table_has_plans_choices_and_refusals(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *ASKED, "--memory", "8 MB", "--top", "2"]) == EXIT_COMPLETED
    said = " ".join(capfd.readouterr().out.split())
    assert "the 2 best of" in said
    assert all(name in said for name in ("megatron", "dt_fm", "amp", "data_parallel"))
    assert "of them for memory" in said
    assert "8000000 B" in said


def test_a_way_that_finds_no_plan_says_why(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *ASKED[:-2], "workers=8", "batch_size=1", "--memory", "10 MB"]) == EXIT_COMPLETED
    said = " ".join(capfd.readouterr().out.split())
    assert "plan=data_parallel is none: data parallelism alone:" in said


def test_links_of_a_run_are_those_it_has_probed(runs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _probed_run(runs, 3e6)
    alone = _planned(capfd, "--run", RUN_ID, "--runs", str(runs))
    assert alone["links_are"] == f"as probed in {RUN_ID}"
    assert alone["links"]["rate_bit_s"][0][3] == 3e6
    assert alone["global_batch"] == 32
    larger = _planned(capfd, *ASKED[:-1], "batch_size=16", "--run", RUN_ID, "--runs", str(runs))
    assert (larger["global_batch"], larger["links"]["rate_bit_s"][0][3]) == (64, 3e6)


def test_links_of_other_regions_are_refused(runs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _probed_run(runs, 3e6)
    assert main(["plan", "workload=bytelm", "topo=us3", "--run", RUN_ID, "--runs", str(runs)]) == EXIT_INPUT
    assert "give the same topo and workers" in capfd.readouterr().err


def test_a_run_without_probes_is_refused(runs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _probed_run(runs, 3e6)
    (runs / RUN_ID / "events.jsonl").write_text('{"event": "step"}\n')
    assert main(["plan", "--run", RUN_ID, "--runs", str(runs)]) == EXIT_INPUT
    assert "has no event link_probe" in capfd.readouterr().err
    for name in (RUN_ID.replace("2026", "2027"), "elsewhere"):
        assert main(["plan", "--run", name, "--runs", str(runs)]) == EXIT_INPUT


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--schedules", "1f1b,zigzag"], "zigzag: unknown; known: gpipe, 1f1b, interleaved"),
        (["--memory", "8 apples"], "apples"),
        (["--all-reduce", "tree"], "tree: unknown"),
        (["--top", "0"], "--top 0: must be at least 1"),
    ],
)
def test_what_cannot_be_looked_for_is_refused(flags: list[str], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *ASKED, *flags]) == EXIT_INPUT
    assert said in capfd.readouterr().err
