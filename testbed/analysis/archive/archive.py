"""All finished runs in the data directory of one Prometheus, each with its first step at the same moment.

    OUTPUT/data/        the server's: blocks, and what a server keeps beside them
    OUTPUT/state.json   which runs are in it and what their files were; written last, so that it never promises too much
    OUTPUT/data.lock    held while a server of ours serves it
    OUTPUT/lock         held while the archive is brought up to date
    OUTPUT/.part-*      what an update that was killed left behind; the next removes it

New runs become new blocks, which a server that is running takes up within a minute. Blocks are never changed: if a run
has gone or is another than it was, all is made anew beside the old and put in its place.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from testbed.analysis.archive.blocks import blocks, create_blocks, stored_samples
from testbed.analysis.archive.runs import FinishedRun, finished_runs
from testbed.analysis.archive.text import append_samples, form
from testbed.core.errors import RunError
from testbed.core.files import printable
from testbed.core.record.run_directory import write_json
from testbed.core.server_lock import is_served

DATA, STATE, LOCK = "data", "state.json", "lock"
_OUR_OWN = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""Faults of the archive's disk; others are those of a run's files."""

State = dict[str, Any]
"""`form`: as of `archive_text.form`; `runs`: by run id `files`, their fingerprints, and `samples`, their number."""


@dataclass(frozen=True)
class Outcome:
    data: Path
    runs: int
    added: int
    samples: int
    blocks: int
    rebuilt: str | None
    """Why all was made anew; None if it was not."""
    remarks: list[str]
    """A line for each thing that is left out."""

    @property
    def text(self) -> str:
        """One line."""
        how = f"rebuilt: {self.rebuilt}" if self.rebuilt else f"{self.added} new"
        return f"{self.runs} runs ({how}), {self.samples} samples in {self.blocks} block(s) of {self.data}"

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "data": str(self.data), "text": self.text}


def update(runs_root: Path, output: Path, *, rebuild: bool = False) -> Outcome:
    """Bring the archive in `output` up to the runs in `runs_root`. What cannot be read is named and left out.

    Args:
        rebuild: make all of it anew.

    Raises:
        MachineError: promtool is not installed.
        RunError: it cannot be written; what was there stays, or is made anew by the next call.
    """
    try:
        output.mkdir(parents=True, exist_ok=True)
        with (output / LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return _update(runs_root, output, rebuild)
    except OSError as error:
        raise RunError(f"the archive in {output} cannot be written: {error}") from error


def _update(runs_root: Path, output: Path, rebuild: bool) -> Outcome:
    _remove_parts(output)
    data = output / DATA
    found, remarks = finished_runs(runs_root)
    state = _read_state(output / STATE)
    why = "asked for" if rebuild else _why_anew(state, data, found)
    kept: dict[str, Any] = {} if why else state["runs"]
    if why and is_served(data):
        raise RunError(f"the archive in {output} must be rebuilt ({why}), and is being served: end its server first")
    part = output / f".part-{os.getpid()}"
    part.mkdir()
    try:
        added = _make_blocks([run for run in found if run.run_id not in kept], part, remarks)
    except Exception:
        shutil.rmtree(part, ignore_errors=True)  # it may be what fills the disk
        raise
    runs = {**kept, **added}
    if why or added:
        _install(part / DATA, output, {"form": form(), "runs": runs}, anew=why is not None)
    shutil.rmtree(part)
    samples = sum(run["samples"] for run in runs.values())
    # The first of all is no rebuilding.
    rebuilt = why if why and state["runs"] else None
    return Outcome(data, len(runs), len(added), samples, len(blocks(data)), rebuilt, remarks)


def _remove_parts(output: Path) -> None:
    for path in output.glob(".*"):
        if path.is_dir() and path.name.startswith(".part-"):
            shutil.rmtree(path)
        elif path.name.startswith(f".{STATE}."):
            path.unlink()


def _read_state(path: Path) -> State:
    with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        state = json.loads(path.read_bytes())
        if all({"files", "samples"} == set(run) for run in state["runs"].values()) and "form" in state:
            return cast(State, state)
    return {"form": None, "runs": {}}


def _why_anew(state: State, data: Path, found: Sequence[FinishedRun]) -> str | None:
    if state["form"] != form():
        return "it is of another version"
    there = {run.run_id: run.files for run in found}
    for run_id, run in state["runs"].items():
        if run_id not in there:
            return f"{run_id} has gone"
        if there[run_id] != run["files"]:
            return f"{run_id} has changed"
    try:
        # By number, since a server merges blocks as it likes.
        stored = stored_samples(data)
    except (OSError, ValueError, KeyError, TypeError):
        stored = -1
    if not data.is_dir() or stored != sum(run["samples"] for run in state["runs"].values()):
        return "its blocks are not those that were written"
    return None


def _make_blocks(runs: Sequence[FinishedRun], part: Path, remarks: list[str]) -> dict[str, Any]:
    """Blocks of all `runs` in one call, since each costs promtool a start; returns what the state says of them."""
    added: dict[str, Any] = {}
    text = part / "metrics.openmetrics"
    with text.open("w+b") as file:
        for one in runs:
            try:
                count, faults = append_samples(one.run, file, part / "scratch")
            except Exception as error:  # whatever is in a directory, the others are archived
                if isinstance(error, OSError) and error.errno in _OUR_OWN:
                    raise
                remarks.append(printable(f"{one.run_id}: left out: {type(error).__name__}: {error}"))
                continue
            remarks += [printable(f"{one.run_id}: {fault}") for fault in faults]
            added[one.run_id] = {"files": one.files, "samples": count}
        file.write(b"# EOF\n")
    if added:
        create_blocks(text, part / DATA, sum(run["samples"] for run in added.values()))
    else:
        (part / DATA).mkdir()
    return added


def _install(made: Path, output: Path, state: State, *, anew: bool) -> None:
    """Between any two steps the state is missing or does not fit the blocks, so that the next call makes all anew."""
    data = output / DATA
    if anew:
        (output / STATE).unlink(missing_ok=True)
        if data.exists():
            data.rename(made.with_name("old"))
        made.rename(data)
    else:
        for block in blocks(made):
            block.rename(data / block.name)
    write_json(output / STATE, state)
