"""Length of a drawn configuration: as many steps as train for less than half a minute of wall time.

A configuration must be the same each time and on each machine, so nothing is measured. Seconds follow from a table of
the workloads, from what a dilation has to make fit on two cores, and from the closed forms of collectives. They are
rough, and the limit has room for it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from testbed.core.costs.collective import seconds
from testbed.core.spec.topology import Topology
from testbed.orchestrator.config.topology import build_topology
from testbed.orchestrator.machine.clone import CONF_DIR

LIMIT_S = 30.0
"""Wall seconds of training, at most."""
_AIM = 2 / 3
"""Share of the limit that the estimate may take."""
_MIN_STEPS, _MAX_STEPS = 2, 80
_CORES = 2
_MARGIN = 1.25
_PACED_S = 0.25
"""Seconds of a step with device=paced."""


@dataclass(frozen=True)
class _Model:
    """Size of the gradients, and CPU seconds of a worker's step, without compressor; measured once on an AMD EPYC."""

    size_bytes: float
    step_cpu_s: float


_MODELS = {
    "digits": _Model(4.4e6, 0.04),
    "glyphs": _Model(1.3e6, 0.12),
    "bytelm": _Model(2.7e6, 0.15),
    "resnet50": _Model(102e6, 0.10),
    "mobilenet_v2": _Model(14e6, 0.03),
    "resnet20": _Model(1.1e6, 0.01),
}
_REPLAYED = ("resnet50", "mobilenet_v2", "resnet20")
"""Models of a replay; the first that fits is taken."""
_COLLECTIVES: dict[str, Sequence[tuple[str, float]]] = {
    "none": [("all_reduce", 1.0)],
    "topk": [("all_gather", 0.02)],
    "sz3": [("all_gather", 0.05)],
    "powersgd": [("all_reduce", 0.05), ("all_reduce", 0.05)],
}
"""Collectives one after another, each with the share of the gradients' bytes that a rank gives to it."""
_CODEC_CPU_S_BYTE = {"none": 0.0, "topk": 8e-9, "sz3": 5e-9, "powersgd": 2e-9}
_EVERY = {"local_sgd": 10, "diloco": 50, "parameter_server": 10}
"""Steps from one exchange to the next, where it is not each."""
_WORK, _TRAFFIC = {"pad_kfac": 4.0}, {"pad_kfac": 8.0, "hybrid": 0.3}
"""Computing and seconds of exchanges, in those of `ddp`."""


@dataclass(frozen=True)
class Length:
    """Model that is trained, for how many steps, and how long that takes.

    Args:
        model: Model of a replay; else the workload.
        training_s: Wall seconds, estimated.
    """

    model: str
    steps: int
    training_s: float


def length(topo: str, strategy: str, compressor: str, workers: int, workload: str) -> Length:
    """Return the most steps that fit, of the largest model that does."""
    network, is_paced = topology(topo, workers), workload == "replay"
    for name in _REPLAYED if is_paced else (workload,):
        fixed_s, step_s = _wall_s(network, strategy, compressor, _MODELS[name], _PACED_S if is_paced else None)
        steps = min(_MAX_STEPS, int((_AIM * LIMIT_S - fixed_s) / step_s))
        if steps >= _MIN_STEPS:
            break
    steps = max(_MIN_STEPS, steps)
    return Length(name, steps, fixed_s + steps * step_s)


def _wall_s(
    network: Topology, strategy: str, compressor: str, model: _Model, paced_s: float | None
) -> tuple[float, float]:
    """Return wall seconds of what there is once, and of a step."""
    work, every = _WORK.get(strategy, 1.0), _EVERY.get(strategy, 1)
    codec_s = _CODEC_CPU_S_BYTE[compressor] * model.size_bytes / every
    cpu_s = work * model.step_cpu_s + codec_s
    step_s = (work * model.step_cpu_s if paced_s is None else paced_s) + codec_s
    # gloo tells each sender that its receiver is ready, so a round takes a whole round trip
    exchange_s = (
        2
        * _TRAFFIC.get(strategy, 1.0)
        * sum(seconds("gloo", kind, share * model.size_bytes, network) for kind, share in _COLLECTIVES[compressor])
    )
    crowd = max(1.0, len(network.nodes) / _CORES)
    k = max(1.0, _MARGIN * crowd * cpu_s / (step_s + 0.01 * exchange_s / every))
    last_s = exchange_s if every > 1 else 0.0  # the last exchange comes when training ends
    return k * last_s, k * (step_s + exchange_s / every)


@functools.cache
def topology(name: str, workers: int) -> Topology:
    """Return a shipped topology.

    Raises:
        InputError: It has more regions than workers.
    """
    values = yaml.safe_load((CONF_DIR / "topo" / f"{name}.yaml").read_text())
    values.pop("run", None)
    return build_topology(name, values.pop("_target_"), values, workers)
