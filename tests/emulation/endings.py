"""The ends of a run that every runtime of nodes is held to."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from testbed.core.record.run_directory import RunDir
from testbed.core.record.summary import summary_faults
from testbed.orchestrator.emulation.containers.runc_container import container_name
from testbed.orchestrator.machine import cleanup
from tests.emulation.support import Longhaul, gone_within, host_state, listed, run_process, wait_until, whole_events

LONG = ("topo=wan100m", "topo.rtt='5 ms'", "workload=sensors", "steps=10000", "evaluate_every=10000")
"""Its first steps come soon."""


def worker_process(run_id: str, node: str) -> int:
    """Of a node; not the process that keeps its container."""
    group = f"/{container_name(run_id, node)}/"
    (found,) = (
        pid
        for pid in cleanup.processes_of(run_id)
        if b"testbed.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
        and any(group in f"{line}/" for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines())
    )
    return found


def is_being_sealed(run: RunDir) -> bool:
    """True from the first derived file on, which its writer names after it while it is not whole."""
    return any(path.name.lstrip(".").startswith(("samples.", "metrics.", "report.")) for path in run.path.iterdir())


class Endings:
    """However a run ends, its record says how, its logs are kept, and within seconds nothing of it is left."""

    words: ClassVar[tuple[str, ...]] = LONG
    """With which it is asked for."""

    @pytest.fixture
    def running(self, tmp_path: Path, machine_lock: None) -> Iterator[Longhaul]:
        """A run in the middle of its training; whatever the test does, nothing of it is left on the host."""
        before = host_state()
        longhaul = Longhaul(tmp_path / "runs", *self.words)
        longhaul.wait_for_step(2)
        run_id = longhaul.run.run_id
        yield longhaul
        if longhaul.process.poll() is None:
            longhaul.kill_group()
        gone_within(run_id)
        assert host_state() == before
        assert any(event["event"] == "step" for event in whole_events(longhaul.run))

    @pytest.mark.parametrize(
        "number",
        [
            signal.SIGTERM,
            *(pytest.param(number, marks=pytest.mark.tier("slow")) for number in (signal.SIGINT, signal.SIGHUP)),
        ],
    )
    def test_a_signal_ends_it_in_order(self, running: Longhaul, number: signal.Signals) -> None:
        run = running.run
        if number == signal.SIGTERM:
            os.kill(running.process.pid, number)
        else:  # as a terminal does: the whole foreground group
            os.killpg(running.process.pid, number)
        gone_within(run.run_id)
        assert running.wait() == 4
        summary = running.summary()
        assert summary_faults(summary) == []
        assert (summary["status"], summary["verdict"]) == ("interrupted", "invalid")
        assert number.name in summary["reasons"][0]
        assert summary["steps"] >= 1
        assert run.log("oregon-0").exists() and run.orchestrator_log.read_text()

    @pytest.mark.tier("slow")
    def test_impatience_while_sealing_does_not_spoil_the_record(self, running: Longhaul) -> None:
        """A second and third Ctrl-C, and a `list` beside it, while the first one's record is being sealed."""
        os.killpg(running.process.pid, signal.SIGINT)
        wait_until(lambda: is_being_sealed(running.run), 60, "the sealing to begin", every_s=0.01)
        os.killpg(running.process.pid, signal.SIGINT)
        assert '"running"' in listed(running.runs) or running.run.summary.exists()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.process.pid, signal.SIGHUP)
        assert running.wait() == 4
        assert running.summary()["status"] == "interrupted"
        assert (running.run.path / "report.html").exists()

    def test_a_signal_while_it_is_built_ends_it_in_order(self, tmp_path: Path, machine_lock: None) -> None:
        before = host_state()
        longhaul = Longhaul(tmp_path / "runs", *self.words)
        wait_until(lambda: longhaul.runs.exists() and "network:" in longhaul.said, 60, "the network's stage")
        run_id = longhaul.run.run_id
        os.kill(longhaul.process.pid, signal.SIGTERM)
        assert longhaul.wait() == 4
        gone_within(run_id)
        assert longhaul.summary()["status"] == "interrupted"
        assert host_state() == before

    @pytest.mark.parametrize(
        "whole_group",
        [
            pytest.param(True, id="group", marks=pytest.mark.tier("slow")),
            pytest.param(False, id="supervisor alone", marks=pytest.mark.tier("test")),
        ],
    )
    def test_kill_9_leaves_nothing_and_the_next_command_seals_it(self, running: Longhaul, whole_group: bool) -> None:
        run = running.run
        assert cleanup.leftovers(run.run_id), "nothing to clean: the test would prove nothing"
        (os.killpg if whole_group else os.kill)(running.process.pid, signal.SIGKILL)
        running.process.wait()
        gone_within(run.run_id)
        assert not run.summary.exists()
        events = whole_events(run)
        assert '"killed"' in listed(running.runs)
        summary = running.summary()
        assert (summary["status"], summary["verdict"]) == ("killed", "invalid")
        assert summary_faults(summary) == []
        assert summary["steps"] >= 1
        assert whole_events(run) == events, "sealing reads them, and adds nothing"

    def test_kill_9_of_the_run_s_own_process_fails_it_and_keeps_its_record(self, running: Longhaul) -> None:
        run = running.run
        os.kill(run_process(run.run_id), signal.SIGKILL)
        gone_within(run.run_id)
        assert running.wait() == 4
        summary = running.summary()
        assert (summary["status"], summary["verdict"]) == ("failed", "invalid")
        assert summary_faults(summary) == []
        assert summary["reasons"][0].startswith(
            ("the run's own process ended without a word", "the run's own process was ended by")
        )
        assert summary["steps"] >= 1
        assert run.samples.exists() and run.report.exists()
        assert '"failed"' in listed(running.runs)

    def test_a_dead_worker_is_named_before_any_collective_times_out(self, running: Longhaul) -> None:
        run = running.run
        os.kill(worker_process(run.run_id, "virginia-1"), signal.SIGKILL)
        gone_within(run.run_id)
        assert running.wait() == 4
        summary = running.summary()
        assert summary["status"] == "failed"
        assert "worker 3 on virginia-1 was ended by SIGKILL" in summary["reasons"][0]

    def test_a_dead_delay_line_is_named(self, running: Longhaul) -> None:
        run = running.run
        (line,) = [
            pid
            for pid in cleanup.processes_of(run.run_id)
            if b"shapers.delay_line" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        os.kill(line, signal.SIGKILL)
        gone_within(run.run_id)
        assert running.wait() == 4
        assert "delay line ended" in running.summary()["reasons"][0]
