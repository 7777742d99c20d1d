"""How runs ended: verdict, metric, time to target, bytes."""

from __future__ import annotations

from typing import Any

from dashboards.vocabulary.kinds import TIMES, Limits, Query, bars, single, verdict
from dashboards.vocabulary.queries import (
    RUN,
    best_metric,
    by,
    dense_over,
    last,
    payload_bytes,
    ratio,
    run_time,
    sent_bytes,
    time_to_accuracy,
    time_to_target,
    verdict_code,
    wan_bytes,
)
from dashboards.vocabulary.tables import Column, scatter, table

_TO_TARGET = "Emulated seconds until the workload's metric reached its target; runs that did not reach it are missing."
_RATIO = "Bytes that uncompressed ring data parallel would have sent in as many steps, over bytes sent"


def verdicts() -> Any:
    return verdict(
        "Verdict",
        "Whether the run's numbers can be trusted. Provisional during a run; the reasons are in its report.",
        Query(verdict_code()),
    )


def reasons() -> Any:
    return single(
        "Reasons against it",
        "Number of reasons against the verdict `valid`; in words they are in the run's report and its summary.json.",
        "none",
        Query(by("max", RUN, last("longhaul_verdict_reasons"))),
        limits=Limits(1, 1),
    )


def best() -> Any:
    return single(
        "Best metric",
        "The best value of the workload's metric: the highest accuracy or ROC AUC, or the fewest bits per byte.",
        "none",
        Query(best_metric(), "{{name}}"),
    )


def to_target() -> Any:
    return single("Time to target", _TO_TARGET, "s", Query(time_to_target()))


def duration() -> Any:
    return single(
        "Time of all steps", "Emulated seconds that the slowest rank's steps took in all.", "s", Query(run_time())
    )


def steps() -> Any:
    taken = by("max", RUN, last("longhaul_train_steps"))
    return single("Steps", "Optimizer steps that the fastest rank took.", "none", Query(taken))


def crossed() -> Any:
    return single("WAN bytes", "Bytes that left the WAN links, headers and all.", "decbytes", Query(wan_bytes()))


def compression() -> Any:
    return single("Compression", f"{_RATIO} by the algorithm.", TIMES, Query(dense_over(payload_bytes())))


def to_target_bars() -> Any:
    return bars("Time to target", _TO_TARGET, "s", Query(time_to_target()))


def to_accuracy_bars() -> Any:
    return bars(
        "Time to $accuracy accuracy",
        "Emulated seconds until the accuracy chosen above was first reached, by the steps of the slowest rank; runs "
        "that did not reach it are missing.",
        "s",
        Query(time_to_accuracy()),
    )


def compression_bars() -> Any:
    return bars(
        "Compression claimed",
        f"{_RATIO} by the algorithm, framing included.",
        TIMES,
        Query(dense_over(payload_bytes())),
    )


def effective_compression_bars() -> Any:
    return bars(
        "Compression on the wire",
        f"{_RATIO} on the wire: headers, retransmissions and whatever else left the workers.",
        TIMES,
        Query(dense_over(sent_bytes())),
    )


def wire_over_payload() -> Any:
    return bars(
        "Bytes on the wire over bytes claimed",
        "What left the workers' interfaces over what the algorithm says it sent: 1.05 is headers alone, more is "
        "retransmission or a wrong claim, less than 1 is traffic around the links.",
        TIMES,
        Query(ratio(sent_bytes(), payload_bytes(), RUN)),
    )


def pareto() -> Any:
    return scatter(
        "Time to target against WAN bytes",
        "A point for each run that reached its target, a colour for each compressor. Lower and further left is better.",
        Column("WAN bytes", wan_bytes(), "decbytes"),
        Column("time to target", time_to_target(), "s"),
        "compressor",
    )


def runs() -> Any:
    labels = (
        *("run", "kind", "verdict", "topo", "workload", "strategy", "compressor", "parameters", "workers", "device"),
        *("seed", "dilation", "setting"),
    )
    about = "kind, workload, strategy, parameters, workers, device, seed, dilation, setting, verdict"
    info = by("max", f"{RUN}, topo, {about}", last("longhaul_run_info"))
    return table(
        "Runs",
        "What each run was and how it ended. A blank is unknown, as a target that was not reached.",
        labels,
        Column("", info),
        Column("reasons", by("max", RUN, last("longhaul_verdict_reasons")), "none"),
        Column("best metric", by("max", RUN, best_metric()), "none", decimals=4),
        Column("time to target", time_to_target(), "s"),
        Column("time of all steps", run_time(), "s"),
        Column("WAN bytes", wan_bytes(), "decbytes"),
        Column("compression", dense_over(payload_bytes()), TIMES, decimals=1),
        sort_by="time to target",
    )
