"""Make the timelines of an accelerator that the repository holds from measurements of training steps.

    .venv/bin/python scripts/device_timelines.py steps.json testbed/core/device/data/h200.json.xz \\
        testbed/core/device/data/h200-kfac.json

`steps.json` holds one record for each model, batch size and precision: events around the phases of steps without hooks
("forward_ms", ...), the same with hooks, and the moments of the hooks. Of several records of one key, the one that the
host slowed least is kept. The output is JSON, one timeline for each key, compressed by xz. "kfac" holds the operations
of K-FAC by dimension, which the second output gets.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
from pathlib import Path
from typing import Any

from testbed.core.device.factored_layer import CHOLESKY, EIGEN, FACTOR
from testbed.core.device.operations import Operations, operations_of
from testbed.core.device.timelines.timeline import Phases, Timeline, is_host_limited
from testbed.core.device.timelines.timeline_file import timeline_of
from testbed.core.models.catalogue import find_model

_MS = 1e-3
_DIGITS = 7
"""Of seconds: the records have tenths of microseconds."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("steps", type=Path, help="records of measured steps, JSON")
    parser.add_argument("output", type=Path, help="compressed timelines")
    parser.add_argument("operations", type=Path, help="operations of K-FAC, JSON")
    given = parser.parse_args()
    raw = given.steps.read_bytes()
    data, sha256 = json.loads(raw), hashlib.sha256(raw).hexdigest()
    found = timelines(data, sha256)
    text = json.dumps([one.to_json() for one in found], separators=(",", ":"))
    for one in json.loads(text):
        timeline_of(one, one["model"])  # as strictly as any other file
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    known = kfac_operations(data, sha256)
    given.operations.write_text(json.dumps(known.to_json(), indent=1) + "\n")
    operations_of(json.loads(given.operations.read_text()), given.operations.name)
    print(f"{len(found)} timelines, {given.output.stat().st_size:,} bytes; {given.operations.stat().st_size:,} bytes")


def timelines(data: dict[str, Any], sha256: str) -> list[Timeline]:
    """Return a timeline of each model, precision and batch size, sorted by these."""
    provenance = {"how": data["how"], "made_by": "scripts/device_timelines.py", "sha256": sha256}
    kept: dict[tuple[str, str, int], Timeline] = {}
    for record in data["models"]:
        one = _timeline(record, data, provenance)
        known = kept.get(one.key)
        if known is None or _waiting(one) < _waiting(known):
            kept[one.key] = one
    return [kept[key] for key in sorted(kept)]


def kfac_operations(data: dict[str, Any], sha256: str) -> Operations:
    """Return the seconds of K-FAC's operations by dimension."""
    records = sorted(data["kfac"], key=lambda record: record["dimension"])
    (rows,) = {record["factor_rows"] for record in records}
    keys = {FACTOR: "factor_ms", CHOLESKY: "inverse_cholesky_ms", EIGEN: "eigh_ms"}
    return Operations(
        device=data["device"],
        precision="fp32",
        software={"torch": data["torch"], "cuda": data["cuda"], "cudnn": str(data["cudnn"])},
        factor_rows=rows,
        seconds={
            name: tuple((record["dimension"], _seconds(record[key])) for record in records)
            for name, key in keys.items()
        },
        provenance={"how": data["how"], "made_by": "scripts/device_timelines.py", "sha256": sha256},
    )


def _waiting(timeline: Timeline) -> float:
    """Return how many times as long as a free-running step the step with hooks is."""
    return timeline.hooked_phases_s.step_s / timeline.free_running_step_s


def _timeline(record: dict[str, Any], data: dict[str, Any], provenance: dict[str, Any]) -> Timeline:
    free_s = _seconds(record["free_running_step_ms"])
    hooked = Phases(
        **dict(zip(("forward", "backward", "optimizer"), map(_seconds, record["with_hooks_ms"]), strict=True))
    )
    starts = tuple((name, kind, _seconds(at)) for name, kind, at in record["forward_start_ms"])
    gradients = tuple((name, tuple(shape), _seconds(at)) for name, shape, at in record["gradient_ready_ms"])
    owners = dict.fromkeys(name.rpartition(".")[0] for name, _, _ in gradients)
    called = {name for name, _, _ in starts}
    return Timeline(
        model=record["model"],
        sample=find_model(record["model"]).sample,
        batch_size=record["batch_size"],
        precision=record["precision"],
        device=data["device"],
        software={"torch": data["torch"], "cuda": data["cuda"], "cudnn": str(data["cudnn"])},
        optimizer=record["optimizer"],
        phases_s=Phases(**{key: _seconds(record[f"{key}_ms"]) for key in ("forward", "backward", "optimizer")}),
        hooked_phases_s=hooked,
        free_running_step_s=free_s,
        host_limited=is_host_limited(hooked, free_s),
        forward_start_s=starts,
        without_start=tuple(owner for owner in owners if owner not in called),
        gradient_ready_s=gradients,
        provenance=provenance,
    )


def _seconds(milliseconds: float) -> float:
    return round(milliseconds * _MS, _DIGITS)


if __name__ == "__main__":
    main()
