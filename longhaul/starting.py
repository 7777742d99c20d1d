"""Runs and sweeps started from Python, by the command line of a clone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from longhaul.one_run import Run
from longhaul.run_frame import frame, numbers_or_texts
from testbed.core.errors import (
    EXIT_COMPLETED,
    EXIT_INPUT,
    EXIT_INVALID,
    EXIT_MACHINE,
    InputError,
    LonghaulError,
    MachineError,
    RunError,
)
from testbed.core.record.run_row import read_row

CLONE_VARIABLE = "LONGHAUL_CLONE"
"""Environment variable that names the clone whose command line starts runs."""
_PACKAGE = Path(__file__).resolve().parents[1]
_ERRORS: dict[int, type[LonghaulError]] = {EXIT_INPUT: InputError, EXIT_MACHINE: MachineError}
_LAST_LINES = 20


def run(
    *words: str, root: str | Path = "runs", rootless: bool = False, fix: bool = False, share: bool = False, **keys: Any
) -> Run:
    """Execute one run, wait for its end, and return it; an `invalid` one comes with a warning.

    It needs a clone of Longhaul (found by the environment variable LONGHAUL_CLONE if this package is not part of one)
    and root, or `rootless=True`. Progress goes to the standard error stream.

        longhaul.run(topo="wan1g", compressor="topk", seed=1)
        longhaul.run("compressor.density=0.01", topo="wan1g", compressor="topk")

    Args:
        words: Further keys as on the command line, such as "compressor.density=0.01".
        root: Folder that takes the run's directory.
        rootless: True to run in a user namespace, without root.
        fix: True to take the first of what would do, where the run is refused.
        share: True to run although another run uses the machine; give `metrics_port=0` then.
        keys: Keys of the run; see docs/commands.md.

    Raises:
        InputError: What was asked is not possible; one line per fault.
        MachineError: There is no clone, or the machine lacks something, such as root.
        RunError: The run failed.
    """
    flags = [f"--{name}" for name, given in (("rootless", rootless), ("fix", fix), ("share", share)) if given]
    arguments = [*words, *(f"{key}={_text(value)}" for key, value in keys.items())]
    status, answer, lines = _call("run", [*flags, *arguments], Path(root))
    if answer is None or status not in (EXIT_COMPLETED, EXIT_INVALID):
        told = lines if answer is None else [f"run {answer['run_id']}: {'; '.join(answer['reasons'])}"]
        raise _error("run", status, told)
    found = Run(answer["run_id"], root)
    if found.verdict == "invalid":
        warnings.warn(f"{found.run_id} is invalid: {'; '.join(found.reasons)}", stacklevel=2)
    return found


def sweep(*words: str, root: str | Path = "runs", fix: bool = False, share: bool = False, **keys: Any) -> pd.DataFrame:
    """Execute every run of a sweep that does not exist yet, and return all its runs.

    The DataFrame is that of `longhaul.runs` with a column for each axis, in the order of the sweep. Points that did
    not come to a run that counts are named in a warning. What it needs is what `longhaul.run` needs.

        longhaul.sweep(topo="wan100m", compressor=["none", "topk", "int8"], seed=range(3))

    Args:
        words: A sweep's name, or further axes as on the command line, such as "compressor.density=0.01,0.1".
        root: Folder that takes the runs' directories.
        fix: True to take the first of what would do for runs that are refused, for all runs alike.
        share: True to run although another run uses the machine.
        keys: Keys of the runs; a list, tuple or range gives an axis its values.

    Raises:
        InputError: What was asked is not possible; one line per fault.
        MachineError: There is no clone, or the machine lacks something, such as root.
        RunError: Nothing was executed.
    """
    flags = [f"--{name}" for name, given in (("fix", fix), ("share", share)) if given]
    arguments = [*words, *(f"{key}={_axis(value)}" for key, value in keys.items())]
    status, answer, lines = _call("sweep", [*flags, *arguments], Path(root))
    if answer is None or status in _ERRORS:
        raise _error("sweep", status, lines)
    missed = [f"{_spoken(point)}: {point['outcome']}" for point in answer["points"] if point["outcome"] in _MISSED]
    if missed:
        warnings.warn(f"sweep {answer['name']}: {len(missed)} runs do not count: {'; '.join(missed)}", stacklevel=2)
    return _swept(answer, Path(root))


_MISSED = ("invalid", "failed", "not made")


def _swept(answer: Mapping[str, Any], root: Path) -> pd.DataFrame:
    points: dict[str, Mapping[str, Any]] = {}
    for point in answer["points"]:
        if point["run_id"] is not None:
            points.setdefault(point["run_id"], point)
    paths = [root / run_id for run_id in points]
    found = frame([(read_row(path), path) for path in paths])
    axes = dict.fromkeys(key for point in answer["points"] for key in point["values"] if key not in found.columns)
    for axis in axes:
        found[axis] = numbers_or_texts([point["values"].get(axis) for point in points.values()])
    return found


def _spoken(point: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in point["values"].items())


def _axis(value: Any) -> str:
    return ",".join(map(_text, value)) if isinstance(value, list | tuple | range) else _text(value)


def _text(value: Any) -> str:
    """Return a value as on the command line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | tuple | range):
        return f"[{','.join(map(_text, value))}]"
    return str(value)


def _call(command: str, arguments: Sequence[str], root: Path) -> tuple[int, dict[str, Any] | None, list[str]]:
    """Call the clone's command line; return its exit status, what it answered, and its last lines of progress."""
    clone = _clone(command)
    call = [str(clone / ".venv/bin/python"), "-P", "-m", "testbed", command, "--json", "--runs", str(root.absolute())]
    path = os.pathsep.join(filter(None, [str(clone), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    with (
        tempfile.TemporaryFile("w+") as answered,  # a pipe that nobody reads meanwhile would fill up
        subprocess.Popen(
            [*call, *arguments], env=environment, stdout=answered, stderr=subprocess.PIPE, text=True, bufsize=1
        ) as process,
    ):
        try:
            lines = _passed_on(process)
            process.wait()
        except BaseException:  # in a notebook only Python hears of the interrupt
            process.send_signal(signal.SIGINT)
            process.wait()
            raise
        answered.seek(0)
        output = answered.read()
    try:
        answer = json.loads(output)
    except ValueError:
        answer = None
    return process.returncode, answer, lines


def _passed_on(process: subprocess.Popen[str]) -> list[str]:
    lines: list[str] = []
    for line in process.stderr or ():
        sys.stderr.write(line)
        lines = [*lines[1 - _LAST_LINES :], line.rstrip("\n")]
    return lines


def _error(command: str, status: int, lines: Sequence[str]) -> LonghaulError:
    said = [line.strip().removeprefix("longhaul: ") for line in lines if line.strip()] or [
        f"longhaul {command} ended with status {status}"
    ]
    return _ERRORS.get(status, RunError)(*said)


def _clone(command: str) -> Path:
    named = os.environ.get(CLONE_VARIABLE)
    clone = Path(named).expanduser().absolute() if named else _PACKAGE
    if not (clone / "experiments" / "conf").is_dir():
        where = f"{CLONE_VARIABLE}={named} is none" if named else "this package is not part of one"
        raise MachineError(
            f"longhaul.{command}: needs a clone of Longhaul, and root or rootless=True; {where}."
            f" Set {CLONE_VARIABLE} to the folder of a clone on a Linux machine, after `make setup` in it."
        )
    if not (clone / ".venv" / "bin" / "python").exists():
        raise MachineError(f"longhaul.{command}: {clone} is not set up; run `make setup` there")
    return clone
