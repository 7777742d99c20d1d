"""What processes outside of a run computed, from counters of the machine and of the run's processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from testbed.orchestrator.machine.host_counters import Process, own_cpu_s, parse_process, read_processes
from tests.waiting import wait_until

LINE = "42 (a (b) 7 R) {state} 1 42 42 0 -1 4194304 1 0 0 0 250 30 50 6 39 19 1 0 987654 1 2 3"


@contextmanager
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_process_with_any_name_is_read() -> None:
    found = parse_process(LINE.format(state="S"))
    ours = Process(began=987654, user_s=3.0, kernel_s=0.36, is_stopped=False)
    assert found == ours, "250 + 50 and 30 + 6 ticks, children that ended included"
    assert parse_process(LINE.format(state="T")).is_stopped


def test_time_of_new_processes_counts_from_their_beginning() -> None:
    before = {1: Process(10, 1.0, 4.0, False)}
    assert own_cpu_s(before, {1: Process(10, 1.5, 4.5, False), 2: Process(20, 0.25, 0.125, False)}) == (0.75, 0.625)


def test_after_a_process_has_ended_nobody_knows_what_it_computed_last() -> None:
    before = {1: Process(10, 1.0, 0.0, False), 2: Process(20, 9.0, 0.0, False)}
    assert own_cpu_s(before, {1: Process(10, 1.5, 0.0, False)}) is None
    again = {1: Process(10, 1.5, 0.0, False), 2: Process(30, 0.0, 0.0, False)}
    assert own_cpu_s(before, again) is None, "a number given again"


def test_a_stopped_child_is_seen() -> None:
    with sleeping() as process:
        assert not read_processes()[process.pid].is_stopped
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: read_processes()[process.pid].is_stopped, "the child stopped")
