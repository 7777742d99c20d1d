"""Addresses of the live pages: what they answer, what they refuse, and that nothing leaves the folder of runs."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from testbed.analysis.live import sweeps
from testbed.analysis.live.app import application
from testbed.analysis.live.run_index import RunIndex
from testbed.analysis.live.tail import tail
from testbed.core.record.run_directory import RunDir, write_json
from tests.unit.analysis.figures.drawn_runs import drawn_run
from tests.unit.analysis.synthetic import make_run

RUN_ID = "20250102T030405Z-wan-ddp-topk-0123abcd"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    root = tmp_path / "runs"
    root.mkdir()
    for compressor in ("none", "topk"):
        drawn_run(root, compressor=compressor)
    drawn_run(root, compressor="int8", verdict="invalid", reasons=["late"])
    return root


@pytest.fixture
def client(runs: Path) -> TestClient:
    return TestClient(application(runs), base_url="http://127.0.0.1:9099")


def rows(client: TestClient) -> dict[str, dict[str, Any]]:
    found = client.get("/api/runs").json()
    return {row[0]: dict(zip(found["fields"], row, strict=True)) for row in found["rows"]}


def test_every_run_has_a_row(client: TestClient, runs: Path) -> None:
    found = rows(client)
    assert sorted(found) == sorted(path.name for path in runs.iterdir())
    assert [row["verdict"] for row in found.values()] == ["invalid", "valid", "valid"], "the newest first"
    version = client.get("/api/runs").json()["version"]
    assert client.get(f"/api/runs?version={version}").status_code == 204


def test_the_index_reads_again_what_has_changed(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.analysis.live.run_index._MIN_AGE_S", 0.0)
    index = RunIndex(runs)
    before = index.to_json()
    assert index.to_json()["version"] == before["version"]
    new = drawn_run(runs, compressor="fp16")
    assert index.rows()[0]["run_id"] == new.name
    summary = json.loads((new / "summary.json").read_text()) | {"verdict": "suspect"}
    write_json(new / "summary.json", summary)
    os.utime(new / "summary.json", ns=(1, 1))
    assert index.rows()[0]["verdict"] == "suspect"
    shutil.rmtree(new)
    assert len(index.rows()) == len(before["rows"])


def test_ticked_runs_are_drawn_and_invalid_ones_on_request(client: TestClient) -> None:
    asked = {"runs": list(rows(client)), "kind": "accuracy_over_steps"}
    found = client.post("/api/figure", json=asked).json()
    (panel,) = found["panels"]
    assert {trace["legendgroup"] for trace in panel["data"] if "legendgroup" in trace} == {"none", "topk"}
    assert any("Left out: 1 of 3 runs" in note for note in found["notes"])
    (panel,) = client.post("/api/figure", json={**asked, "invalid": True, "dark": True}).json()["panels"]
    assert {trace["legendgroup"] for trace in panel["data"] if "legendgroup" in trace} == {"none", "topk", "int8"}


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"runs": [], "kind": "acuracy_over_time"}, "did you mean 'accuracy_over_time'"),
        ({"runs": [], "band": "wide"}, "band 'wide' is unknown"),
        ({"kind": "pareto"}, "expected"),
        ([], "expected"),
    ],
)
def test_a_figure_that_cannot_be_is_refused(client: TestClient, asked: object, words: str) -> None:
    answer = client.post("/api/figure", json=asked)
    assert answer.status_code == 404 and words in " ".join(answer.json()["faults"])


def test_a_run_has_links_on_a_drawing_figures_and_events(runs: Path) -> None:
    make_run(runs)
    client = TestClient(application(runs), base_url="http://localhost")
    found = client.get(f"/api/runs/{RUN_ID}").json()
    wan = [link for link in found["links"] if link["wan"]]
    assert found["svg"].startswith("<svg") and f'data-link="{wan[0]["name"]}"' in found["svg"]
    assert wan[0]["target_rate_bit_s"] == 1e8 and wan[0]["measured_rate_bit_s"] == pytest.approx(0.99e8)
    kinds = [one["kind"] for one in client.get(f"/api/runs/{RUN_ID}/figures").json()]
    assert kinds == ["training", "step_time", "wan_rate", "rtt", "lateness", "cpu_idle"]
    events = client.get(f"/api/runs/{RUN_ID}/events").json()
    assert events["kinds"]["step"] == 240 and {one["event"] for one in events["events"]} == {"schedule", "model"}
    assert len(client.get(f"/api/runs/{RUN_ID}/events?kind=step").json()["events"]) == 240


def test_the_verdict_changes_over_time(runs: Path) -> None:
    run = make_run(runs)
    text = run.events.read_text()
    half = text.index("\n", len(text) // 2) + 10
    run.events.write_text(text[:half])
    client = TestClient(application(runs), base_url="http://127.0.0.1")
    found = client.get(f"/api/runs/{RUN_ID}/verdicts").json()
    assert 20 < found["end_s"] < 40 and found["changes"][0][1:] == ["valid", []]
    run.events.write_text(text)
    again = client.get(f"/api/runs/{RUN_ID}/verdicts").json()
    assert again["end_s"] == 60.5 and again["changes"][: len(found["changes"])] == found["changes"]
    assert again["changes"][-1][1] == "invalid" and again["changes"][-1][2]
    run.spec.write_text("{}")
    answer = TestClient(application(runs), base_url="http://127.0.0.1").get(f"/api/runs/{RUN_ID}/verdicts")
    assert answer.json()["changes"] == [] and "verdict over time" in answer.json()["faults"][0]


def test_only_whole_new_lines_are_told(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    assert tail(run, 7).is_restarted and tail(run, 0).lines == b""
    run.events.write_bytes(b'{"a": 1}\n{"b"')
    first = tail(run, 0)
    assert (first.lines, first.next_byte, first.is_ended) == (b'{"a": 1}\n', 9, False)
    run.events.write_bytes(b'{"a": 1}\n{"b": 2}\n')
    assert tail(run, first.next_byte).lines == b'{"b": 2}\n'
    assert tail(run, 0, max_bytes=3).lines == b'{"a": 1}\n', "a line longer than an answer"
    assert tail(run, 0, max_bytes=12).has_more
    run.events.write_bytes(b'{"c": 3}\n')
    again = tail(run, 18)
    assert again.is_restarted and again.lines == b'{"c": 3}\n'
    run.summary.write_text("{}")
    assert tail(run, again.next_byte).is_ended


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9099", "127.0.0.1.evil.example", "0.0.0.0"])
def test_another_host_is_refused(client: TestClient, host: str) -> None:
    assert client.get("/api/runs", headers={"Host": host}).status_code == 400


def test_no_page_of_another_origin_can_read_or_frame_it(client: TestClient) -> None:
    for path in ("/", "/run/x", "/sweep/x", "/api/runs", "/static/live.css"):
        answer = client.get(path, headers={"Origin": "http://evil.example"})
        assert answer.status_code == 200
        assert not [name for name in answer.headers if name.startswith("access-control")]
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe-eval" not in policy


@pytest.mark.parametrize("name", ["..", "nobody", "%2e%2e", "..%2f..%2fetc", "20260101T000000Z-link"])
def test_no_path_leads_out_of_the_folder(client: TestClient, runs: Path, name: str) -> None:
    (runs / "20260101T000000Z-link").symlink_to("/etc")
    for what in ("", "/figures", "/events", "/verdicts", "/tail"):
        answer = client.get(f"/api/runs/{name}{what}")
        assert answer.status_code in (200, 404) and "root:" not in answer.text
        assert answer.status_code == 404 or "fields" in answer.json(), (
            "only the list itself, for a path that is its own"
        )
    assert client.get(f"/api/sweeps/{name}").status_code == 404
    assert client.get(f"/static/{name}/app.py").status_code == 404


def test_a_wrong_byte_is_refused(client: TestClient) -> None:
    run_id = next(iter(rows(client)))
    for byte in ("-1", "x", "1e3", "9" * 30):
        assert client.get(f"/api/runs/{run_id}/tail?from={byte}").status_code == 404


def results(*rows: tuple[dict[str, str], float]) -> dict[str, Any]:
    values = {"low": None, "high": None}
    made = [{"axes": axes, "run_ids": [], "values": {"time_s": {"mean": v, **values}}} for axes, v in rows]
    return {"name": "made", "axes": list(rows[0][0]), "rows": made}


def test_a_sweep_along_an_axis_of_numbers_and_of_names() -> None:
    found = results(*(({"rtt": f"{r} ms", "compressor": c}, float(r)) for r in (100, 20) for c in ("none", "topk")))
    (panel,) = sweeps.along_axis(found, "rtt", "time_s").panels
    assert panel.x.label == "rtt (ms)" and [one.x for one in panel.series] == [(20.0, 100.0)] * 2
    assert {one.label for one in panel.series} == {"none", "topk"}
    (panel,) = sweeps.along_axis(found, "compressor", "time_s").panels
    assert panel.x.categories == ("none", "topk")


def test_many_series_of_a_sweep_become_several_panels() -> None:
    found = results(*(({"rtt": f"{r} ms", "compressor": f"c{n}"}, 1.0) for r in (1, 2) for n in range(20)))
    figure = sweeps.along_axis(found, "rtt", "time_s")
    assert [len(panel.series) for panel in figure.panels] == [7, 7, 6]


def test_sweeps_are_found_and_wrong_questions_refused(client: TestClient, runs: Path) -> None:
    folder = runs / ".sweeps" / "made"
    folder.mkdir(parents=True)
    write_json(folder / "results.json", results(({"rtt": "1 ms"}, 1.0), ({"rtt": "2 ms"}, 2.0)))
    assert client.get("/api/runs").json()["sweeps"] == ["made"]
    assert client.get("/api/sweeps/made?axis=rtt&measure=time_s").json()["figure"]["panels"]
    answer = client.get("/api/sweeps/made?axis=rate&measure=speed").json()
    assert ["rate" in fault or "speed" in fault for fault in answer["faults"]] == [True, True]
    for text in ('{"axes": 1}', "{}", '{"axes": [], "rows": [1]}'):
        (folder / "results.json").write_text(text)
        assert "cannot be read" in client.get("/api/sweeps/made").json()["faults"][0]


@pytest.mark.parametrize("path", ["/nowhere", "/run/a/b", "/static/none.js"])
def test_an_address_of_nothing_answers_a_page_that_leads_back(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404 and 'name="viewport"' in answer.text and 'href="/">all runs' in answer.text


def test_runs_that_cannot_be_read_are_counted(client: TestClient, runs: Path) -> None:
    before = client.get("/api/runs").json()
    damaged = runs / "20260101T000000Z-wan-ddp-topk-0000dead"
    damaged.mkdir()
    (damaged / "summary.json").write_text("not json")
    after = TestClient(application(runs), base_url="http://127.0.0.1").get("/api/runs").json()
    assert (after["unreadable"], len(after["rows"])) == (before["unreadable"] + 1, len(before["rows"]))
