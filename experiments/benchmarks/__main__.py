"""`make bench`: measures what docs/benchmarks.md says, and writes it. Needs root; `--help` says the rest."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from experiments.benchmarks import document
from experiments.common import harness
from experiments.common.benchmark import AGAINST, RESULTS, Benchmark, Point, find_benchmarks
from experiments.common.harness import Results
from testbed.core.errors import LonghaulError
from testbed.orchestrator.machine.clone import CLONE
from testbed.orchestrator.machine.lock import machine_lock
from testbed.orchestrator.machine.ownership import give_to_caller

QUICK_RESULTS = CLONE / "build" / "benchmarks"


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _arguments(names: Sequence[str], argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.benchmarks", description="Measure the emulator and write docs/benchmarks.md."
    )
    parser.add_argument("--quick", action="store_true", help="a few points of each, about an hour for all")
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"one of {', '.join(names)}")
    parser.add_argument("--where", action="append", default=[], metavar="KEY=VALUE", help="only points asked so")
    parser.add_argument("--again", action="store_true", help="measure points that are there already, too")
    parser.add_argument("--share", action="store_true", help="run even if the machine is in use; timing may suffer")
    against = "a second clone, set up, that first_try_cost compares this one with"
    parser.add_argument("--against", type=Path, metavar="CLONE", help=against)
    parser.add_argument("--for", dest="seconds", type=float, metavar="SECONDS", help="begin no point that ends later")
    parser.add_argument("--results", type=Path, help="folder of the JSON files")
    parser.add_argument("--tables", action="store_true", help="measure nothing: print and write what is there")
    return parser.parse_args(argv)


def _is_so(point: Point, condition: str) -> bool:
    key, _, value = condition.partition("=")
    return json.dumps(point.asked.get(key)) == json.dumps(_read(value))


def _read(value: str) -> object:
    """A number as it stands in a point (JSON takes 1e8 for one too), or a word."""
    try:
        return json.loads(value)
    except ValueError:
        return value


def main(argv: Sequence[str] | None = None) -> int:
    benchmarks = find_benchmarks()
    asked = _arguments(list(benchmarks), argv)
    if os.geteuid() != 0 and not asked.tables:
        _say("benchmarks build networks, which root alone may do: use sudo")
        return 2
    chosen = [benchmarks[name] for name in asked.only or benchmarks]
    folder = asked.results or (QUICK_RESULTS if asked.quick else RESULTS)
    try:
        failures = [] if asked.tables else _measure_all(chosen, folder, asked)
    except LonghaulError as error:
        _say("\n".join(error.faults))
        return 1
    results = {name: Results(folder, name) for name in benchmarks}
    found = {name: list(one.found()) for name, one in results.items()}
    for benchmark in chosen:
        if found[benchmark.name] or benchmark.has_table_without_points:
            _say("\n" + document.table_of(benchmark, found))
    if not asked.quick and not asked.results:
        subprocess.run([sys.executable, str(CLONE / "scripts" / "compressors_doc.py")], check=True, cwd=CLONE)
        for missing in document.write(benchmarks, results):
            _say(f"missing: {missing}")
    for failure in failures:
        _say(f"failed: {failure}")
    return 1 if failures else 0


def _measure_all(benchmarks: Sequence[Benchmark], folder: Path, asked: argparse.Namespace) -> list[str]:
    """Hold the machine for all points but those that lock it themselves; return what could not be measured."""
    if asked.against:
        os.environ[AGAINST] = str(asked.against.resolve())
    commands = [one for one in benchmarks if one.runs_commands]
    others = [one for one in benchmarks if not one.runs_commands]
    failures: list[str] = []
    if others:
        with machine_lock(share=asked.share):
            failures += _measure(others, folder, asked)
    if commands:
        failures += _measure(commands, folder, asked)
    return failures


def _measure(benchmarks: Sequence[Benchmark], folder: Path, asked: argparse.Namespace) -> list[str]:
    """Returns what could not be measured."""
    waiting: list[tuple[Benchmark, Results, str, Point]] = []
    for benchmark in benchmarks:
        results = Results(folder, benchmark.name)
        points = benchmark.points(quick=asked.quick)
        if not asked.quick:
            results.keep_only(points)
        for point in points:
            code = harness.code_hash(benchmark, point.asked)
            is_meant = all(_is_so(point, condition) for condition in asked.where)
            if is_meant and (asked.again or not results.has(point, code)):
                waiting.append((benchmark, results, code, point))
    # first what is not there at all, and once before thrice
    waiting.sort(key=lambda one: (one[1].is_disturbed(one[3], one[2]), one[3].asked.get("repeat", 0)))
    for benchmark in dict.fromkeys(benchmark for benchmark, *_ in waiting):
        getattr(benchmark.measure, "prepare", lambda: None)()
    total_s = harness.total_s(point for *_, point in waiting)
    _say(f"points to measure: {len(waiting)}, about {total_s:.0f} s")
    started_s = time.monotonic()
    failures: list[str] = []
    for number, (benchmark, results, code, point) in enumerate(waiting, 1):
        if asked.seconds and time.monotonic() - started_s + point.seconds > asked.seconds:
            continue
        try:
            measured = harness.measure(benchmark, point)
        except LonghaulError as error:
            failures += error.faults
            _say(f"{number}/{len(waiting)} {benchmark.name} {point.key}: failed")
            continue
        is_kept = results.keep(point, code, measured)
        give_to_caller(folder)
        mark = f", DISTURBED by {measured['others_cores']:.2f} cores" if measured["is_disturbed"] else ""
        mark += "" if is_kept else ", so that the earlier one stays"
        _say(f"{number}/{len(waiting)} {benchmark.name} {point.key}: {measured['wall_s']:.0f} s{mark}")
    return failures


if __name__ == "__main__":
    sys.exit(main())
