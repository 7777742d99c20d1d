"""Which runs an archive takes, and by what it notices that one of them has changed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from testbed.core.files import MAX_OBJECT_BYTES, is_regular, printable, read_object
from testbed.core.record.run_directory import RUN_ID, RunDir
from testbed.core.record.summary import form_fault, version_fault

Fingerprint = dict[str, list[int] | None]
"""By file name: size, and time of the last change in nanoseconds; None where there is no such file."""

_MAX_LINES_BYTES = 2_000_000_000
"""Of events or samples; a larger file is something else."""


@dataclass(frozen=True)
class FinishedRun:
    run: RunDir
    files: Fingerprint

    @property
    def run_id(self) -> str:
        return self.run.run_id


def finished_runs(runs_root: Path) -> tuple[list[FinishedRun], list[str]]:
    """Those with a summary, oldest first; then a line for each other entry of `runs_root`, and why it is left out."""
    found: list[FinishedRun] = []
    left_out: list[str] = []
    paths = sorted(runs_root.iterdir()) if runs_root.is_dir() else []
    for path in paths:
        if path.name.startswith("."):
            continue
        try:
            found.append(_finished(path))
        except (OSError, ValueError) as error:
            left_out.append(printable(f"{path.name}: left out: {error}"))
    return found, left_out


def _finished(path: Path) -> FinishedRun:
    """Raises:
    ValueError: it is no run of ours that has ended.
    """
    if not RUN_ID.fullmatch(path.name) or path.is_symlink() or not path.is_dir():
        raise ValueError("not a run of Longhaul")
    run = RunDir(path)
    limits = {
        **dict.fromkeys((run.spec, run.provenance, run.network, run.summary), MAX_OBJECT_BYTES),
        **dict.fromkeys((run.events, run.openmetrics), _MAX_LINES_BYTES),
    }
    files = {file.name: _fingerprint(file, most_bytes) for file, most_bytes in limits.items()}
    try:
        summary = read_object(run.summary)
    except FileNotFoundError:
        raise ValueError("no summary.json yet: it goes on, or was killed and `longhaul list` seals it") from None
    if fault := version_fault(summary) or form_fault(summary):
        raise ValueError(f"{run.summary.name}: {fault}")
    if summary.get("kind") == "simulated":
        raise ValueError("simulated: only runs that were made stand side by side here")
    return FinishedRun(run, files)


def _fingerprint(file: Path, most_bytes: int) -> list[int] | None:
    try:
        facts = file.lstat()
    except FileNotFoundError:
        return None
    if not is_regular(file) or facts.st_size > most_bytes:
        raise ValueError(f"{file.name} is no such file of ours ({facts.st_size} bytes)")
    return [facts.st_size, facts.st_mtime_ns]
