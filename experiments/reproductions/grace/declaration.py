"""GRACE's benchmark (Xu et al., ICDCS 2021): compressors against dense gradients, eight workers, ResNet-50 at 1 Gbit/s,
where most of them won, and ResNet-20 at 10 Gbit/s, where none did.

ResNet-50's tensors and links are S times smaller than those they stand for (`workload.scale`); each codec takes what it
takes one core for the whole model. Runs of a case go at one dilation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from experiments.common.papers.declaration import System, Trial
from experiments.common.papers.grace import DENSE, METHODS, MODELS, Model, facts_of, overrides

AFTER_BACKWARD = "dense, after backward"
BASELINES: dict[str, tuple[str, ...]] = {DENSE: (), AFTER_BACKWARD: ("strategy.overlap=false",)}
_LEFT_OUT = ("randomk 10 %", "topk 10 %", "adaq 1 %", "8bit", "sketch", "inceptionn")
ARMS = {**{name: asked for name, asked in METHODS.items() if name not in _LEFT_OUT}, **BASELINES}
UNSCALED = "powersgd"
"""Its payload does not shrink with the tensors, so that a scaled run of it would send too much."""
_REPEATS = 3
_START_S, _PREDICTION_S = 13.0, 10.0
"""Of a run around its steps; of a prediction."""
_CODEC = 1.5
"""What a step with a codec takes, of computing alone: assumed."""


@dataclass(frozen=True)
class Case:
    model: Model
    rate_gbit_s: float
    scale: int
    dilation: float
    steps: int

    def overrides(self) -> tuple[str, ...]:
        return (
            *overrides(self.model, self.rate_gbit_s, self.steps),
            *(f"workload.scale={self.scale}", f"dilation={self.dilation:g}"),
        )

    def step_s(self, arm: str) -> float:
        """About."""
        rate_bit_s = 1e9 * self.rate_gbit_s
        if arm == AFTER_BACKWARD:
            return self.model.step_s + self.model.all_reduce_s(rate_bit_s)
        return self.model.overlapped_s(rate_bit_s) if arm == DENSE else _CODEC * self.model.step_s


SLOW, SMALL = "ResNet-50, 1 Gbit/s", "ResNet-20, 10 Gbit/s"
CASES = {
    SLOW: Case(MODELS["ResNet-50"], 1, 16, 5, 4),
    SMALL: Case(MODELS["ResNet-20"], 10, 1, 150, 10),
    "ResNet-50, 10 Gbit/s": Case(MODELS["ResNet-50"], 10, 16, 20, 4),
}
"""At dilations at which the messages of a step cost its cores a few per cent of it."""
QUICK: Mapping[str, Sequence[str]] = {
    SLOW: tuple(arm for arm in ARMS if arm != UNSCALED),
    SMALL: ("randomk 1 %", UNSCALED, "topk 1 %", "signsgd", "qsgd", DENSE, AFTER_BACKWARD),
}
"""Emulated without FULL."""
_SIMULATED = ("randomk 1 %", UNSCALED, DENSE)
"""Likewise, of ResNet-50 at 1 Gbit/s."""


def trials(full: bool) -> list[Trial]:
    return [*_emulated(full), *_simulated(full)]


def _emulated(full: bool) -> Iterator[Trial]:
    for seed in range(_REPEATS if full else 1):
        for name, arms in QUICK.items():
            yield from (_trial(name, arm, seed) for arm in arms)
    if full:
        yield from (_trial(name, arm, 0) for name in CASES for arm in _others(name))


def _others(name: str) -> Iterator[str]:
    """What is emulated with FULL alone, once."""
    for arm in ARMS:
        if arm not in QUICK.get(name, ()) and (CASES[name].scale == 1 or arm != UNSCALED):
            yield arm


def _trial(name: str, arm: str, seed: int) -> Trial:
    case = CASES[name]
    asked = (*case.overrides(), f"seed={seed}", *ARMS[arm])
    return Trial(name, arm, "emulated", asked, _START_S + case.steps * case.dilation * case.step_s(arm))


def _simulated(full: bool) -> Iterator[Trial]:
    for name in (SLOW, SMALL) if full else (SLOW,):
        asked = overrides(CASES[name].model, CASES[name].rate_gbit_s, CASES[name].steps)
        for arm in ARMS if full else _SIMULATED:
            yield Trial(name, arm, "simulated", (*asked, *ARMS[arm]), _PREDICTION_S)


def facts(case: str, kind: str) -> Mapping[str, str]:
    asked = CASES[case]
    scale = asked.scale if kind == "emulated" else 1
    return {**facts_of(asked.model, asked.rate_gbit_s), "scale": str(scale)}


SYSTEM = System(
    name="grace",
    claim="ResNet-50 trains at up to 4.95 times the throughput of dense gradients, 8 V100 at 1 Gbit/s (randomk, 1 %)",
    claimed=4.95,
    source="ICDCS 2021; released raw data, github sands-lab/grace-data (over MPI, the better of memory on and off)",
    baseline="dense gradients in four buckets or more, the faster of overlapped with backward and sent after it",
    setting=(
        "eight workers emulated on one switch, bytes and links of ResNet-50 scaled down alike; one GPU's step from the"
        " released throughputs for ResNet-50, assumed by FLOPs for ResNet-20; each codec takes what it takes one core"
        " of this machine for the whole model"
    ),
    candidates=tuple(arm for arm in ARMS if arm not in BASELINES),
    baselines=tuple(BASELINES),
    trials=trials,
    facts=facts,
)
