"""Rounds of clients that ran one after another, composed as if side by side, against the same clients at once.

The same federated training twice, by one seed, so with the same clients in each round, each as slow: once sixteen
workers run a client each, once four workers run four each, and of these the rounds are composed with a link of a
worker for each client. Every worker has an uplink to an exchange (`topo=star`), the server too, which all share: that
is where messages queue. Training is paced, so that a client takes as long wherever it runs; the first round, in which
connections begin slowly, is left out.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.common import sources, whole_run
from experiments.common.benchmark import Point
from testbed.analysis.composition.links import star_of
from testbed.analysis.composition.rounds import composed, rounds_of
from testbed.analysis.record.record import Record, load

PARTICIPANTS = 16
AT_ONCE, IN_SEQUENCE = PARTICIPANTS + 1, 5
"""Workers, the server one of them."""
RATES_MBIT_S = {"glyphs": (20, 50, 100), "blocks": (20, 100)}
"""By workload: messages of 1.33 MB, which take longer than a round trip, and of 0.05 MB, which do not."""
CLIENTS = {"glyphs": 320, "blocks": 16}
"""How many there are, of whom sixteen take part: so many that sixteen of `glyphs` compute for a second or so."""
RTT = "20 ms"
DILATION = 2
"""At which sixteen clients' computing fits two cores."""
STEPS = 8
_STEP_S = {"glyphs": 0.25, "blocks": 0.05}
"""Of a batch on the emulated device."""
_MODEL_BYTES = {"glyphs": 1.33e6, "blocks": 5.2e4}
_TRAINING_S = {"glyphs": 8.0, "blocks": 4.0}
"""About, of the slowest client or worker in a round."""
_START_S, _START_A_WORKER_S = 25.0, 1.0
_STOP_S = 60.0
_PACKAGES = ("testbed.analysis.composition", "testbed.analysis.composition.server_model", "testbed.core.spec.paths")


def points(*, quick: bool) -> list[Point]:
    if quick:
        return [_point("blocks", 100, workers) for workers in (AT_ONCE, IN_SEQUENCE)]
    return [
        _point(workload, rate, workers)
        for workload, rates in RATES_MBIT_S.items()
        for rate in rates
        for workers in (AT_ONCE, IN_SEQUENCE)
    ]


def _point(workload: str, rate_mbit_s: float, workers: int) -> Point:
    round_s = _TRAINING_S[workload] + 2 * (workers - 1) * 8 * _MODEL_BYTES[workload] / (rate_mbit_s * 1e6)
    asked = {"workload": workload, "rate_mbit_s": rate_mbit_s, "workers": workers}
    return Point(asked, round(_START_S + _START_A_WORKER_S * workers + DILATION * (STEPS + 1) * round_s))


def depends_on(workload: str, rate_mbit_s: float, workers: int) -> Iterator[Path]:
    """What server and clients do, and what is composed of it."""
    del rate_mbit_s, workers
    yield from sources.of_training("federated", workload, "star")
    yield from sources.files(["testbed.analysis.composition.rounds"], _PACKAGES)


def overrides(workload: str, rate_mbit_s: float, workers: int) -> tuple[str, ...]:
    """The arguments of its run."""
    return (
        *("strategy=federated", f"strategy.clients={CLIENTS[workload]}", f"strategy.participants={PARTICIPANTS}"),
        *("strategy.placement=equal", "strategy.straggler_sigma=1"),
        *("topo=star", f"topo.rate={rate_mbit_s:g} Mbit/s", f"topo.rtt={RTT}"),
        *(f"workload={workload}", "batch_size=32", f"workers={workers}", f"steps={STEPS}", "evaluate_every=1000"),
        *("device=paced", f"device.step_s={_STEP_S[workload]:g}", f"dilation={DILATION:g}"),
    )


def measure(workload: str, rate_mbit_s: float, workers: int) -> dict[str, Any]:
    seconds = _point(workload, rate_mbit_s, workers).seconds
    with whole_run.made(overrides(workload, rate_mbit_s, workers), 3 * seconds) as run:
        return {**whole_run.read(run).facts(), **figures(load(run.path))}


def figures(record: Record) -> dict[str, Any]:
    """Means over rounds but the first; seconds are emulated.

    Returns also `clients_s`, what all clients of a round took together: the same, where they are the same clients.
    """
    assert record.spec is not None, "it was made just now"
    found = composed(record, star_of(record.spec.topology))
    mean = {key: value for key, value in found["mean"].items() if key != "kind"}
    rounds = rounds_of(record)
    return {
        **mean,
        "rounds": len(rounds),
        "clients": statistics.fmean(len(one.clients_s) for one in rounds),
        "clients_s": statistics.fmean(sum(one.clients_s) for one in rounds),
        "longest_client_s": statistics.fmean(max(one.clients_s) for one in rounds),
        "model_bytes": statistics.fmean(one.model_bytes for one in rounds),
    }
