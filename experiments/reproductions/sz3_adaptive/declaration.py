"""SZ3 with an adaptive error bound (FedCSpc: Zhang et al., IEEE TPDS 2025): the bytes between a parameter server in one
region and its clients in two, both ways, at the same accuracy; `glyphs` and `bytelm` really trained."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.common.papers.declaration import System, Trial
from testbed.core.record.run_directory import RunDir

WORKERS, LOCAL_STEPS, SEEDS = 5, 5, 3
"""A server and four clients."""
STEPS = {"glyphs": 400, "bytelm": 300}
TOPOLOGIES = ("wan100m", "wan1g")
CLAIMED_PARAMETERS, CLAIMED_GRADIENTS = 7.39, 288
BOUNDS = {"parameters": (0.1, 0.03, 0.01, 0.003, 0.001), "differences": (0.3, 0.1, 0.03, 0.01, 0.003)}
"""Shares of the range of values, as compressors call relative: what the adaptive bound is held against."""
_PARAMS = ("strategy.uplink.payload=params", "strategy.downlink.payload=params")
_GRAD = ("strategy.uplink.payload=grad",)
_FIXED = "testbed.worker.methods.parameter_server.bounds.baselines.Fixed"
_ADAPTIVE = "testbed.worker.methods.parameter_server.bounds.adaptive.AdaptiveBound"
_SZ3, _RAW = ("compressor=sz3",), ("compressor=none",)
_PLAIN = ("strategy.uplink.codec=int8_zstd", "strategy.downlink.codec=int8_zstd")
ADAPTIVE = (f"strategy.bound={{_target_: {_ADAPTIVE}}}",)
LOOSER = (f"strategy.bound={{_target_: {_ADAPTIVE}, alpha: 0.7, alpha_max: 2}}",)
"""Parameters bear more noise than differences: what is rounded is not near 0, and small changes are not left out."""


def fixed(alpha: float) -> tuple[str, ...]:
    """The same share of each tensor's range in all rounds."""
    return (f"strategy.bound={{_target_: {_FIXED}, alpha: {alpha:g}, basis: range}}",)


ARMS: dict[str, tuple[str, ...]] = {
    "parameters, adaptive": (*_SZ3, *_PARAMS, *LOOSER),
    "raw": (*_RAW, *ADAPTIVE),
    "differences, adaptive": (*_SZ3, *ADAPTIVE),
    "gradients, adaptive": (*_SZ3, *_GRAD, *ADAPTIVE),
    "gradients, raw": (*_RAW, *_GRAD, *ADAPTIVE),
    "parameters, int8 and zstd": (*_PLAIN, *_PARAMS, *fixed(0.003)),
    "parameters, fp16": ("compressor=fp16", *_PARAMS, *ADAPTIVE),
    **{f"parameters, {bound:g}": (*_SZ3, *_PARAMS, *fixed(bound)) for bound in BOUNDS["parameters"]},
    **{f"differences, {bound:g}": (*_SZ3, *fixed(bound)) for bound in BOUNDS["differences"]},
}
_QUICK = ("parameters, adaptive", "raw", "parameters, 0.01", "differences, adaptive")
_SECONDS = {"wan100m": 150, "wan1g": 150}


def moved_mb(run: RunDir) -> float | None:
    """Payload of all rounds, both ways, for one client; the last model, alike in all arms, is in no step."""
    summary = run.read_json(run.summary)
    payload = summary["bytes"]["payload"]
    return None if payload is None else float(payload) / (summary["workers"] - 1) / 1e6


def quality_percent(run: RunDir) -> float | None:
    """Accuracy; of a model of bytes the share of their bits that it saves, since its metric is bits per byte."""
    metric = run.read_json(run.summary)["metric"]
    if metric["value"] is None:
        return None
    value = float(metric["value"])
    return 100 * (1 - value / 8) if metric["name"] == "bits_per_byte" else 100 * value


def trials(full: bool) -> list[Trial]:
    if not full:
        return [_trial("glyphs", "wan100m", arm, 0) for arm in _QUICK]
    return [
        _trial(workload, topology, arm, seed)
        for seed in range(SEEDS)
        for workload in STEPS
        for topology in TOPOLOGIES
        for arm in ARMS
    ]


def overrides(workload: str, topology: str, arm: str, seed: int) -> tuple[str, ...]:
    """Of a run."""
    steps = STEPS[workload]
    return (
        *(f"topo={topology}", f"workers={WORKERS}", "strategy=parameter_server", f"workload={workload}"),
        *(f"strategy.local_steps={LOCAL_STEPS}", f"steps={steps}", f"evaluate_every={steps // 10}", f"seed={seed}"),
        *ARMS[arm],
    )


def _trial(workload: str, topology: str, arm: str, seed: int) -> Trial:
    asked = overrides(workload, topology, arm, seed)
    return Trial(f"{workload}, {topology}", arm, "emulated", asked, _SECONDS[topology])


def facts(case: str, kind: str) -> Mapping[str, str]:
    del kind
    steps = STEPS[case.partition(",")[0]]
    return {"clients": str(WORKERS - 1), "rounds": str(steps // LOCAL_STEPS)}


SYSTEM = System(
    name="sz3-adaptive",
    claim=(
        "with bounds that adapt to the training, SZ3 shortens parameters 7.39 times and gradients 288 times at the"
        " accuracy of federated averaging, and saves time from 32 clients on, of a model of 4 Gb at about 1 Gbit/s"
    ),
    claimed=CLAIMED_PARAMETERS,
    source="Zhang et al., FedCSpc, IEEE TPDS 2025, doi 10.1109/TPDS.2025.3564736 (abstract), and its talk",
    baseline="the same rounds with raw parameters",
    setting=(
        "a server and four clients in two regions, rounds of five local steps; payload of one client, both ways; an arm"
        " counts if its accuracy on 10,000 test images is at most half a point below that of raw parameters"
    ),
    candidates=("parameters, adaptive",),
    baselines=("raw",),
    beside=tuple(arm for arm in ARMS if arm not in ("parameters, adaptive", "raw")),
    trials=trials,
    figure=moved_mb,
    figure_name="MB",
    quality=quality_percent,
    quality_name="accuracy (bytelm: bits saved), %",
    reference="raw",
    facts=facts,
)
