"""The testbed against itself: one training at four combinations of dilation k and scale S takes the same emulated time.

Twelve configurations, replayed ones with both k and S, computed ones with k alone. Two of them also pass through netem
in user-mode Linux, and two run next to a process that takes a core. With a round trip of 5 ms TCP bears any k here.

Steps are long and buckets large, since at k = 1 messages cost what they cost this machine: of ResNet-18's steps 35 ms
in buckets of 4 MiB, less than 1 ms in those of 25 MiB. Queues are of eight bandwidth-delay products: with one,
connections share a link in one of several ways that last, at the same k, and steps of the same run differ by a fifth.
Access links of scaled replays have 10 Gbit/s, since after a pause 130 kB times S pass at once (docs/decisions/0089).
"""

from __future__ import annotations

import itertools
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.benchmarks.netem.measure import in_guest
from experiments.common import sources
from experiments.common.benchmark import Point
from experiments.common.whole_run import Refused, WholeRun, perform
from testbed.orchestrator.machine.clone import RUNS_ROOT

ALONE, NETEM, BUSY = "alone", "netem", "next to a busy process"
_INSIDE = "inside the guest"
"""Place of a run that `NETEM` has started in user-mode Linux."""
STEPS, STEP_S = {1: 16, 4: 12, 20: 6, 100: 4}, 0.3
"""Steps by k, the fewer the longer they last; even, since some exchange in every second one."""
_REPLAYED = ("workload=replay", "workload.model=resnet50", "topo.rate='2 Gbit/s'", "topo.lan_rate='10 Gbit/s'")
_COMPUTED = ("workload=digits", "topo.rate='250 Mbit/s'", "topo.lan_rate='2.5 Gbit/s'")
_COMMON = (
    *("topo=two_regions", "topo.rtt='5 ms'", "topo.queue='8 BDP'", "workers=4"),
    *("compressor=none", "device=paced", f"device.step_s={STEP_S}"),
)
REPLAYED_AT, COMPUTED_AT = ((1, 16), (4, 4), (20, 4), (100, 1)), ((1, 1), (4, 1), (20, 1), (100, 1))
"""Combinations of k and S. The first is what others are compared with."""
REFUSED_AT = ((1, 16), (4, 4), (20, 1), (100, 1))
"""Combinations of a strategy that is refused at any scale but 1; the last is compared with its first run there."""
GUEST_AT = REPLAYED_AT[2:]
"""Combinations that user-mode Linux, which has one slow core, carries."""
_EMULATED_S, _START_S, _GUEST_S = {True: 1.0, False: 0.6}, 20, 150
"""About how long a step takes, by whether it is replayed, and what starting takes on this machine and in the guest."""


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """One training, but for its k and S.

    Args:
        strategy: Overrides that choose it.
        combinations: Pairs of k and S, by rising k.
    """

    strategy: tuple[str, ...]
    combinations: tuple[tuple[int, int], ...] = REPLAYED_AT

    @property
    def is_replayed(self) -> bool:
        """False where the model is really computed."""
        return self.combinations != COMPUTED_AT

    def overrides(self, k: int, scale: int) -> tuple[str, ...]:
        """Return the arguments of its run."""
        chosen = (*_COMMON, *(_REPLAYED if self.is_replayed else _COMPUTED), *self.strategy)
        scaled = (f"workload.scale={scale}",) if scale != 1 else ()
        return (*chosen, *scaled, f"dilation={k}", f"steps={STEPS[k]}", "evaluate_every=1000")


_BUCKETS, _PAIRS = "strategy.bucket_size='25 MiB'", "strategy.sync_every=2"
_DDP = ("strategy=ddp", _BUCKETS)
_SERVER = ("strategy=parameter_server", "strategy.local_steps=2")
CONFIGURATIONS = {
    "replay, ddp, gloo": Configuration(strategy=_DDP),
    "replay, ddp, ring": Configuration(strategy=(*_DDP, "strategy.collective=ring")),
    "replay, ddp, two-shot": Configuration(strategy=(*_DDP, "strategy.collective=two_shot")),
    "replay, ddp, hierarchical": Configuration(strategy=(*_DDP, "strategy.collective=hierarchical")),
    "replay, dear, ring": Configuration(strategy=("strategy=dear", _BUCKETS)),
    "replay, local_sgd": Configuration(strategy=("strategy=local_sgd", _PAIRS)),
    "replay, parameter_server": Configuration(strategy=_SERVER, combinations=REFUSED_AT),
    "computed, ddp, gloo": Configuration(strategy=_DDP, combinations=COMPUTED_AT),
    "computed, dear, two-shot": Configuration(
        strategy=("strategy=dear", _BUCKETS, "strategy.collective=two_shot"), combinations=COMPUTED_AT
    ),
    "computed, pad_kfac": Configuration(strategy=("strategy=pad_kfac", _BUCKETS), combinations=COMPUTED_AT),
    "computed, local_sgd": Configuration(strategy=("strategy=local_sgd", _PAIRS), combinations=COMPUTED_AT),
    "computed, parameter_server": Configuration(strategy=_SERVER, combinations=COMPUTED_AT),
}
IN_NETEM = ("replay, ddp, gloo", "replay, local_sgd")
NEXT_TO_A_BUSY_PROCESS = ("replay, ddp, ring", "computed, ddp, gloo")


def points(*, quick: bool) -> list[Point]:
    if quick:
        return [_point("computed, ddp, gloo", ALONE, k, scale) for k, scale in COMPUTED_AT[:2]]
    asked = [(name, ALONE, *at) for name, one in CONFIGURATIONS.items() for at in one.combinations]
    asked += [(name, NETEM, *at) for name in IN_NETEM for at in GUEST_AT]
    asked += [(name, BUSY, *at) for name in NEXT_TO_A_BUSY_PROCESS for at in CONFIGURATIONS[name].combinations]
    return [_point(*one) for one in asked]


def _point(configuration: str, place: str, k: int, scale: int) -> Point:
    asked = {"configuration": configuration, "place": place, "k": k, "scale": scale}
    return Point(asked, _seconds(configuration, place, k))


def _seconds(configuration: str, place: str, k: int) -> float:
    start_s = _GUEST_S if place == NETEM else _START_S
    return start_s + STEPS[k] * k * _EMULATED_S[CONFIGURATIONS[configuration].is_replayed]


def depends_on(**_: Any) -> Iterator[Path]:
    return sources.of_whole_runs("topologies.two_regions")


def measure(configuration: str, place: str, k: int, scale: int) -> dict[str, Any]:
    limit_s = 3 * _seconds(configuration, place, k)
    if place == NETEM:
        inside = {"configuration": configuration, "place": _INSIDE, "k": k, "scale": scale}
        return in_guest(__name__, inside, limit_s)
    if place == _INSIDE:
        return found(configuration, k, scale, limit_s, "shaper=netem")
    with _busy_process() if place == BUSY else nullcontext():
        return found(configuration, k, scale, limit_s, runs=RUNS_ROOT)


def found(
    configuration: str, k: int, scale: int, limit_s: float, *more: str, runs: Path | None = None
) -> dict[str, Any]:
    """Return what a run says, or why it was refused.

    Args:
        more: Further overrides.
        runs: Folder that keeps the run; without, it goes when it has been read.
    """
    try:
        run = perform((*CONFIGURATIONS[configuration].overrides(k, scale), *more), limit_s, runs=runs)
    except Refused as error:
        return {"refused": str(error)}
    sent = run.summary["bytes"]
    return {
        **run.facts(),
        "run_id": run.summary["run_id"],
        "hash": run.spec["hash"],
        "step_s": _step_s(run),
        "payload_bytes_step": sent["payload"] / STEPS[k],
        "wan_bytes_step": sent["wire_wan"] / STEPS[k],
    }


def _step_s(run: WholeRun) -> float:
    """Return the median over pairs of neighbouring steps of their mean: one of both may be without an exchange."""
    steps_s = [statistics.fmean(event["step_s"] for event in ranks.values()) for ranks in run.steps]
    return statistics.median((one_s + next_s) / 2 for one_s, next_s in itertools.pairwise(steps_s))


@contextmanager
def _busy_process() -> Iterator[None]:
    """Keep one core busy meanwhile; it is waited for, so its time counts as this point's own."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            yield
        finally:
            process.kill()
