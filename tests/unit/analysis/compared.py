"""Run directories to compare: one synthetic run, copied under other names, seeds and results."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from testbed.analysis.record.record import load
from testbed.analysis.report.derived_files import finish
from testbed.core.record.run_directory import RunDir, write_json
from testbed.core.record.summary import empty_summary
from tests.unit.analysis.synthetic import make_run


def template(root: Path, *, steps: int = 60) -> RunDir:
    """With samples, to be copied."""
    run = make_run(root, run_id="20250101T000000Z-template", steps=steps)
    counts, faults = finish(load(run.path))
    assert counts["samples"] and not faults
    return run


def variant(source: RunDir, root: Path, number: int, *, events: bool = True, **changes: Any) -> RunDir:
    """A run like `source`.

    Args:
        changes: `compressor`, `density`, `strategy`, `seed`, `topo`, `code_hash`, `steps`, `rtt_s`, `jitter_s`; others
            go into the summary.
    """
    names = {"topo": "wan", "strategy": "ddp", "compressor": "topk"}
    topo, strategy, compressor = (str(changes.pop(key, default)) for key, default in names.items())
    seed, density, code = changes.pop("seed", 0), changes.pop("density", 0.01), changes.pop("code_hash", "feed")
    steps, rtt_s, jitter_s = (changes.pop(key, None) for key in ("steps", "rtt_s", "jitter_s"))
    run = RunDir(root / f"20250102T{number:06d}Z-{topo}-{strategy}-{number:08x}")
    run.path.mkdir(parents=True)
    for file in (source.network, source.samples, *([source.events] if events else [])):
        shutil.copy(file, run.path)
    spec = json.loads(source.spec.read_text())
    spec["seed"] = seed
    spec["topology"]["name"] = topo
    spec["strategy"]["name"] = strategy
    spec["compressor"] |= {"name": compressor, "params": {"density": density}}
    spec["steps"] = spec["steps"] if steps is None else steps
    for link in (link for link in spec["topology"]["links"] if link["wan"]):
        for way in ("forward", "backward"):
            link[way]["delay_s"] = link[way]["delay_s"] if rtt_s is None else rtt_s / 2
            link[way]["jitter_s"] = jitter_s or 0.0
    write_json(run.spec, spec)
    write_json(run.provenance, json.loads(source.provenance.read_text()) | {"code_hash": code})
    words = {"topo": topo, "strategy": strategy, "compressor": compressor, "workload": "digits", "workers": 4}
    ended = {"run_id": run.run_id, "status": "completed", "verdict": "valid", "kind": "emulated", "seed": seed}
    metric = {"name": "accuracy", "value": 0.9, "best": 0.9, "target": 0.9, "time_to_target_s": 60.0}
    write_json(run.summary, empty_summary() | words | ended | {"metric": metric} | changes)
    return run
