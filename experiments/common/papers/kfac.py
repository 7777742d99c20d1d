"""What the reproductions of distributed K-FAC share: the models of the SPD-KFAC paper, on one GPU of its authors.

Of an iteration of D-KFAC on 64 GPUs the authors' plotting script has parts (Shi et al., ICDCS 2021; the repository
shyhuai/kfac_pytorch, scripts/time_breakdown.py). For ResNet-50 all that is needed is measured; of the others computing
is what is left of the parts when communication is taken out in proportion to ResNet-50's, which is arithmetic of ours.

Tensors and links are S times smaller than those they stand for (`workload.scale`). Runs of a case go at one dilation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.common.papers.declaration import Trial

INVERSE_GROWTH = 4.77e-4
"""Of the seconds of an inverse by its dimension, on the authors' GPU: a exp(b d)."""
FACTOR_ELEMENTS = {"resnet50": 77.0e6, "resnet152": 194.9e6, "densenet201": 132.8e6, "inception_v4": 121.1e6}
"""Of all triangles; for how long a run takes."""
WORKERS = {"emulated": 8, "simulated": 64}
SCALE = 100
_REPEATS = 3
SIMULATED_DILATION = 20
"""At which plans reckon with messages of 50 us, not with the millisecond that one takes this machine."""
_START_S, PREDICTION_S = 14.0, 10.0
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

    @property
    def compute_s(self) -> float:
        return self.step_s + self.factor_s + self.inverse_s


MODELS = {
    "ResNet-50": Model("resnet50", 32, 0.132, 0.209, 0.292, True),
    "ResNet-152": Model("resnet152", 8, 0.123, 0.191, 0.676, False),
    "DenseNet-201": Model("densenet201", 16, 0.296, 0.369, 0.482, False),
    "Inception-v4": Model("inception_v4", 16, 0.158, 0.216, 0.431, False),
}
ARMS = {
    "D-KFAC": ("strategy=dkfac",),
    "MPD-KFAC": ("strategy=mpd_kfac",),
    "SPD-KFAC": ("strategy=spd_kfac",),
    "PAD-KFAC": ("strategy=pad_kfac",),
    "PAD-KFAC, gradients": ("strategy=pad_kfac", "strategy.results=gradients"),
}


@dataclass(frozen=True)
class Setting:
    """What all runs of a reproduction share."""

    arms: Sequence[str]
    rate_bit_s: float
    """Of each worker's link."""
    dilation: float
    """Of emulated runs: at which messages do not wait for a core."""
    steps: int
    """Of each run."""
    quick: Sequence[str]
    """Cases that are emulated without FULL."""
    simulated: Sequence[str]
    """Likewise."""

    def trials(self, full: bool) -> list[Trial]:
        emulated = [
            self._trial(case, arm, "emulated", seed)
            for seed in range(_REPEATS if full else 1)
            for case in (MODELS if full else self.quick)
            for arm in self.arms
        ]
        simulated = MODELS if full else self.simulated
        return emulated + [self._trial(case, arm, "simulated", 0) for case in simulated for arm in self.arms]

    def _trial(self, case: str, arm: str, kind: str, seed: int) -> Trial:
        model, workers = MODELS[case], WORKERS[kind]
        asked = (*overrides(model, arm, self.rate_bit_s, workers, self.steps), f"seed={seed}")
        if kind == "simulated":
            return Trial(case, arm, kind, (f"dilation={SIMULATED_DILATION}", *asked), PREDICTION_S)
        asked = (*slowed(self.dilation), *asked)
        return Trial(case, arm, kind, asked, emulated_s(model, self.rate_bit_s, self.steps, self.dilation))


def overrides(model: Model, arm: str, rate_bit_s: float, workers: int, steps: int) -> tuple[str, ...]:
    """Of a run, emulated or simulated."""
    return (
        *("topo=lan", f"topo.lan_rate='{rate_bit_s / 1e9:g} Gbit/s'", f"workers={workers}", f"steps={steps}"),
        *("workload=replay", f"workload.model={model.name}", f"batch_size={model.batch_size}", "evaluate_every=1000"),
        *("device=paced", f"device.step_s={model.step_s}", f"device.growth={{inverse: {INVERSE_GROWTH}}}"),
        f"device.work_s={{factor: {model.factor_s}, inverse: {model.inverse_s}}}",
        *ARMS[arm],
    )


def slowed(dilation: float) -> tuple[str, ...]:
    """What an emulated run has besides."""
    return f"workload.scale={SCALE}", f"dilation={dilation:g}"


def emulated_s(model: Model, rate_bit_s: float, steps: int, dilation: float) -> float:
    """Of wall time, about: what is computed, and D-KFAC's sums, of which half are not hidden."""
    sums_s = 8 * 2 * 4 * FACTOR_ELEMENTS[model.name] / rate_bit_s
    return _START_S + steps * dilation * (model.compute_s + sums_s / 2)


def facts(case: str, kind: str) -> Mapping[str, str]:
    model = MODELS[case]
    mark = "" if model.published else " (left over)"
    return {
        "workers": str(WORKERS[kind]),
        "forward and backward, s": f"{model.step_s:.3f}{mark}",
        "factors, s": f"{model.factor_s:.3f}{mark}",
        "all inverses, s": f"{model.inverse_s:.3f}",
    }
