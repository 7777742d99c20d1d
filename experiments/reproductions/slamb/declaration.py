"""SLAMB and LAMB with large batches: `fashion` really trained over a slow switch, BERT-large simulated.

Xu et al., ICML 2023. Batches are of 1,024; BERT-large is simulated on up to 1,024 workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from experiments.common.papers.declaration import System, Trial, metric_percent
from experiments.common.papers.slamb import ARMS, BERT, SAMPLES, SIMULATED_RATE_BIT_S, bert_overrides, worker_s
from testbed.core.device.by_flop import FORWARD_SHARE
from testbed.core.models.catalogue import find_model
from testbed.core.record.run_directory import RunDir

BATCH, WORKERS, STEPS, SEEDS = 1024, 4, 100, 3
"""The batch is that of all workers together, 16 times 64. Steps are a multiple of those between averages, so that what
is evaluated at the end is what all have."""
RATE, STEP_S, DILATION = "100 Mbit/s", 0.1, 6
"""A device that takes 0.1 s for a worker's 256 samples, in all arms: what a core of this machine takes for them differs
from one minute to another by more than the arms do. At a smaller dilation phases of batches this large are late: both
cores draw on one memory."""
CANDIDATES = tuple(arm for arm in ARMS if "averaged" in arm)
"""Arms that average parameters as rarely as the authors do."""
BASELINES = ("LAMB", "LAMB, fp16")
_SECONDS = dict.fromkeys(ARMS, 120) | {"LAMB": 175}
_QUICK = ("SLAMB, fp16, averaged every 50", *BASELINES)
CASE = "fashion"

SCALES = (4, 16, 64, 256, 1024)
_SIMULATED = ("SLAMB", "SLAMB, averaged every 50", "LAMB")
_QUICK_SCALES, _PREDICTION_S = (64, 1024), 25


def mean_step_s(run: RunDir) -> float | None:
    """Over all steps, since those with an average of the parameters take longer than others."""
    found = run.read_json(run.summary)["step_time_s"]["mean"]
    return None if found is None else float(found)


def trials(full: bool) -> list[Trial]:
    return [*_emulated(full), *_simulated(full)]


def _emulated(full: bool) -> Iterator[Trial]:
    shared = (
        *("topo=lan", f"topo.lan_rate='{RATE}'", f"workers={WORKERS}", f"workload={CASE}", f"steps={STEPS}"),
        *(f"batch_size={BATCH // WORKERS}", "device=paced", f"device.step_s={STEP_S}", f"dilation={DILATION}"),
        *("evaluate_every=50", "strategy.learning_rate=0.01"),
    )
    for seed in range(SEEDS if full else 1):
        for arm in ARMS if full else _QUICK:
            bucket = ("strategy.bucket_size='256 KiB'",) if arm.startswith("LAMB") else ()
            yield Trial(CASE, arm, "emulated", (*shared, f"seed={seed}", *ARMS[arm], *bucket), _SECONDS[arm])


def _simulated(full: bool) -> Iterator[Trial]:
    for workers in SCALES if full else _QUICK_SCALES:
        for arm in _SIMULATED:
            yield Trial(_case(workers), arm, "simulated", bert_overrides(workers, arm, steps=1), _PREDICTION_S)


def _case(workers: int) -> str:
    return f"BERT-large, {workers} workers"


def overlapped_s(workers: int) -> float:
    """A step of LAMB at best: its ring, which overlaps all of backward."""
    ring_s = 8 * 2 * (workers - 1) / workers * 4 * find_model(BERT.name).parameters / SIMULATED_RATE_BIT_S
    backward_s = (1 - FORWARD_SHARE) * worker_s()
    return worker_s() - backward_s + max(backward_s, ring_s)


def facts(case: str, kind: str) -> Mapping[str, str]:
    if kind == "emulated":
        return {"workers": str(WORKERS), "batch": str(BATCH), "steps": str(STEPS)}
    workers = next(workers for workers in SCALES if _case(workers) == case)
    return {
        "workers": str(workers),
        "batch": str(SAMPLES * workers),
        "computing, s": f"{worker_s():.3f}",
        "LAMB at best, s": f"{overlapped_s(workers):.3f}",
    }


SYSTEM = System(
    name="slamb",
    claim=(
        "Swin-T is pre-trained on 128 GPUs in 5.35 h, 2 h sooner than with the best other, with half of the data sent;"
        " BERT-XL on 1,024 GPUs at a scaling efficiency of 90 %"
    ),
    claimed=1.37,
    source="Xu et al., ICML 2023 (abstract)",
    baseline="the faster of LAMB, gradients overlapped with backward in buckets, and LAMB with gradients in float16",
    setting=(
        f"four workers on one switch at {RATE}, `{CASE}` really trained with batches of {BATCH:,} for {STEPS} steps, a"
        f" device of {STEP_S:g} s a step;"
        " an arm counts if its accuracy on 10,000 test images is at most half a point below LAMB's"
    ),
    candidates=CANDIDATES,
    baselines=BASELINES,
    beside=tuple(arm for arm in ARMS if arm not in (*CANDIDATES, *BASELINES)),
    trials=trials,
    figure=mean_step_s,
    figure_name="mean step, s",
    quality=metric_percent,
    reference="LAMB",
    facts=facts,
)
