"""One whole run, as a user makes it: its record is complete, its numbers agree with each other."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from pathlib import Path

import pytest

from testbed.core.errors import EXIT_INPUT
from testbed.core.record.summary import summary_faults
from testbed.orchestrator.emulation.kernel.awake_cores import AwakeCores
from tests.emulation.support import CONTROLS, Longhaul, assert_as_asked_or_told, gone_within, host_state

pytestmark = pytest.mark.tier("test")
FILES = {
    "spec.json",
    "provenance.json",
    "network.json",
    "events.jsonl",
    "samples.parquet",
    "metrics.openmetrics",
    "logs",
    "summary.json",
    "report.html",
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, machine_lock: None) -> Longhaul:
    """A short run on wan100m, with its /metrics scraped once while it trained."""
    before = host_state()
    longhaul = Longhaul(
        tmp_path_factory.mktemp("whole") / "runs", "topo=wan100m", "workload=sensors", "steps=12", "evaluate_every=6"
    )
    longhaul.wait_for_step(2)
    port = re.search(r"http://127\.0\.0\.1:(\d+)/metrics", longhaul.said)
    assert port, f"the run did not say where its metrics are:\n{longhaul.said}"
    with urllib.request.urlopen(port.group(0), timeout=60) as answer:
        (longhaul.runs.parent / "metrics").write_bytes(answer.read())
    assert longhaul.wait() in (0, 5), longhaul.said
    gone_within(longhaul.run.run_id)
    assert host_state() == before
    return longhaul


def test_every_file_of_the_interface_is_there_and_nothing_else(finished: Longhaul) -> None:
    assert {path.name for path in finished.run.path.iterdir()} == FILES
    logs = {path.name for path in finished.run.logs.iterdir()}
    facts = json.loads(finished.run.provenance.read_text())
    with AwakeCores() as cores:
        assert facts["cores_kept_awake"] == (cores.refusal is None), cores.refusal
    assert logs == {"orchestrator.log", "oregon-0.log", "oregon-1.log", "virginia-0.log", "virginia-1.log"}


def test_the_summary_is_complete_and_adds_up(finished: Longhaul) -> None:
    summary = finished.summary()
    assert summary_faults(summary) == []
    assert (summary["status"], summary["steps"], summary["workers"]) == ("completed", 12, 4)
    assert summary["bytes"]["payload"] == summary["bytes"]["dense"]
    assert summary["compression_ratio"] == pytest.approx(1, abs=1e-6)
    assert 1.0 <= summary["bytes"]["wire_total"] / summary["bytes"]["payload"] <= 1.1
    # a flat ring of two and two crosses the WAN with a quarter of all messages each way
    assert summary["bytes"]["wire_wan"] == pytest.approx(summary["bytes"]["wire_total"] / 2, rel=0.1)
    assert summary["time_s"] > 0 and summary["wall_s"] > summary["time_s"]
    for link in summary["links"]:
        if link["wan"]:
            found = {key: link[key]["measured"] for key in ("rate_bit_s", "rtt_s")}
            assert_as_asked_or_told(link, 100e6, 0.067, found, summary["reasons"])


def test_what_was_scraped_while_it_trained_passes_promtool(finished: Longhaul) -> None:
    text = (finished.runs.parent / "metrics").read_text()
    assert "longhaul_train_steps_total" in text and "longhaul_link_transmit_bytes_total" in text
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_takes_every_archived_sample(finished: Longhaul, tmp_path: Path) -> None:
    written = sum(1 for line in finished.run.openmetrics.read_text().splitlines() if line and not line.startswith("#"))
    assert written > 500
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(finished.run.openmetrics), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    listed = subprocess.run(
        ["promtool", "tsdb", "list", str(tmp_path)], capture_output=True, text=True, timeout=60, check=True
    )
    rows = [line.split() for line in listed.stdout.splitlines()[1:]]
    assert sum(int(row[4]) for row in rows) == written


def test_events_are_whole_lines_with_a_time(finished: Longhaul) -> None:
    lines = finished.run.events.read_text().splitlines()
    events = [json.loads(line) for line in lines]
    assert all("t_s" in event and "event" in event for event in events)
    assert {
        "schedule",
        "model",
        "measurement",
        "step",
        "evaluation",
        "link",
        "rtt",
        "delay_line",
        "tcp",
        "node",
        "host",
    } <= {event["event"] for event in events}
    assert sum(event["event"] == "step" for event in events) == 12 * 4


def test_the_end_names_verdict_and_run_directory(finished: Longhaul) -> None:
    *_, before, last = finished.said.strip().splitlines()
    assert finished.run.run_id in last.replace(" ", "")
    assert finished.summary()["verdict"] in finished.said[finished.said.rindex("completed") :]
    assert before


def test_without_a_terminal_it_says_plain_lines(finished: Longhaul) -> None:
    assert re.search(r"^ *\d+\.\d s  network: 4 nodes", finished.said, re.MULTILINE)
    assert re.search(r"^ *\d+\.\d s  step 12/12.*loss \d", finished.said, re.MULTILINE)
    assert not CONTROLS.search(finished.said), "no escape sequence, no carriage return"


def test_links_were_as_asked_beside_the_workers_warm_up_too(finished: Longhaul) -> None:
    network = json.loads(finished.run.network.read_text())
    for link in network["links"]:
        if link["wan"]:
            stages = {entry["stage"]: entry for entry in link["measurements"]}
            assert {"idle", "busy"} <= set(stages)
            for stage in ("idle", "busy"):
                assert_as_asked_or_told(link, 100e6, 0.067, stages[stage], finished.summary()["reasons"])


def test_bad_input_is_refused_all_at_once_before_anything_is_built(machine_lock: None, tmp_path: Path) -> None:
    before = host_state()
    bad = ("topo=wan100m", "topo.rtt='-3 ms'", "compressor=topk", "compressor.density=7", "steps=0", "workload=digit")
    longhaul = Longhaul(tmp_path / "runs", *bad)
    assert longhaul.wait() == EXIT_INPUT, longhaul.said
    for given in ("-3 ms", "density=7", "steps=0", "workload=digit: "):
        assert given in longhaul.said, longhaul.said
    assert "digits" in longhaul.said and "Traceback" not in longhaul.said
    assert not (tmp_path / "runs").exists() or not any((tmp_path / "runs").iterdir())
    assert host_state() == before
