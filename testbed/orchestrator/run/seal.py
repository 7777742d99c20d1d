"""The end of a record: derived files by the analysis side, then the summary, last and by rename."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.core.errors import EXIT_COMPLETED, EXIT_FAILED, EXIT_INVALID, LonghaulError, RunError
from testbed.core.files import read_object
from testbed.core.processes import end_with
from testbed.core.record.directory import Directory
from testbed.core.record.run_directory import RUN_ID, RunDir, write_json
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.machine import clone
from testbed.orchestrator.machine.cleanup import remove_leftovers
from testbed.orchestrator.machine.ownership import give_to_caller
from testbed.orchestrator.observation.summary import summarise
from testbed.orchestrator.observation.verdict.judge import Judge
from testbed.orchestrator.terminal.terminal import say

_ANALYSIS_TIMEOUT_S = 120.0
_MAX_FILE_BYTES = 4_000_000_000
"""Of one derived file."""


def seal(run: RunDir, status: str, faults: Sequence[str] = (), *, wall_s: float | None) -> dict[str, Any]:
    """Write what a run's record still lacks; `summary.json` last. Returns the summary.

    `faults` are what the run said of its end; without, those of its record are taken.
    """
    summary = _summary(run, status, faults, wall_s)
    summary["reasons"] = [*summary["reasons"], *analyse(run, summary)]
    write_json(run.summary, summary)
    return summary


def _summary(run: RunDir, status: str, faults: Sequence[str], wall_s: float | None) -> dict[str, Any]:
    spec = RunSpec.from_json(read_object(run.spec))
    judge, recorded = Judge(spec), []
    for event in run.read_events():
        judge.add(event)
        if event["event"] == "fault":
            recorded.append(event["message"])
    if status == "completed":
        judge.close(spec.dilation)
    verdict, reasons = judge.verdict()
    if status != "completed":
        verdict, reasons = "invalid", [*(faults or recorded or [f"the run was {status}"]), *reasons]
    unknowns = judge.unknowns()
    told = {"status": status, "verdict": verdict, "kind": judge.kind}
    return summarise(run, **told, reasons=reasons, unknowns=unknowns, wall_s=wall_s)


def analyse(run: RunDir, summary: Mapping[str, Any]) -> list[str]:
    """Derived files. What cannot be made (a full disk) is said in the summary and can be made again later.

    The report needs the summary's content, which is written last.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", "testbed.analysis", "finish", str(run.path), "--summary", "-"],
            input=json.dumps(summary, allow_nan=False),
            capture_output=True,
            text=True,
            timeout=_ANALYSIS_TIMEOUT_S,
            env=clone.environment(),
            cwd=clone.CLONE,
            start_new_session=True,  # a Ctrl-C that ended the run must not end its record too
            preexec_fn=functools.partial(_bounded, os.getpid()),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        with contextlib.suppress(OSError), Directory(run.path) as folder:
            folder.remove_parts()
        return [f"report and samples could not be made: {error}"]
    if done.returncode != 0:
        return [f"report and samples are not complete: {(done.stderr.strip().splitlines() or ['no word why'])[-1]}"]
    return []


def _bounded(parent: int) -> None:
    """End with the parent, and write no file that is larger than any run's: a record may claim what it likes."""
    end_with(parent)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    most = _MAX_FILE_BYTES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILE_BYTES)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def seal_killed(runs_root: Path) -> list[str]:
    """Seal every run of this user's that ended without a summary and whose supervisor is gone. Returns their ids.

    Raises:
        RunError: records too damaged to be sealed, after all others are.
    """
    sealed, damaged = [], []
    for path in sorted(runs_root.glob("*")) if runs_root.is_dir() else []:
        run = RunDir(path)
        # a link leads to what is not ours to write in
        if not RUN_ID.fullmatch(run.run_id) or path.is_symlink() or not path.is_dir() or run.summary.exists():
            continue
        try:
            with run.held(wait=False) as had:
                if had and not run.summary.exists():
                    _seal_killed(run)
                    sealed.append(run.run_id)
        except (OSError, ValueError, KeyError, TypeError, LonghaulError) as error:
            damaged.append(
                f"{run.run_id}: its record cannot be sealed: {error}; `longhaul clean {run.run_id}` removes it"
            )
    if damaged:
        raise RunError(*damaged)
    return sealed


def _seal_killed(run: RunDir) -> None:
    remove_leftovers(run.run_id)
    with Directory(run.path) as folder:
        begun_s = folder.modified_s(run.spec.name)
        if begun_s is None:
            if any(not name.startswith(".") and name != run.logs.name for name in folder.names()):
                raise ValueError("it has no spec.json")  # damaged, or not ours: nothing to throw away unasked
            shutil.rmtree(run.path)  # killed before it wrote the first thing
            return
        folder.remove(".reserve")
        last_s = folder.modified_s(run.events.name)
    seal(run, "killed", wall_s=max(0.0, (time.time() if last_s is None else last_s) - begun_s))
    give_to_caller(run.path)


def exit_status(summary: Mapping[str, Any]) -> int:
    """Of the command that made the run, or ended it."""
    if summary["status"] != "completed":
        return EXIT_FAILED
    return EXIT_INVALID if summary["verdict"] == "invalid" else EXIT_COMPLETED


def seal_killed_or_say(runs_root: Path) -> None:
    """Give killed runs their summary. What cannot be sealed (no root, a damaged record) stays as it is and is named."""

    try:
        seal_killed(runs_root)
    except LonghaulError as error:
        for fault in error.faults:
            say(f"a killed run could not be sealed: {fault}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        say(f"a killed run could not be sealed: {type(error).__name__}: {error}")
