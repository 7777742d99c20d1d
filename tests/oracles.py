"""What was recorded of this project's behaviour before its files moved, and how the same is had again.

The data lie in `tests/data/oracles`, made by `record.py` there.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch

from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.config.config import resolve

ROOT = Path(__file__).resolve().parents[1]
ORACLES = ROOT / "tests" / "data" / "oracles"
EXIT_INVALID = 5
BUSY = "another run is going on this machine"
NOTES = (
    *("round", "region_round", "last_model", "federated_round", "secure_round", "fedbuff_version", "mixing"),
    *("consensus", "pipeline", "kv_text", "kv_quality", "freeze", "cache", "transform", "plan", "damping"),
)
"""Kinds of event by which strategies and transforms say what they did."""

BY_THE_CLOCK = ("payload_bytes_of_steps",)
"""What depends on when a message leaves: whether it counts for one step or the next. Totals do not."""
EVERYWHERE = ("samples", "model")
"""What no processor has part in."""
ROUNDED = {"losses": 1e-3, "evaluations": 0.01, "payload_bytes": 1e-3}
"""What another processor changes a little, and by how much at most, relative and absolute. With AVX2 in place of
AVX-512 losses changed by less than 1e-6 and sizes by 4e-5. Checksums and notes it may change altogether."""
UNSTEADY = {"federated": 100.0}
"""Strategies that make such differences grow, and how many times as far: SCAFFOLD's losses changed by 1.7 % in three
rounds without vector instructions."""
SIZED_BY_VALUES = ("sz3", "int8_zstd")
"""Compressors whose payloads are longer or shorter by what is in them."""
MOST_TOLD = 5


def read(name: str) -> Any:
    """One of the recorded files, as JSON."""
    return json.loads((ORACLES / name).read_text())


def emulated(words: Sequence[str], runs: Path, limit_s: float = 600.0, failures: int = 0) -> Path:
    """The directory of a run of these words, made in `runs` once no other run has the machine.

    Args:
        failures: So many times it may fail, as links do that a busy machine cannot carry.

    Raises:
        AssertionError: It did not complete.
    """
    command = [sys.executable, "-m", "testbed", "run", "--json", "--runs", str(runs), *words]
    give_up_s = time.monotonic() + limit_s
    while True:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit_s, check=False)
        if BUSY in done.stderr and time.monotonic() < give_up_s:
            time.sleep(1.0)
        elif done.returncode not in (0, EXIT_INVALID) and failures > 0:
            failures -= 1
        else:
            break
    assert done.returncode in (0, EXIT_INVALID), done.stderr[-3000:]
    run: Path = runs / json.loads(done.stdout)["run_id"]
    return run


def told(run: Path) -> dict[str, Any]:
    """What a run's record says of numbers that no clock has part in."""
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    summary = json.loads((run / "summary.json").read_text())
    found = of_events(events)
    found["payload_bytes"] |= {"run": summary["bytes"]["payload"], "dense": summary["bytes"]["dense"]}
    return found


def of_events(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the events of all ranks say of numbers that no clock has part in, by rank and in the order of steps."""
    steps = sorted((e for e in events if e["event"] == "step"), key=lambda event: int(event["step"]))
    done = {str(e["rank"]): e for e in sorted(events, key=_rank) if e["event"] == "done"}
    by_rank = {rank: [event for event in steps if str(event["rank"]) == rank] for rank in done}
    sent = {rank: [event["payload_bytes"] for event in some] for rank, some in by_rank.items()}
    finish = {rank: event["finish_payload_bytes"] for rank, event in done.items()}
    return {
        "losses": {rank: [event["loss"] for event in some] for rank, some in by_rank.items()},
        "samples": {rank: [event["samples"] for event in some] for rank, some in by_rank.items()},
        "payload_bytes": {"ranks": {rank: sum(sent[rank]) + finish[rank] for rank in done}},
        "payload_bytes_of_steps": {rank: [*sent[rank], finish[rank]] for rank in done},
        "evaluations": sorted([e["step"], e["name"], e["value"]] for e in events if e["event"] == "evaluation"),
        "parameters_crc32": {rank: event["parameters_crc32"] for rank, event in done.items()},
        "model": [_untimed(event) for event in events if event["event"] == "model"],
        "notes": [_untimed(event) for event in sorted(events, key=_rank) if event["event"] in NOTES],
    }


def _rank(event: dict[str, Any]) -> int:
    return int(event.get("rank", -1))


def _untimed(event: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in event.items() if not key.endswith("_s")}


def resolved(words: Sequence[str]) -> RunSpec:
    """The spec of these words, in which this clone lies at `/clone`.

    A path in a spec is part of its hash, and clones lie anywhere.
    """
    spec = resolve(words).spec
    params = {
        key: value.replace(str(ROOT), "/clone") if isinstance(value, str) else value
        for key, value in spec.workload.params.items()
    }
    return dataclasses.replace(spec, workload=dataclasses.replace(spec.workload, params=params))


def processor() -> dict[str, str]:
    """On which the last digits of a loss depend."""
    model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "model": model[1] if model else "",
        "capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
    }


def differences(
    recorded: dict[str, Any], found: dict[str, Any], same: dict[str, bool], *, exact: bool, strategy: str, codec: str
) -> list[str]:
    """What differs, in words; the first few places of it.

    Args:
        same: Of each key, whether two recordings on one machine agreed to the last digit. Where they did not, only how
            many numbers there are is compared.
        exact: Whether this is the processor of the recording. On another one sums are taken in another order.
        strategy: Its name.
        codec: Name of the compressor, by which sizes may depend on values.
    """
    faults: list[str] = []
    for key, value in recorded.items():
        if not same[key] or key in BY_THE_CLOCK:
            faults += _unlike(_shape(value), _shape(found[key]), key, 0.0)
        elif exact or key in EVERYWHERE or (key == "payload_bytes" and codec not in SIZED_BY_VALUES):
            faults += _unlike(value, found[key], key, 0.0)
        elif key in ROUNDED:
            growth = UNSTEADY.get(strategy, 1.0) if key != "payload_bytes" else 1.0
            faults += _unlike(value, found[key], key, ROUNDED[key] * growth)
    return [*faults[:MOST_TOLD], *([f"and {len(faults) - MOST_TOLD} more"] if len(faults) > MOST_TOLD else [])]


def _unlike(recorded: Any, found: Any, where: str, tolerance: float) -> Iterator[str]:
    if isinstance(recorded, dict) and isinstance(found, dict) and recorded.keys() == found.keys():
        for key, value in recorded.items():
            yield from _unlike(value, found[key], f"{where}.{key}", tolerance)
    elif isinstance(recorded, list) and isinstance(found, list) and len(recorded) == len(found):
        for number, (value, other) in enumerate(zip(recorded, found, strict=True)):
            yield from _unlike(value, other, f"{where}.{number}", tolerance)
    elif isinstance(recorded, int | float) and isinstance(found, int | float):
        if not math.isclose(recorded, found, rel_tol=tolerance, abs_tol=tolerance):
            yield f"{where} was {recorded!r} and is {found!r}"
    elif recorded != found:
        yield f"{where} was {recorded!r} and is {found!r}"


def _shape(value: Any) -> Any:
    """How many numbers there are, and where. Of notes, which may be more or fewer, the kinds."""
    if isinstance(value, dict):
        return {key: _shape(inner) for key, inner in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return sorted({inner["event"] for inner in value})
    return len(value) if isinstance(value, list) else 0
