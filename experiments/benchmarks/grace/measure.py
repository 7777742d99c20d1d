"""GRACE's benchmark as a sweep: each of its methods against dense gradients, on its models at its rates, simulated.

A point is one model with one method. Its codec is measured once on a core of this machine, and a step is predicted from
that for every rate, at three speeds of codecs: as measured, ten times as fast, and in no time at all, where bytes alone
are left. Dense steps are also predicted without overlap, since the baseline decides what wins.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.benchmarks.grace.published import RATIOS
from experiments.common import sources
from experiments.common.benchmark import Point
from experiments.common.papers.grace import DENSE, METHODS, MODELS, overrides
from testbed.analysis.simulator.predict_command import answer
from testbed.core.device.profile import Profile
from testbed.orchestrator.config.config import resolve
from testbed.orchestrator.search.plan.predict_command import question_of

AFTER_BACKWARD = "after backward"
CODECS = {"a core": 1.0, "ten times": 10.0, "free": math.inf}
"""How many times as fast as a core of this machine."""
_SECONDS = {"ResNet-20": 8, "DenseNet-40": 8, "ResNet-50": 10, "VGG-19": 25, "NCF": 12, "LSTM": 10}
"""Of one point; one core is busy with it."""
_STEPS = 4
_MODELS = ("testbed.core.models.catalogue",)


def points(*, quick: bool) -> list[Point]:
    if quick:
        return [_point("ResNet-20", DENSE), _point("ResNet-20", "topk 1 %")]
    return [_point(model, method) for model in MODELS for method in (DENSE, *METHODS)]


def _point(model: str, method: str) -> Point:
    return Point({"model": model, "method": method}, _SECONDS[model])


def rates_of(model: str) -> list[float]:
    """In Gbit/s, at which GRACE ran it."""
    return [rate for name, rate in RATIOS if name == model]


def depends_on(model: str, method: str) -> Iterator[Path]:
    """The codec, what a step is, and how it is predicted."""
    del model
    yield from sources.of_compressor(_member(method))
    yield from sources.of_training("ddp", "replay", "lan")
    yield from sources.files(["testbed.core.models.catalogue"], _MODELS)
    yield from sources.of_prediction()


def _member(method: str) -> str:
    return "none" if method == DENSE else METHODS[method][0].removeprefix("compressor=")


def measure(model: str, method: str) -> dict[str, Any]:
    """Returns `step_s` by rate and codec; of dense gradients also `AFTER_BACKWARD`."""
    rates, compressor = rates_of(model), METHODS.get(method, ())
    measured = question_of((*overrides(MODELS[model], rates[0], _STEPS), *compressor))
    device = Profile.from_json(measured["device"])
    steps: dict[str, dict[str, float]] = {}
    for rate in rates:
        asked = (*overrides(MODELS[model], rate, _STEPS), *compressor)
        steps[f"{rate:g}"] = {
            codec: _predicted_s(measured, asked, device.with_codec_of(device, speedup))
            for codec, speedup in CODECS.items()
        }
        if method == DENSE:
            late = (*asked, "strategy.overlap=false")
            steps[f"{rate:g}"][AFTER_BACKWARD] = _predicted_s(measured, late, device)
    return {"step_s": steps, "codec_s": device.codec_step_s}


def _predicted_s(measured: dict[str, Any], asked: tuple[str, ...], device: Profile) -> float:
    """The profiles of one rate do for all: what is measured does not depend on the links."""
    spec = dataclasses.replace(resolve(asked, emulated=False).spec, auto_dilation=False)
    return answer({**measured, "spec": spec.to_json(), "device": device.to_json()}).times.step_s
