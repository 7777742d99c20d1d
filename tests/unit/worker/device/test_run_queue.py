"""Whose waits for a core are those of messages."""

from __future__ import annotations

import os
import threading

from testbed.worker.device.run_queue import COLLECTIVES, RunQueueDelay
from testbed.worker.device.stopwatch import Stopwatch


def test_the_main_thread_of_a_forked_worker_is_not_one_that_moves_messages() -> None:
    """Workers are forked, and Python 3.11 leaves their main thread the number it has in the process above."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, f"{len(RunQueueDelay._read_s())}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 10) == b"0"
    os.close(reading)
    os.close(writing)


def test_what_is_waited_counts_from_a_steps_first_collective_to_its_end() -> None:
    told, watch = Told(), Stopwatch()
    watch.began = told.begin
    told.waited_s = 1.0
    assert told.take_s(under_way=watch.is_running) == 0.0
    first = watch.start()
    told.waited_s = 3.0
    second = watch.start()
    first()
    assert told.take_s(under_way=watch.is_running) == 2.0
    told.waited_s = 7.0
    second()
    assert told.take_s(under_way=watch.is_running) == 4.0
    told.waited_s = 9.0
    assert told.take_s(under_way=watch.is_running) == 0.0


class Told(RunQueueDelay):
    """Of one thread, as often as it is told."""

    waited_s = 0.0

    def _read_s(self) -> dict[str, float]:  # type: ignore[override]
        return {"7": self.waited_s}


def test_the_thread_of_our_collectives_is_one() -> None:
    before, end = len(RunQueueDelay._read_s()), threading.Event()
    threads = [threading.Thread(target=end.wait, name=name) for name in (COLLECTIVES, "another")]
    for thread in threads:
        thread.start()
    try:
        assert len(RunQueueDelay._read_s()) == before + 1
    finally:
        end.set()
        for thread in threads:
            thread.join()
