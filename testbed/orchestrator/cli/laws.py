"""`longhaul laws`: a compressor, also a user's own, before the law book, the clock, and a run beside known ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml  # type: ignore[import-untyped]

from testbed.core.errors import EXIT_COMPLETED, EXIT_FAILED, InputError, RunError
from testbed.core.spec.run_spec import Part, RunSpec
from testbed.orchestrator.cli.laws_table import laws_table
from testbed.orchestrator.config.config import resolve
from testbed.orchestrator.config.user_files.yaml_reader import is_path
from testbed.orchestrator.machine.clone import CONF_DIR, KEEPS_BLOCKS, environment
from testbed.orchestrator.terminal.status_line import Following
from testbed.orchestrator.terminal.terminal import say, show, tell

RUN = ("topo=wan100m", "workload=digits", "steps=80")
BESIDE = ("none", "bf16", "topk")
TIME_LIMIT_S = 1200.0
"""Of the laws, and of the clock."""
What = Literal["law", "throughput"]
_TAIL_LINES = 4


def laws(
    target: str,
    parameters: Sequence[str],
    runs_root: Path,
    *,
    with_run: bool = True,
    with_throughput: bool = True,
    share: bool = False,
    as_json: bool = False,
) -> int:
    """Print the table and return the exit status: 4 where a law is broken.

    Args:
        target: package.module.Class, a name of the catalogue, or the path of a YAML file.

    Raises:
        InputError, MachineError: before anything was looked at, with every fault at once.
        RunError: the compressor ended the process that looked at it, or a run failed.
    """
    is_name = "." not in target or is_path(target)
    asked = [f"compressor={target}" if is_name else f"compressor._target_={target}"]
    asked += [f"compressor.{parameter}" for parameter in parameters]
    part = resolve([*RUN, *asked]).spec.compressor
    arms: dict[str, RunSpec] = {}
    if with_run:
        from testbed.orchestrator.run.run_command import checked_spec

        arms = {
            name: checked_spec(resolve([*RUN, *words]), runs_root, share=share)
            for name, words in _overrides(part, asked).items()
        }
    found: dict[str, list[dict[str, Any]]] = {"begun": [], "law": [], "throughput": []}
    runs: dict[str, dict[str, Any]] = {}
    is_judged = False

    def take(row: dict[str, Any]) -> None:
        found[row.pop("event")].append(row)

    try:
        _followed(part, "law", take)
        is_judged = not _failure(found["law"])
        if with_throughput and is_judged:
            _followed(part, "throughput", take)
        if is_judged:
            runs |= _runs(arms, runs_root, share=share)
    finally:  # what was found is told, also where the rest cannot be
        if as_json and found["law"]:
            tell(json.dumps({"laws": found["law"], "throughput": found["throughput"], "runs": runs}, indent=2))
        elif found["law"]:
            show(laws_table(part.name, found["law"], found["throughput"], runs, is_judged=is_judged))
    for line in _failure(found["law"]):
        say(line)
    broken = any(row["outcome"] == "broken" for row in found["law"])
    failed = any(summary["status"] != "completed" for summary in runs.values())
    return EXIT_FAILED if broken or failed else EXIT_COMPLETED


def _followed(part: Part, what: What, take: Callable[[dict[str, Any]], None]) -> None:
    """Have `part` judged or timed as `ask` has, and show how far that is."""
    with Following("laws" if what == "law" else "speeds", None, sys.stderr) as following:
        done = 0

        def count(row: dict[str, Any]) -> None:
            nonlocal done
            if row["event"] == "begun":
                following.at(0, row.get("count"))
                following.tell(part.name)
            else:
                done += 1
                following.at(done, now=part.name)
            take(row)

        ask(part, what, count)


def _failure(laws: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what is said of a compressor that raised an exception, after which no further law was looked at."""
    row = next((row for row in laws if row.get("traceback")), None)
    if row is None:
        return []
    return [f"the law {row['law']} met an exception, and no further one was looked at:", *row["traceback"]]


def _overrides(part: Part, asked: list[str]) -> dict[str, list[str]]:
    """What each run is asked for, by name; a class that is called as one of the known ones goes by its path."""
    known = {name: [f"compressor={name}"] for name in BESIDE if _target(name) != part.target}
    return {**known, part.target if part.name in known else part.name: asked}


def _target(name: str) -> str:
    """Of a member of the catalogue."""
    return str(yaml.safe_load((CONF_DIR / "compressor" / f"{name}.yaml").read_text())["_target_"])


def ask(part: Part, what: What, take: Callable[[dict[str, Any]], None]) -> None:
    """Have the worker's side judge `part`, or time it with an allocator that keeps large blocks; rows are taken as they
    come.

    Raises:
        InputError: with every fault of the class and its parameters.
        RunError: it ended before the end, or took too long; says after which law.
    """
    told = {"name": part.name, "target": part.target, "params": part.params, "folders": part.folders}
    question = {**told, "what": what, "parent": os.getpid()}
    command = [sys.executable, "-m", "testbed.worker", "laws"]
    environ = {**environment(), "OMP_NUM_THREADS": "2", **(KEEPS_BLOCKS if what == "throughput" else {})}
    pipe = subprocess.PIPE
    said: list[str] = []
    last, faults = "the beginning", None
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environ, start_new_session=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        listener = threading.Thread(target=_listen, args=(process, said), daemon=True)
        listener.start()
        is_late = threading.Event()
        limit = threading.Timer(TIME_LIMIT_S, _end_late, [process, is_late])
        limit.start()
        try:
            process.stdin.write(json.dumps(question))
            process.stdin.close()
            for line in process.stdout:
                row = _row(line)
                if row is not None and "event" in row:
                    last = str(row.get("law", row.get("numel", last)))
                    take(row)
                elif row is not None:
                    faults = row["faults"]
            process.wait()
        finally:
            limit.cancel()
            _kill_all_of(process)
            listener.join()
    if faults is None and is_late.is_set():
        raise RunError(f"laws: {part.name} took longer than {TIME_LIMIT_S:g} s and was ended; it had come past {last}")
    if faults is None:
        tail = "".join(f"\n    {line}" for line in said[-_TAIL_LINES:]) or " it said nothing"
        raise RunError(f"laws: {part.name} ended the process with status {process.returncode} after {last}:{tail}")
    if faults:
        raise InputError(*faults)


def _end_late(process: subprocess.Popen[str], is_late: threading.Event) -> None:
    is_late.set()
    _kill_all_of(process)


def _kill_all_of(process: subprocess.Popen[str]) -> None:
    """It and the ranks it started, which are of its session; those of one that ended have ended with it."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def _listen(process: subprocess.Popen[str], said: list[str]) -> None:
    assert process.stderr is not None
    said += [line.rstrip() for line in process.stderr if line.strip()]


def _row(line: str) -> dict[str, Any] | None:
    """None for what a plug-in prints."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return (
        row
        if isinstance(row, dict) and (row.get("event") in ("begun", "law", "throughput") or "faults" in row)
        else None
    )


def _runs(arms: Mapping[str, RunSpec], runs_root: Path, *, share: bool) -> dict[str, dict[str, Any]]:
    """Summaries by compressor."""
    if not arms:
        return {}
    from testbed.orchestrator.machine.signals import Stop
    from testbed.orchestrator.run.seal import seal_killed_or_say
    from testbed.orchestrator.run.supervisor import supervise

    seal_killed_or_say(runs_root)
    summaries = {}
    with Stop() as stop, Following("runs", len(arms), sys.stderr) as following:
        for number, (name, spec) in enumerate(arms.items()):
            stop.heed()
            following.at(number)
            following.tell(f"{RUN[-1].partition('=')[2]} steps with {name}")
            summaries[name] = supervise(spec, runs_root=runs_root, quiet=True, share=share).summary
    return summaries
