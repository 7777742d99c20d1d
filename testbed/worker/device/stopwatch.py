"""How long collectives are under way, found without running Python in the threads that carry them."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable


class Stopwatch:
    """Seconds during which at least one collective was under way.

    A thread of ours sleeps in each collective's own wait, in order of start. A callback would be more direct, but it
    runs in gloo's two threads, and those then stand still while a codec holds the interpreter's lock. Waiting in order
    loses nothing: what ends before its predecessor ends inside an interval that is still open.

    An end is noted late by as long as another thread holds the interpreter's lock, hence a few tens of microseconds,
    but up to the whole of a compression by a codec that does not release it (pysz). What is waited for ends with that
    wait at the latest.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._active = 0
        self._since_s = 0.0
        self._total_s = self._taken_s = 0.0
        self.began: Callable[[], None] | None = None
        """Called when one begins while none is under way, in the thread that begins it."""
        self._followed: queue.SimpleQueue[tuple[Callable[[], object], Callable[[], None]]] = queue.SimpleQueue()
        self._follower: threading.Thread | None = None

    def start(self) -> Callable[[], None]:
        """Return what ends this interval; calling it twice is harmless."""
        with self._lock:
            is_first = self._active == 0
            if is_first:
                self._since_s = time.monotonic()
            self._active += 1
        if is_first and self.began is not None:
            self.began()
        ended = False

        def end() -> None:
            nonlocal ended
            with self._lock:
                if not ended:
                    ended = True
                    self._active -= 1
                    if self._active == 0:
                        self._total_s += time.monotonic() - self._since_s

        return end

    def follow(self, wait: Callable[[], object]) -> Callable[[], None]:
        """Like `start`, but the interval also ends once `wait`, which blocks without the lock, returns or raises."""
        end = self.start()
        if self._follower is None:
            # A daemon: a collective that never ends must not keep the process.
            self._follower = threading.Thread(target=self._follow, name="stopwatch", daemon=True)
            self._follower.start()
        self._followed.put((wait, end))
        return end

    @property
    def is_running(self) -> bool:
        return self._active > 0

    def take_s(self) -> float:
        """Seconds since the last call; of an interval still open, the part until now."""
        with self._lock:
            if self._active:
                now_s = time.monotonic()
                self._total_s += now_s - self._since_s
                self._since_s = now_s
            total_s, self._total_s = self._total_s, 0.0
            self._taken_s += total_s
            return total_s

    def so_far_s(self) -> float:
        """Seconds since the beginning, whatever has been taken; of an interval still open, the part until now."""
        with self._lock:
            running_s = time.monotonic() - self._since_s if self._active else 0.0
            return self._taken_s + self._total_s + running_s

    def _follow(self) -> None:
        while True:
            wait, end = self._followed.get()
            try:
                wait()
            except RuntimeError:
                pass  # whoever needs the result waits too, and says what failed
            end()
            del wait, end  # they hold the collective's tensors, and the next one may be long in coming
