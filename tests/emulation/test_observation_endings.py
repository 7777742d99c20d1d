"""What happens to a run whose observation fails: docs/run-directory.md has the table."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed.core.record.summary import summary_faults
from tests.emulation.support import (
    START_TIMEOUT_S,
    Longhaul,
    gone_within,
    host_state,
    listed,
    run_process,
    wait_until,
    whole_events,
)
from tests.unit.analysis.archived import ask, require_prometheus, served

STEPS, RANKS = 30, 4
END_LIMIT_S = 60.0
"""From a run's last event to its end, its record sealed. It waits 10 s at most for somebody who scrapes."""


@contextmanager
def _run(runs: Path, *overrides: str) -> Iterator[Longhaul]:
    """Whatever the test does, nothing of it is left on the host."""
    before = host_state()
    longhaul = Longhaul(runs, "topo=wan100m", "workload=sensors", "evaluate_every=10000", *overrides)
    try:
        yield longhaul
    finally:
        if longhaul.process.poll() is None:
            longhaul.kill_group()
    gone_within(longhaul.run.run_id)
    assert host_state() == before


def _steps(longhaul: Longhaul) -> list[int]:
    return [event["step"] for event in whole_events(longhaul.run) if event["event"] == "step"]


@pytest.mark.tier("slow")
@pytest.mark.timeout(600)
def test_training_goes_on_when_the_prometheus_that_scrapes_it_is_killed(tmp_path: Path, machine_lock: None) -> None:
    require_prometheus()
    with _run(tmp_path / "runs", f"steps={STEPS}") as longhaul:

        def address() -> re.Match[str] | None:
            return re.search(r"http://(127\.0\.0\.1:\d+)/metrics", longhaul.said)

        wait_until(lambda: address() is not None, START_TIMEOUT_S, "the address of /metrics")
        found = address()
        assert found is not None
        target = f"static_configs: [{{targets: ['{found[1]}']}}]"
        scrapes = f"scrape_configs: [{{job_name: longhaul, scrape_interval: 1s, scrape_timeout: 1s, {target}}}]\n"
        with served(tmp_path / "data", tmp_path, scrapes) as server:
            wait_until(lambda: bool(ask(server, "longhaul_train_steps_total > 1")), START_TIMEOUT_S, "scraped steps")
            assert server._process is not None
            server._process.kill()
            server._process.wait()
            seen = max(_steps(longhaul))
        assert seen < STEPS - 2, "it was not in the midst of training: the test would prove nothing"
        assert longhaul.wait() in (0, 5), longhaul.said
        took_s = time.time() - longhaul.run.events.stat().st_mtime
    assert Counter(_steps(longhaul)) == dict.fromkeys(range(1, STEPS + 1), RANKS)
    summary = longhaul.summary()
    assert (summary["status"], summary["steps"]) == ("completed", STEPS)
    assert longhaul.run.events.read_text().endswith("\n")
    assert took_s < END_LIMIT_S


def _empty_for(pid: int, path: str) -> None:
    """For the processes of that one's mount namespace a file is there, and has nothing in it."""
    subprocess.run(["nsenter", f"--target={pid}", "--mount", "mount", "--bind", "/dev/null", path], check=True)


def test_a_collector_that_breaks_fails_the_run_and_keeps_its_record(tmp_path: Path, machine_lock: None) -> None:
    with _run(tmp_path / "runs", "steps=10000") as longhaul:
        longhaul.wait_for_step(2)
        run = longhaul.run
        _empty_for(run_process(run.run_id), "/proc/stat")
        gone_within(run.run_id)
        assert longhaul.wait() == 4
    summary = longhaul.summary()
    assert summary_faults(summary) == []
    assert (summary["status"], summary["verdict"]) == ("failed", "invalid")
    assert summary["reasons"][0].startswith("the collector broke: IndexError")
    of_all_ranks = [step for step, ranks in Counter(_steps(longhaul)).items() if ranks == RANKS]
    assert summary["steps"] == len(of_all_ranks) >= 1
    events = whole_events(run)
    assert run.events.read_text().endswith("\n")
    assert [event["message"] for event in events if event["event"] == "fault"] == summary["reasons"][:1]
    assert run.log("oregon-0").exists() and run.samples.exists() and run.report.exists()
    (row,) = json.loads(listed(longhaul.runs))
    assert (row["run_id"], row["status"]) == (run.run_id, "failed")
