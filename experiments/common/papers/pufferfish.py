"""What Pufferfish's reproduction and the benchmark of low rank share: runs in which nothing is learnt."""

from __future__ import annotations

from testbed.core.models.catalogue import find_model

SCALED_RATE = "10 Gbit/s"
BATCH_SIZE = 64
SAMPLES_S = 253.1
"""Of ResNet-50 on one GPU: HKBU-HPML/ddl-benchmarks, 2020-05-29."""


def scaled_overrides(model: str, workers: int, steps: int) -> tuple[str, ...]:
    """Of a run in which nothing is learnt, emulated or simulated."""
    return (
        *("topo=lan", f"topo.lan_rate='{SCALED_RATE}'", f"workers={workers}", f"steps={steps}"),
        *("workload=replay", f"workload.model={model}", f"batch_size={BATCH_SIZE}"),
        *("evaluate_every=1000", "device=paced", f"device.step_s={step_s(model):.4f}"),
    )


def step_s(model: str) -> float:
    """Of one GPU, by FLOPs from ResNet-50's: an assumption, kind to factors."""
    return BATCH_SIZE / SAMPLES_S * find_model(model).forward_flop / find_model("resnet50").forward_flop
