"""Machines without any cluster, what comes back from them, and a disk that is full."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.core.record.run_directory import RunDir
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.executors.remote_executor import Ended
from testbed.orchestrator.executors.run_archive import pack
from tests.unit.orchestrator.made_runs import make_run

Answer = Callable[[int, Mapping[str, Any]], Mapping[str, Any]]


def reply_of(scratch: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    run = make_run(scratch, RunSpec.from_json(request["spec"]), code_hash=request["code_hash"])
    return {"host": "far", "archive": pack(run), "faults": [], "lacks": [], "ended": None}


class Machines:
    """Two machines without any cluster; `answer` says what comes of the n-th job: fields of `Ended`."""

    name, room = "made-up", "2 at once"

    def __init__(self, answer: Answer, kept_in: Path | None = None) -> None:
        self.kept_in = kept_in
        self.answer = answer
        self.waiting: dict[str, Mapping[str, Any]] = {}
        self.begun = 0
        self.others = 1
        self.ended_early: list[str] = []

    def __enter__(self) -> Machines:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def left_over(self) -> Iterator[Mapping[str, Any]]:
        return iter(())

    def free(self) -> int:
        return 2 - len(self.waiting)

    def begin(self, request: Mapping[str, Any]) -> str:
        self.begun += 1
        self.waiting[str(self.begun)] = request
        return str(self.begun)

    def ended(self, timeout_s: float) -> Sequence[Ended]:
        ticket, request = next(iter(self.waiting.items()))
        return [Ended(ticket, **self.answer(int(ticket), request))]

    def forget(self, ticket: str) -> None:
        del self.waiting[ticket]

    def avoid(self, ticket: str) -> bool:
        self.others -= 1
        return self.others >= 0

    def end(self, tickets: Sequence[str]) -> None:
        self.ended_early += tickets


def full_disk(archive: Mapping[str, Any], runs_root: Path) -> RunDir:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(runs_root / "a file"))
