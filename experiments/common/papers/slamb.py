"""What SLAMB's reproduction and the benchmark of large batches share: their arms, and runs of BERT-large."""

from __future__ import annotations

from experiments.common.papers.dear import MODELS

_FP16 = ("compressor=fp16",)


def _slamb(sync_every: int) -> tuple[str, ...]:
    return "strategy=slamb", f"strategy.sync_every={sync_every}"


ARMS = {
    "SLAMB": _slamb(10),
    "SLAMB, fp16": (*_slamb(10), *_FP16),
    "SLAMB, averaged every 50": _slamb(50),
    "SLAMB, averaged every 100": _slamb(100),
    "SLAMB, fp16, averaged every 50": (*_slamb(50), *_FP16),
    "SLAMB, fp16, averaged every 100": (*_slamb(100), *_FP16),
    "LAMB": ("strategy=lamb",),
    "LAMB, fp16": ("strategy=lamb", *_FP16),
}
"""Arms by name. The authors average parameters every 50 or 100 steps.

Momenta, or gradients of LAMB, travel as float16 with fp16; parameters are averaged as float32.
"""
BERT = MODELS["BERT-large"]
SAMPLES, SIMULATED_RATE_BIT_S = 64, 10e9
"""Of one worker: 65,536 of 1,024 workers, the largest batch of LAMB's paper."""


def bert_overrides(workers: int, arm: str, steps: int) -> tuple[str, ...]:
    """Of a run of BERT-large, emulated or simulated."""
    return (
        *("topo=lan", f"topo.lan_rate='{SIMULATED_RATE_BIT_S / 1e9:g} Gbit/s'", f"workers={workers}"),
        *("workload=replay", f"workload.model={BERT.name}", f"workload.tokens={BERT.tokens}", f"steps={steps}"),
        *(f"batch_size={SAMPLES}", "device=paced", f"device.step_s={worker_s():.4g}"),
        "device.codec_speedup=100",  # copying into buckets is no work of this machine's processor there
        *ARMS[arm],
        *(("strategy.bucket_size='25 MiB'",) if arm == "LAMB" else ()),
    )


def worker_s() -> float:
    """Forward and backward of one worker's samples, at the rate of one GPU."""
    assert BERT.samples_s is not None
    return SAMPLES / BERT.samples_s
