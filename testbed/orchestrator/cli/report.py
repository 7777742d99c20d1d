"""`longhaul report`, `compare`, `plot`, `tensorboard`: choose runs, and start the analysis on them as a process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from testbed.core.errors import EXIT_COMPLETED, InputError
from testbed.core.record.run_row import Row, is_readable, read_rows, status_word
from testbed.orchestrator.machine.clone import environment
from testbed.orchestrator.machine.ownership import give_to_caller, outermost_new
from testbed.orchestrator.run.seal import seal_killed_or_say
from testbed.orchestrator.run_store.filter import parse
from testbed.orchestrator.terminal.terminal import say

_KNOWN_SHOWN = 5


def report(words: Sequence[str], runs_root: Path, output: Path, *, draw_all: bool = False) -> int:
    """Write one page over the runs and return the analysis's exit status.

    Raises:
        InputError: no such run, filters that cannot be read or that no run meets.
    """
    made = outermost_new(output)
    status = _analyse("report", ["--output", str(output)], words, runs_root, take_all=draw_all)
    if status == EXIT_COMPLETED:
        give_to_caller(made)  # by the analysis, which may have made its folders too
    return status


def compare(
    words: Sequence[str], runs_root: Path, form: str, output: Path | None = None, *, take_all: bool = False
) -> int:
    """Print one table over the runs, or write it to `output`; return and raise as `report`."""
    flags = ["--format", form, *(["--output", str(output)] if output else [])]
    made = outermost_new(output) if output else None
    status = _analyse("compare", flags, words, runs_root, take_all=take_all)
    if made is not None and status == EXIT_COMPLETED:
        give_to_caller(made)
    return status


def plot(kind: str, words: Sequence[str], runs_root: Path, output: Path, flags: Sequence[str]) -> int:
    """Draw one figure over the runs into `output`. Returns and raises as `report`."""
    made = outermost_new(output)
    status = _analyse("plot", ["--kind", kind, "--output", str(output), *flags], words, runs_root)
    if status == EXIT_COMPLETED:
        give_to_caller(made)
    return status


def tensorboard(words: Sequence[str], runs_root: Path, output: Path, flags: Sequence[str]) -> int:
    """Write event files of the runs below `output`. Returns and raises as `report`."""
    made = outermost_new(output)
    status = _analyse("tensorboard", ["--output", str(output), *flags], words, runs_root)
    if status == EXIT_COMPLETED:
        give_to_caller(made)
    return status


def _analyse(
    command: str, flags: Sequence[str], words: Sequence[str], runs_root: Path, *, take_all: bool = False
) -> int:
    run_ids = chosen(command, words, runs_root)
    call = [sys.executable, "-m", "testbed.analysis", command, *flags, *(["--all"] if take_all else [])]
    paths = [str(runs_root / run_id) for run_id in run_ids]
    return subprocess.run([*call, "--", *paths], env=environment(), check=False).returncode


def chosen(command: str, words: Sequence[str], runs_root: Path) -> list[str]:
    """The ids of the runs that `words` name: ids, and filters such as `topo=wan1g`; all runs where there are none.

    Killed ones are sealed first. What a filter meets and cannot be read is left out and said; an id goes to the
    analysis, which says why it cannot.

    Raises:
        InputError: with every fault at once.
    """
    ids = list(dict.fromkeys(word for word in words if "=" not in word))
    filters = [word for word in words if "=" in word]
    seal_killed_or_say(runs_root)
    rows = read_rows(runs_root)
    known = [str(row["run_id"]) for row in rows if status_word(row) != "foreign"]
    faults = [_unknown_run(command, run_id, known) for run_id in ids if run_id not in known]
    found: list[str] = []
    try:
        if filters or not ids:
            found = _filtered(command, filters, rows, runs_root)
    except InputError as error:
        faults += error.faults
    if faults:
        raise InputError(*faults)
    return list(dict.fromkeys([*ids, *found]))


def _filtered(command: str, filters: Sequence[str], rows: Sequence[Row], runs_root: Path) -> list[str]:
    wanted = parse(command, filters, rows)
    readable = [row for row in rows if is_readable(row)]
    if len(readable) < len(rows):
        count = len(rows) - len(readable)
        say(f"{count} of {len(rows)} entries of {runs_root} cannot be read; `longhaul list` names them")
    found = [str(row["run_id"]) for row in readable if wanted.takes(row)]
    if not found:
        raise InputError(f"{command} {' '.join(filters)}".rstrip() + f": no such runs in {runs_root}")
    return found


def _unknown_run(command: str, run_id: str, known: Sequence[str]) -> str:
    from testbed.orchestrator.config.grammar.overrides import unknown  # loads Hydra, which only a fault needs

    return unknown(f"{command} {run_id}", run_id, known[-_KNOWN_SHOWN:], "run")
