"""What the reproductions of distributed K-FAC share: the models of the SPD-KFAC paper, on one GPU of its authors.

Of an iteration of D-KFAC on 64 GPUs the authors' plotting script has parts (Shi et al., ICDCS 2021; the repository
shyhuai/kfac_pytorch, scripts/time_breakdown.py). For ResNet-50 all that is needed is measured; of the others computing
is what is left of the parts when communication is taken out in proportion to ResNet-50's, which is arithmetic of ours.

Tensors and links are S times smaller than those they stand for (`workload.scale`). Runs of a case go at one dilation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from experiments.reproductions.system import Trial

INVERSE_GROWTH = 4.77e-4
"""Of the seconds of an inverse by its dimension, on the authors' GPU: a exp(b d)."""
WORKERS = {"emulated": 8, "simulated": 64}
SCALE = 100
_STEPS, _REPEATS = 4, 3
_SIMULATED_DILATION = 20
"""At which plans reckon with messages of 50 us, not with the millisecond that one takes this machine."""
_START_S, _PREDICTION_S = 14.0, 12.0
"""Of a run around its steps; of a prediction."""


@dataclass(frozen=True)
class Model:
    """Seconds of one GPU's part of an iteration."""

    name: str
    batch_size: int
    step_s: float
    """Forward and backward."""
    factor_s: float
    """Computing all factors."""
    inverse_s: float
    """Inverting all of them on one GPU."""
    published: bool
    """Whether these were measured, and not left over from sums."""
    dilation: float

    @property
    def compute_s(self) -> float:
        return self.step_s + self.factor_s + self.inverse_s


MODELS = {
    "ResNet-50": Model("resnet50", 32, 0.132, 0.209, 0.292, True, 7.0),
    "ResNet-152": Model("resnet152", 8, 0.123, 0.191, 0.676, False, 7.0),
    "DenseNet-201": Model("densenet201", 16, 0.296, 0.369, 0.482, False, 7.0),
    "Inception-v4": Model("inception_v4", 16, 0.158, 0.216, 0.431, False, 7.0),
}
ARMS = {
    "D-KFAC": ("strategy=dkfac",),
    "MPD-KFAC": ("strategy=mpd_kfac",),
    "SPD-KFAC": ("strategy=spd_kfac",),
    "PAD-KFAC": ("strategy=pad_kfac",),
    "PAD-KFAC, gradients": ("strategy=pad_kfac", "strategy.results=gradients"),
}


def trials(arms: Sequence[str], rate_bit_s: float, quick: Sequence[str]) -> Callable[[bool], list[Trial]]:
    """
    Args:
        rate_bit_s: of each worker's link.
        quick: the cases that are emulated without FULL.
    """

    def asked(full: bool) -> list[Trial]:
        emulated = [
            _trial(case, arm, "emulated", seed, rate_bit_s)
            for seed in range(_REPEATS if full else 1)
            for case in (MODELS if full else quick)
            for arm in arms
        ]
        return emulated + [_trial(case, arm, "simulated", 0, rate_bit_s) for case in MODELS for arm in arms]

    return asked


def _trial(case: str, arm: str, kind: str, seed: int, rate_bit_s: float) -> Trial:
    model, workers = MODELS[case], WORKERS[kind]
    shared = [
        *("topo=lan", f"topo.lan_rate='{rate_bit_s / 1e9:g} Gbit/s'", f"workers={workers}", f"steps={_STEPS}"),
        *("workload=replay", f"workload.model={model.name}", f"batch_size={model.batch_size}", "evaluate_every=1000"),
        *("device=paced", f"device.step_s={model.step_s}", f"seed={seed}"),
        f"device.work_s={{factor: {model.factor_s}, inverse: {model.inverse_s}}}",
        f"device.growth={{inverse: {INVERSE_GROWTH}}}",
    ]
    if kind == "simulated":
        return Trial(case, arm, kind, (*shared, f"dilation={_SIMULATED_DILATION}", *ARMS[arm]), _PREDICTION_S)
    slowed = (f"workload.scale={SCALE}", f"dilation={model.dilation:g}")
    return Trial(
        case, arm, kind, (*shared, *slowed, *ARMS[arm]), _START_S + _STEPS * model.dilation * 1.5 * model.compute_s
    )


def facts(case: str, kind: str) -> Mapping[str, str]:
    model = MODELS[case]
    mark = "" if model.published else " (left over)"
    return {
        "workers": str(WORKERS[kind]),
        "forward and backward, s": f"{model.step_s:.3f}{mark}",
        "factors, s": f"{model.factor_s:.3f}{mark}",
        "all inverses, s": f"{model.inverse_s:.3f}",
    }
