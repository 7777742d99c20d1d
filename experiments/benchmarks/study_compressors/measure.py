"""Which compressor wins at which rate and round trip: every member on four networks of like links, simulated.

A point is a member. Its codec is measured on a core of this machine, over the fastest and nearest links asked about and
over the slowest and farthest, since many members choose by the links what they send; a step is predicted with both,
and the shorter one counts. Codecs are as fast as a core, or ten times as fast. The sweep `study-compressors` emulates
twelve of the members on the same networks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.common import sources
from experiments.common.benchmark import Point
from testbed.analysis.simulator.predict_command import answer
from testbed.core.device.profile import Profile
from testbed.core.errors import InputError
from testbed.core.spec.run_spec import RunSpec
from testbed.core.spec.topology import with_wan
from testbed.orchestrator.config.config import resolve
from testbed.orchestrator.search.plan.predict_command import question_of

WORKERS, STEP_S = 4, 0.1
NETWORKS = ("two_regions", "star", "ring", "full_mesh")
RATES_MBIT_S = (10, 30, 100, 300, 1000)
RTTS_MS = (10, 40, 160)
"""Of a link."""
CODECS = {"a core": 1.0, "ten times": 10.0}
"""How many times as fast as a core of this machine."""
BASELINES = {f"none, {collective}": collective for collective in ("two_shot", "hierarchical")}
"""Dense gradients by other collectives than gloo's ring: what compression has to beat where round trips count."""
_SECONDS = 20
_STEPS = 20


def points(*, quick: bool) -> list[Point]:
    names = ("none", "topk") if quick else (*BASELINES, *sources.COMPRESSORS)
    return [Point({"compressor": name}, _SECONDS) for name in names]


def depends_on(compressor: str) -> Iterator[Path]:
    """The codec, what a step is, and how it is predicted."""
    yield from sources.of_compressor("none" if compressor in BASELINES else compressor)
    for network in NETWORKS:
        yield from sources.of_training("ddp", "digits", network)
        yield sources.file(f"topologies.{network}")
    yield from sources.of_prediction()


def overrides(compressor: str, network: str, rate_mbit_s: float, rtt_ms: float) -> tuple[str, ...]:
    name = "none" if compressor in BASELINES else compressor
    collective = BASELINES.get(compressor, "gloo")
    return (
        *(f"topo={network}", f"topo.rate='{rate_mbit_s:g} Mbit/s'", f"topo.rtt='{rtt_ms:g} ms'"),
        *(f"workers={WORKERS}", "workload=digits", f"compressor={name}", f"steps={_STEPS}"),
        *(f"strategy.collective={collective}", "device=paced", f"device.step_s={STEP_S:g}"),
    )


def cell(rate_mbit_s: float, rtt_ms: float) -> str:
    """The name of a point of the grid in the results."""
    return f"{rate_mbit_s:g}/{rtt_ms:g}"


def measure(compressor: str) -> dict[str, Any]:
    """Seconds of a step by codec, network and cell; `refused` where the simulator knows no such steps."""
    ends = ((RATES_MBIT_S[-1], RTTS_MS[0]), (RATES_MBIT_S[0], RTTS_MS[-1]))
    measured = [question_of(overrides(compressor, NETWORKS[0], *end)) for end in ends]
    try:
        steps = {name: _steps(compressor, measured, speedup) for name, speedup in CODECS.items()}
    except InputError as error:
        return {"refused": error.faults[0]}
    device = Profile.from_json(measured[0]["device"])
    return {"step_s": steps, "codec_s": device.codec_step_s}


def _steps(compressor: str, measured: list[dict[str, Any]], speedup: float) -> dict[str, dict[str, float]]:
    questions = []
    for one in measured:
        device = Profile.from_json(one["device"])
        questions.append({**one, "device": device.with_codec_of(device, speedup).to_json()})
    found: dict[str, dict[str, float]] = {}
    for network in NETWORKS:
        spec = resolve(overrides(compressor, network, RATES_MBIT_S[0], RTTS_MS[0]), emulated=False).spec
        found[network] = {
            cell(rate, rtt): min(_predicted_s(question, spec, rate, rtt) for question in questions)
            for rate in RATES_MBIT_S
            for rtt in RTTS_MS
        }
    return found


def _predicted_s(question: dict[str, Any], spec: RunSpec, rate_mbit_s: float, rtt_ms: float) -> float:
    topology = with_wan(spec.topology, rate_mbit_s * 1e6, rtt_ms / 1e3)
    asked = dataclasses.replace(spec, topology=topology, auto_dilation=False)
    return answer({**question, "spec": asked.to_json()}).times.step_s
