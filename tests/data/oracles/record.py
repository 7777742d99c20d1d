"""Records the oracles in this folder anew: `python -m tests.data.oracles.record WHAT [NAME...]`, as root.

WHAT is `strategies` (some minutes), `loopback` or `specs`; NAME, of strategies, those alone.

What is recorded replaces what was: only do that where behaviour is meant to change.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.distributed.oracle_ranks import train_all
from tests.oracles import ORACLES, emulated, of_events, processor, read, resolved, told

GRADES = ("valid", "suspect", "invalid")
"""The best first."""


def write(name: str, data: Any) -> None:
    """Write one of the files."""
    path = ORACLES / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1) + "\n")


def record_strategies(names: list[str]) -> None:
    """Two runs of each; the one with the better verdict is kept, and of the other one what differs."""
    words = read("strategies/words.json")
    path = ORACLES / "strategies" / "deterministic.json"
    alike = json.loads(path.read_text()) if path.exists() else {}
    for name in names or sorted(words):
        with tempfile.TemporaryDirectory() as folder:
            runs = [_run(words[name], Path(folder) / each) for each in ("first", "second")]
            first, second = sorted(runs, key=_grade)
            kept = ORACLES / "strategies" / name
            kept.mkdir(exist_ok=True)
            for file in ("spec.json", "summary.json"):
                shutil.copy(first / file, kept / file)
            one, other = told(first), told(second)
            write(f"strategies/{name}/losses.json", one)
            differing = {key: value for key, value in other.items() if value != one[key]}
            (kept / "again.json").unlink(missing_ok=True)
            if differing:
                write(f"strategies/{name}/again.json", differing)
            alike[name] = {key: key not in differing for key in one}
        write("strategies/deterministic.json", dict(sorted(alike.items())))


def _run(words: list[str], runs: Path) -> Path:
    begun_s = time.monotonic()
    run = emulated(words, runs, failures=2)
    summary = json.loads((run / "summary.json").read_text())
    print(run.name, summary["verdict"], summary["reasons"], f"{time.monotonic() - begun_s:.1f} s", flush=True)
    return run


def _grade(run: Path) -> int:
    return GRADES.index(json.loads((run / "summary.json").read_text())["verdict"])


def record_specs() -> None:
    """The specs that words come to; only what is resolved from words."""
    for name, words in read("specs/words.json").items():
        write(f"specs/{name}.json", resolved(words).to_json())


def record_loopback(names: list[str]) -> None:
    """Strategies as real ranks on loopback, twice; `same` says what came out alike."""
    words = read("loopback/words.json")
    specs = {name: resolved(words[name]) for name in names or words}
    found = []
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            begun_s = time.monotonic()
            found.append({name: of_events(events) for name, events in train_all(specs, Path(folder)).items()})
            print(f"loopback {time.monotonic() - begun_s:.1f} s", flush=True)
    for name, first in found[0].items():
        second = found[1][name]
        differing = {key: value for key, value in second.items() if value != first[key]}
        print(name, sorted(differing), flush=True)
        same = {key: key not in differing for key in first}
        write(f"loopback/{name}.json", {"hash": specs[name].hash, "same": same, "found": first, "again": differing})


def _main() -> None:
    what, *names = sys.argv[1:]
    if what == "strategies":
        record_strategies(names)
    elif what == "specs":
        record_specs()
    elif what == "loopback":
        record_loopback(names)
    if what != "specs":
        write(f"{what}/processor.json", processor())


if __name__ == "__main__":
    _main()
