"""Behind one parameter server, from how many clients on compression pays: rounds with and without it, over clients.

A client's model is `glyphs`', 1.33 MB; parameters travel both ways, raw or through SZ3 within a hundredth of each
tensor's range, which nothing adapts. Each worker has an uplink to an exchange (`topo=star`), so that the server's own
is what its clients share, next to no delay, and a queue that holds all they send at once: on one switch sixteen raw
updates lose packets, and rounds take 2.6 times as long as their bytes. Training is paced and left out of a round.
Codecs take CPU seconds on the run's clock, so that links are slowed (`dilation`) until all clients' fit this machine's
cores.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from experiments.common import sources
from experiments.common.benchmark import Point
from experiments.common.whole_run import WholeRun, perform

RAW, COMPRESSED = "raw", "sz3"
ARMS = (RAW, COMPRESSED)
CLIENTS = {1: (2, 8, 16), 3: (2, 8, 16, 32, 48)}
"""By the rate of the server's link in Gbit/s: where compression always pays, and where it does from some 32 clients on.
The second rate follows from what codecs do on this machine: any table of this benchmark says it."""
DECODERS = 1
"""The server's one thread, as of `strategy.decoders=0`: so its step's `decompress` is all that decoding takes."""
_DILATIONS = {1: 24, 3: 24}
_CLIENTS_A_DILATION = 4 / 3
"""At most, on two cores: while all clients encode at once, three quarters of both cores are busy."""
_STEPS = 7
"""A round each; in the first one nothing has changed yet that could be sent."""
_TRAINING_S = 0.005
"""Of a client in a round."""
_WORKLOAD, _TOPO = "glyphs", "star"
_NETWORK = (f"topo={_TOPO}", "topo.rtt=0.2 ms", "topo.queue=64 MB", "topo.lan_rate=10 Gbit/s")
_START_S, _START_A_CLIENT_S = 14.0, 1.0
_MODEL_BYTES, _HANDLING_S, _CODEC_S = 1.33e6, 0.0015, 0.0025
"""About: to raw bytes copied and averaged, and to decode them, a client each."""
_ONCE_S = 0.03
_TRAINED = ("forward", "backward", "optimizer")


def points(*, quick: bool) -> list[Point]:
    if quick:
        return [_point(1, 2, arm) for arm in ARMS]
    return [_point(rate, clients, arm) for rate, of_rate in CLIENTS.items() for clients in of_rate for arm in ARMS]


def _point(rate_gbit_s: float, clients: int, arm: str) -> Point:
    link_s = 2 * 8 * _MODEL_BYTES / (rate_gbit_s * 1e9)
    each_s = _HANDLING_S + (link_s if arm == RAW else link_s / 7 + _CODEC_S)
    rounds_s = (_STEPS + 1) * dilation(rate_gbit_s, clients) * (_ONCE_S + clients * each_s)
    asked = {"rate_gbit_s": rate_gbit_s, "clients": clients, "arm": arm}
    return Point(asked, round(_START_S + _START_A_CLIENT_S * clients + rounds_s))


def dilation(rate_gbit_s: float, clients: int) -> float:
    """Alike for both arms."""
    return max(_DILATIONS[rate_gbit_s], clients / _CLIENTS_A_DILATION)


def depends_on(rate_gbit_s: float, clients: int, arm: str) -> Iterator[Path]:
    """What server and clients do, and what was asked for."""
    del rate_gbit_s, clients
    yield from sources.of_training("parameter_server", _WORKLOAD, _TOPO)
    yield from sources.files(
        ["testbed.worker.methods.parameter_server.bounds.baselines"],
        ("testbed.worker.methods.parameter_server.bounds",),
    )
    if arm == COMPRESSED:
        yield from sources.of_compressor(arm)


def overrides(rate_gbit_s: float, clients: int, arm: str) -> tuple[str, ...]:
    """The arguments of its run."""
    return (
        *("strategy=parameter_server", "strategy.local_steps=1"),
        *(f"strategy.{way}.payload=params" for way in ("uplink", "downlink")),
        *(f"strategy.{way}.codec={arm}" for way in ("uplink", "downlink")),
        *(
            "strategy.bound._target_=testbed.worker.methods.parameter_server.bounds.baselines.Fixed",
            "strategy.bound.alpha=0.01",
        ),
        *("strategy.bound.basis=range", *_NETWORK, f"topo.rate={rate_gbit_s:g} Gbit/s"),
        *(f"workload={_WORKLOAD}", "batch_size=1", f"workers={clients + 1}", f"steps={_STEPS}", "evaluate_every=1000"),
        *("device=paced", f"device.step_s={_TRAINING_S:g}", f"dilation={dilation(rate_gbit_s, clients):g}"),
    )


def measure(rate_gbit_s: float, clients: int, arm: str) -> dict[str, Any]:
    seconds = _point(rate_gbit_s, clients, arm).seconds
    return figures(perform(overrides(rate_gbit_s, clients, arm), limit_s=3 * seconds))


def figures(run: WholeRun) -> dict[str, Any]:
    """Medians over rounds, of clients over clients too; seconds are emulated.

    Returns also `round_s`, the server's from the beginning of the broadcast to all updates, without the clients'
    training; what encoding and decoding took a client and the server; and payload bytes, a message each.
    """
    ours = [ranks[0] for ranks in run.steps]
    theirs = [[event for rank, event in ranks.items() if rank] for ranks in run.steps]
    training = [statistics.median(map(_trained_s, clients)) for clients in theirs]
    rounds = [
        event["step_s"] - event["phase_s"]["optimizer"] - spent_s for event, spent_s in zip(ours, training, strict=True)
    ]

    def of_clients(value: Callable[[dict[str, Any]], float]) -> float:
        return statistics.median(value(event) for clients in theirs for event in clients)

    return {
        **run.facts(),
        "round_s": statistics.median(rounds),
        "least_round_s": min(rounds),
        "most_round_s": max(rounds),
        "training_s": statistics.median(training),
        "client_compress_s": of_clients(lambda event: event["phase_s"]["compress"]),
        "client_decompress_s": of_clients(lambda event: event["phase_s"]["decompress"]),
        "server_compress_s": statistics.median(event["phase_s"]["compress"] for event in ours),
        "server_decompress_s": statistics.median(event["phase_s"]["decompress"] for event in ours),
        "model_bytes": statistics.median(
            event["payload_bytes"] / len(clients) for event, clients in zip(ours, theirs, strict=True)
        ),
        "update_bytes": of_clients(lambda event: event["payload_bytes"]),
        "wire_over_payload": run.summary["bytes"]["wire_total"] / run.summary["bytes"]["payload"],
    }


def _trained_s(event: dict[str, Any]) -> float:
    return float(sum(event["phase_s"][phase] for phase in _TRAINED))
