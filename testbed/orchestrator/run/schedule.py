"""Makes the changes of a spec happen while a run goes on, each at its emulated time, and records what it did."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from testbed.core.errors import RunError
from testbed.core.record.events import run as events
from testbed.core.spec.link_profile import LinkProfile
from testbed.core.spec.schedule import Change
from testbed.core.spec.topology import Topology
from testbed.orchestrator.config.events.profiles import Profiles


class Links(Protocol):
    """What a schedule needs of the network. Profiles are in wall-clock terms."""

    def change(self, link: str, source: str, profile: LinkProfile) -> None: ...

    def set_down(self, link: str, down: bool) -> None: ...


class Members(Protocol):
    """What a schedule needs of the workers."""

    def crash(self, node: str) -> None: ...

    def leave(self, node: str) -> None: ...

    def join(self, node: str) -> None: ...


class Schedule:
    """A thread of its own, from `start` to `stop`.

    Args:
        topology: in emulated terms, as the changes are.
        write: takes a `change` event for each direction that was set, each link that went down or up, each node.
        now, wait: of the clock; `wait(stopping, seconds)` returns early when `stopping` is set.
    """

    def __init__(
        self,
        changes: Sequence[Change],
        topology: Topology,
        dilation: float,
        network: Links,
        workers: Members,
        write: Callable[[dict[str, Any]], None],
        *,
        now: Callable[[], float] = time.monotonic,
        wait: Callable[[threading.Event, float], object] = threading.Event.wait,
    ) -> None:
        self._changes = sorted(changes, key=lambda change: change.t_s)
        self._ends = {link.name: (link.a, link.b) for link in topology.wan_links}
        self._profiles = Profiles(topology)
        self._dilation = dilation
        self._network = network
        self._workers = workers
        self._write = write
        self._now = now
        self._wait = wait
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._t0_s = 0.0
        self._applied = 0
        self._down: dict[str, Change] = {}
        self.failure: RunError | None = None
        """A change that could not be made: the network is no longer what the spec says, so the run must fail."""

    @property
    def pending(self) -> int:
        """Changes whose time has not come."""
        return len(self._changes) - self._applied

    @property
    def down_links(self) -> list[str]:
        """What is down now, one line a link: the likely cause of what workers complain about."""
        return [
            f"link {link} is down since {change.t_s:g} s ({change.cause})" for link, change in list(self._down.items())
        ]

    def start(self, t0_s: float) -> None:
        """Begin; `t0_s` is when step 1 begins, on the monotonic clock."""
        self._t0_s = t0_s
        self._thread = threading.Thread(target=self._run, name="schedule", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End; a change that is being made is finished."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        for change in self._changes:
            if not self._wait_until(self._t0_s + self._dilation * change.t_s):
                return
            try:
                self._apply(change)
            except Exception as error:  # a thread has nobody to raise to
                said = str(error) if isinstance(error, RunError) else f"{type(error).__name__}: {error}"
                where = change.link or change.node
                self.failure = RunError(f"{change.kind} {where} at {change.t_s:g} s ({change.cause}): {said}")
                return
            self._applied += 1

    def _wait_until(self, due_s: float) -> bool:
        """False if the schedule was stopped first."""
        while not self._stopping.is_set():
            left_s = due_s - self._now()
            if left_s <= 0:
                return True
            self._wait(self._stopping, left_s)
        return False

    def _apply(self, change: Change) -> None:
        if change.kind == "set":
            for link, source, before, after in self._profiles.apply(change):
                self._network.change(link, source, after.dilated(self._dilation))
                values = {name: (getattr(before, name), getattr(after, name)) for name in change.values}
                self._record(change, source, values)
        elif change.link is not None:
            self._network.set_down(change.link, change.kind == "down")
            if change.kind == "down":
                self._down[change.link] = change
            else:
                self._down.pop(change.link, None)
            self._record(change)
        else:
            assert change.node is not None
            act = {"crash": self._workers.crash, "leave": self._workers.leave, "join": self._workers.join}[change.kind]
            act(change.node)
            self._record(change)

    def _record(
        self, change: Change, source: str | None = None, values: dict[str, tuple[float, float]] | None = None
    ) -> None:
        """After the fact: the call has returned, and the network has read back what it was given."""
        t_s = (self._now() - self._t0_s) / self._dilation
        target = next((end for end in self._ends.get(change.link or "", ()) if source and end != source), None)
        self._write(
            events.Change(
                t_s=t_s,
                what=change.kind,
                name=change.link,
                from_=source,
                to=target,
                node=change.node,
                asked_s=change.t_s,
                late_s=t_s - change.t_s,
                before={name: before for name, (before, _) in (values or {}).items()},
                after={name: after for name, (_, after) in (values or {}).items()},
                cause=change.cause,
            ).to_json()
        )
