"""Runs on other machines, whatever carries specs and replies: begun where there is room, received, made again."""

from __future__ import annotations

import contextlib
import fcntl
import json
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from testbed.core.errors import MachineError, RunError
from testbed.core.files import read_object
from testbed.core.record.run_directory import RunDir
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.executors.executor import FOLDER, Waiting
from testbed.orchestrator.executors.run_archive import remove_halves, unpack
from testbed.orchestrator.machine import provenance
from testbed.orchestrator.machine.ownership import made_for_caller
from testbed.orchestrator.terminal.terminal import say

LOCK = "elsewhere.lock"
MAX_LOSSES = 4
"""A run that was lost so often is a failed attempt: it may be what brings machines down."""
NO_ROOM_S = 120.0
"""Without any machine to make a run on, until that is an error: one that was restarted may come back."""
_POLL_S = 0.5


@dataclass(frozen=True)
class Ended:
    """Outcome of a job; exactly one of the three is there."""

    ticket: str
    reply: Mapping[str, Any] | None = None
    """As of `job.run_job`."""
    lost: str | None = None
    """Its machine is gone, or whoever ran it there."""
    broken: str | None = None
    """It could not be carried out."""


class NoRoomError(Exception):
    """Nothing can be begun for the moment, such as while a cluster's controller is restarted."""


class Machines(Protocol):
    """What brings jobs to other machines; a context manager, inside which it is connected."""

    @property
    def name(self) -> str: ...

    @property
    def room(self) -> str:
        """How many jobs are carried out at once, in words."""

    @property
    def kept_in(self) -> Path | None:
        """Where replies that nobody has forgotten outlive this process; None where they do not."""

    def __enter__(self) -> Machines:
        """
        Raises:
            MachineError: what it needs is not installed, or it does not reach any machine.
        """

    def __exit__(self, *_: object) -> None: ...

    def left_over(self) -> Iterator[Mapping[str, Any]]:
        """Replies to a sweep that ended before it had them; what else was begun for it is ended.

        Each is gone only when the next one is asked for: who could not keep it asks for no more.
        """

    def free(self) -> int:
        """For how many more jobs there is room now."""

    def begin(self, request: Mapping[str, Any]) -> str:
        """A ticket for what was begun.

        Raises:
            NoRoomError: nothing was.
        """

    def ended(self, timeout_s: float) -> Sequence[Ended]:
        """Those that have ended, once there are any or the time is up. Each is told until it is forgotten."""

    def forget(self, ticket: str) -> None:
        """Its reply is in safety, or of no use."""

    def avoid(self, ticket: str) -> bool:
        """Begin nothing more on the machine of a job that has ended; whether that leaves others."""

    def end(self, tickets: Sequence[str]) -> None:
        """Those that go on; returns when they have ended or will not. A reply that is there stays for `left_over`."""


class RemoteExecutor:
    """A place for runs that is not this machine. Whatever is lost there, nothing is lost here."""

    is_here = False

    def __init__(self, machines: Machines, runs_root: Path, *, share: bool) -> None:
        self._machines = machines
        self._runs_root = runs_root
        self._share = share
        self._held = contextlib.ExitStack()
        self._lost: deque[RunSpec] = deque()
        """To be begun again before others are drawn."""
        self._losses: Counter[str] = Counter()
        self._lacks: list[str] = []
        self._code_hash = provenance.code_hash()

    @property
    def room(self) -> str:
        return self._machines.room

    def __enter__(self) -> RemoteExecutor:
        with contextlib.ExitStack() as held:
            held.enter_context(_alone(self._runs_root))
            remove_halves(self._runs_root)
            held.enter_context(self._machines)
            for reply in self._machines.left_over():
                self._keep(reply)
            self._held = held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def perform(self, waiting: Waiting) -> Iterator[tuple[RunSpec, str | None]]:
        under_way: dict[str, RunSpec] = {}
        had_room_s = time.monotonic()
        try:
            while True:
                self._begin(waiting, under_way)
                if not under_way and not waiting and not self._lost:
                    return
                if under_way or self._machines.free():
                    had_room_s = time.monotonic()
                elif time.monotonic() - had_room_s > NO_ROOM_S:
                    raise MachineError(f"executor={self._machines.name}: no machine for {NO_ROOM_S:.0f} s; call again")
                waiting.look()
                for ended in self._machines.ended(_POLL_S):
                    spec = under_way.pop(ended.ticket)
                    done, why_not = self._received(spec, ended, waiting)
                    self._machines.forget(ended.ticket)
                    if done:
                        yield spec, why_not
        finally:
            self._machines.end(list(under_way))

    def _keep(self, reply: Mapping[str, Any]) -> None:
        """Of a reply to nobody its run alone counts; what is lost by that is made again.

        Raises:
            MachineError: it cannot be written here.
        """
        if reply["archive"] is None:
            return
        try:
            run = self._unpacked(reply["archive"])
        except RunError as error:
            say(f"a run that came back for an earlier sweep is not kept: {error}")
        else:
            say(f"{run.run_id}: came back for an earlier sweep")

    def _unpacked(self, archive: Mapping[str, Any]) -> RunDir:
        """
        Raises:
            RunError: it is not as it was sent.
            MachineError: it cannot be written here: no fault of the reply, and to make the run again would not help.
        """
        try:
            return unpack(archive, self._runs_root)
        except OSError as error:
            kept_in = self._machines.kept_in
            then = "it is made again then" if kept_in is None else f"its reply is kept in {kept_in}"
            raise MachineError(
                f"{archive['run_id']}: came back and cannot be written to {self._runs_root}: {error}; mend that and"
                f" call again: {then}"
            ) from error

    def _begin(self, waiting: Waiting, under_way: dict[str, RunSpec]) -> None:
        while (self._lost or waiting) and self._machines.free():
            waiting.look()
            spec = self._lost.popleft() if self._lost else waiting.draw()
            if spec is None:
                return
            request = {"spec": _plain(spec), "code_hash": self._code_hash, "share": self._share}
            try:
                under_way[self._machines.begin(request)] = spec
            except NoRoomError:
                self._lost.appendleft(spec)
                return

    def _received(self, spec: RunSpec, ended: Ended, waiting: Waiting) -> tuple[bool, str | None]:
        """Whether it is done with, and if so why there is no record.

        Raises:
            MachineError: no machine is left that lacks nothing, or what came cannot be written here.
        """
        if ended.broken is not None:
            return True, ended.broken
        if ended.reply is None:
            return self._again(spec, str(ended.lost), waiting)
        reply, host = ended.reply, str(ended.reply["host"])
        if reply["lacks"]:
            return self._left_alone(spec, ended.ticket, [f"{host}: {line}" for line in reply["lacks"]], waiting)
        if reply["ended"] is not None:
            return self._again(spec, f"ended on {host}: {reply['ended']}", waiting)
        if reply["archive"] is None:
            return True, f"on {host}: {'; '.join(reply['faults'])}"
        try:
            run = self._unpacked(reply["archive"])
            found = read_object(run.spec)["hash"]
        except (RunError, OSError, ValueError, KeyError) as error:
            return self._again(spec, f"on the way from {host}: {error}", waiting)
        return True, None if found == spec.hash else f"on {host}: made {found}, which is another spec than {spec.hash}"

    def _again(self, spec: RunSpec, why: str, waiting: Waiting) -> tuple[bool, str | None]:
        self._losses[spec.hash] += 1
        if self._losses[spec.hash] >= MAX_LOSSES:
            del self._losses[spec.hash]
            return True, f"lost {MAX_LOSSES} times, the last time: {why}"
        waiting.tell(spec, f"lost, to be made again: {why}")
        self._lost.append(spec)
        return False, None

    def _left_alone(self, spec: RunSpec, ticket: str, lines: list[str], waiting: Waiting) -> tuple[bool, str | None]:
        self._lacks += lines
        if not self._machines.avoid(ticket):
            raise MachineError(*dict.fromkeys(self._lacks))
        waiting.tell(spec, f"to be made on another machine, this one is left alone: {'; '.join(lines)}")
        self._lost.append(spec)
        return False, None


def _plain(spec: RunSpec) -> dict[str, Any]:
    """As it would be in a file: what carries it need not know our classes."""
    plain: dict[str, Any] = json.loads(json.dumps(spec.to_json(), allow_nan=False))
    return plain


@contextlib.contextmanager
def _alone(runs_root: Path) -> Iterator[None]:
    """One sweep with machines elsewhere to a folder of runs: another would begin what is under way already.

    Raises:
        MachineError: there is one.
    """
    folder = runs_root / FOLDER
    with made_for_caller(runs_root, folder):
        folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise MachineError(
                f"another sweep has its runs made elsewhere for {runs_root}: wait for it, or give another --runs"
            ) from error
        yield
