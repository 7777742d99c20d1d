"""Ways of distributing K-FAC against each other, over the links' rate and how large factors are.

The models of the reproductions of SPD- and PAD-KFAC, eight workers of one region, all factors taken and inverted in
each step: emulated for ResNet-50 at three rates, beside what is predicted for the same run, and simulated for models
of 77 and 195 million elements of factors at more rates. What is simulated goes by messages of an accelerator's machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.common import sources
from experiments.common.benchmark import Point
from experiments.common.papers.kfac import ARMS, MODELS, PREDICTION_S, SIMULATED_DILATION, emulated_s, overrides, slowed
from experiments.common.whole_run import perform
from testbed.orchestrator.search.plan import simulated_run
from testbed.orchestrator.search.plan.predict_command import question_of

WORKERS = 8
EMULATED, SIMULATED = "emulated", "simulated"
DILATIONS = {2.5: 4, 10: 10, 25: 20}
"""By rate in Gbit/s; the same for all arms: at which the chains' messages do not wait for a core."""
RATES_GBIT_S = (1, 2.5, 5, 10, 25)
SIMULATED_MODELS = ("ResNet-50", "ResNet-152")
_EMULATED_MODEL = "ResNet-50"
_STEPS = 5


def points(*, quick: bool) -> list[Point]:
    if quick:
        return [_point(EMULATED, _EMULATED_MODEL, "PAD-KFAC", 2.5)]
    emulated = [_point(EMULATED, _EMULATED_MODEL, arm, rate) for rate in DILATIONS for arm in ARMS]
    models = [(model, rate) for model in SIMULATED_MODELS for rate in RATES_GBIT_S]
    return emulated + [_point(SIMULATED, model, arm, rate) for model, rate in models for arm in ARMS]


def _point(kind: str, model: str, arm: str, rate_gbit_s: float) -> Point:
    asked = {"kind": kind, "model": model, "arm": arm, "rate_gbit_s": rate_gbit_s}
    if kind == SIMULATED:
        return Point(asked, PREDICTION_S)
    run_s = emulated_s(MODELS[model], rate_gbit_s * 1e9, _STEPS, DILATIONS[rate_gbit_s])
    return Point(asked, run_s + PREDICTION_S)


def depends_on(kind: str, model: str, arm: str, rate_gbit_s: float) -> Iterator[Path]:
    """What workers do, or what is predicted, and what both plan by."""
    del kind, model, rate_gbit_s
    strategy = ARMS[arm][0].removeprefix("strategy=")
    yield from sources.of_training(strategy, "replay", "lan")
    yield from sources.of_prediction()


def measure(kind: str, model: str, arm: str, rate_gbit_s: float) -> dict[str, Any]:
    asked = overrides(MODELS[model], arm, rate_gbit_s * 1e9, WORKERS, _STEPS)
    if kind == SIMULATED:
        return {"step_s": _predicted_s((*asked, f"dilation={SIMULATED_DILATION}"))}
    asked = (*asked, *slowed(DILATIONS[rate_gbit_s]))
    return {**perform(asked).facts(), "predicted_s": _predicted_s(asked)}


def _predicted_s(asked: tuple[str, ...]) -> float:
    return float(simulated_run.ask(question_of(asked))["step_s"])
