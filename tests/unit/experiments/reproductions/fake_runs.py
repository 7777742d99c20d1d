"""A system of two arms on two models, and run directories of it as a run leaves them, with figures chosen by hand."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments.common.papers.claim import Claim
from experiments.common.papers.declaration import System, Trial, with_seed
from experiments.reproductions.__main__ import Places, carry_out
from experiments.reproductions.ledger import NEEDED
from experiments.reproductions.plan import plan_of
from experiments.reproductions.runner import Runner
from experiments.reproductions.runs import Kept, ask_all
from experiments.reproductions.sides import Found
from testbed.core.record.run_directory import RunDir, new_run_id, write_json
from testbed.core.record.summary import empty_summary, summary_faults
from testbed.orchestrator.machine import provenance

BASE = ("topo=lan", "workers=2", "steps=4", "workload=replay", "device=paced")
ARMS = {
    "new": ("strategy=dear",),
    "old": ("strategy=ddp",),
    "slow": ("strategy=ddp", "strategy.bucket_size='9 MiB'"),
}


def trial(
    case: str = "resnet18", arm: str = "new", kind: str = "emulated", *, seed: int = 0, seconds: float = 7.0
) -> Trial:
    return Trial(case, arm, kind, (*BASE, f"workload.model={case}", f"seed={seed}", *ARMS[arm]), seconds)


def system(
    trials: Sequence[Trial] = (),
    claimed: float = 1.5,
    *,
    higher_is_better: bool = False,
    reference: str | None = None,
    quality: Callable[[RunDir], float | None] | None = None,
) -> System:
    return System(
        name="made",
        claim=f"up to {claimed} times as fast",
        claimed=claimed,
        source="nowhere",
        baseline="old and slow",
        setting="made up",
        candidates=("new",),
        baselines=("old", "slow"),
        trials=lambda full: list(trials) if full else [one for one in trials if "seed=0" in one.overrides],
        higher_is_better=higher_is_better,
        reference=reference,
        quality=quality,
        terms=Claim(why_above="made up"),
    )


def found(
    arm: str,
    figure: float | None,
    verdict: str | None = "valid",
    *,
    quality: float | None = None,
    seed: int = 0,
    **where: str,
) -> Found:
    place = {"case": "resnet18", "kind": "emulated", **where}
    asked = trial(place["case"], arm, place["kind"], seed=seed)
    return Found(asked, None if verdict is None else f"run-{place['case']}-{arm}", verdict, figure, 1.0, quality)


def thrice(runs: Sequence[Found]) -> list[Found]:
    """The same outcomes with the seeds 0 to 2."""
    return [dataclasses.replace(one, trial=with_seed(one.trial, seed)) for seed in range(NEEDED) for one in runs]


def reproduce(
    asked: System, places: Places, *, makes_runs: bool = False, share: bool = False, repeat: int | None = None
) -> tuple[dict[str, Any], list[str]]:
    """As a call for one system: the content of its result, and what failed."""
    kept = Kept(places.runs)
    plan = plan_of(asked, kept, repeat=repeat)
    with contextlib.ExitStack() as stack:
        held = Runner.of(plan.lacking, places.runs, print, share=share)
        ended = carry_out(plan, places, kept, stack.enter_context(held) if makes_runs else None)
    return ended.content, ended.failures


def regions(*names: str) -> str:
    """A page with these regions, empty."""
    return "".join(f"<!-- {name}: begin -->\n<!-- {name}: end -->\n" for name in names)


def _steps(step_s: float) -> Iterator[dict[str, Any]]:
    for step, rank in itertools.product(range(1, 5), range(2)):
        took_s = 10 * step_s if step in (1, 4) else step_s
        yield {"event": "step", "t_s": float(step), "rank": rank, "step": step, "step_s": took_s}


def make_run(
    root: Path,
    asked: Trial,
    *,
    step_s: float = 1.0,
    verdict: str = "valid",
    status: str = "completed",
    code_hash: str | None = None,
    kernel: str = "6.1",
    now_s: float = 1.8e9,
    data_hash: str | None = None,
) -> RunDir:
    """Of this code unless another `code_hash` is given. The first and the last of its four steps are ten times as
    long."""
    (one,) = ask_all([asked])
    is_simulated = asked.kind == "simulated"
    spec = dataclasses.replace(one.spec, data_hash=data_hash, dilation=1.0 if is_simulated else 3.0)
    run = RunDir.create(root, new_run_id(spec.topo, spec.strategy.name, spec.compressor.name, spec.hash, now_s))
    code = provenance.code_hash(simulated=is_simulated) if code_hash is None else code_hash
    write_json(run.spec, {**spec.to_json(), "code_hash": code})
    write_json(run.provenance, {"cores": 2, "cpu": "a processor", "kernel": kernel})
    if not is_simulated:
        run.events.write_text("".join(f"{json.dumps(event)}\n" for event in _steps(step_s)))
    summary = empty_summary() | {"run_id": run.run_id, "status": status, "verdict": verdict, "kind": asked.kind}
    summary |= {
        "dilation": spec.dilation,
        "step_time_s": {**dict.fromkeys(("mean", "p50"), step_s), "p95": None, "exchange_p50": None},
    }
    assert not summary_faults(summary)
    write_json(run.summary, summary)
    return run
