"""How training went: metric and loss, and where the steps' time goes."""

from __future__ import annotations

from typing import Any

from dashboards.vocabulary.kinds import Limits, Query, bars, time_series
from dashboards.vocabulary.queries import (
    COMMUNICATE,
    COMPUTE,
    EACH_SECOND,
    EXPOSED,
    RUN,
    STEP,
    by,
    last,
    on_wan,
    phase_rate,
    quantile,
    rate,
    ratio,
    series,
)
from dashboards.vocabulary.tables import Column, scatter, shares

_RANKS = f"{RUN}, rank"


def metric() -> Any:
    return time_series(
        "Metric over elapsed time",
        "The workload's metric on held-out data: accuracy and ROC AUC (more is better), bits per byte (less).",
        "short",
        Query(by("max", f"{RUN}, name", series("longhaul_train_metric_ratio")), "{{run}} {{name}}"),
        Query(by("max", "name", series("longhaul_run_metric_target_ratio")), "target {{name}}", is_asked=True),
        minimum=None,
    )


def metric_over_bytes() -> Any:
    sent = by("sum", RUN, on_wan(series("longhaul_link_transmit_bytes")))
    return scatter(
        "Metric over WAN bytes",
        "The workload's metric against what had left the WAN links by then: what a byte buys.",
        Column("WAN bytes", sent, "decbytes"),
        Column("metric", by("max", RUN, series("longhaul_train_metric_ratio")), "short"),
        "run",
        over_time=True,
    )


def loss() -> Any:
    return time_series(
        "Training loss",
        "Of the ranks' last batches, their mean. Workloads without arithmetic have none.",
        "short",
        Query(by("avg", RUN, series("longhaul_train_loss"))),
        minimum=None,
    )


def samples() -> Any:
    return time_series(
        "Samples per second",
        "Training samples of all ranks in an emulated second.",
        "cps",
        Query(by("sum", RUN, rate("longhaul_train_samples"))),
    )


def step_time() -> Any:
    steps = series("longhaul_train_step_seconds")
    return time_series(
        "Step time",
        "Of the ranks' last steps, the median and the slowest: a synchronous step is as long as that.",
        "s",
        Query(quantile(0.5, RUN, steps), "{{run}} median"),
        Query(by("max", RUN, steps), "{{run}} slowest"),
    )


def step_time_bars(share: float, name: str) -> Any:
    steps = by("max", RUN, series("longhaul_train_step_seconds"))
    return bars(
        f"Step time, {name} over seconds",
        "Of the slowest rank's last step at each second, so a long step counts for as many seconds as it lasts.",
        "s",
        Query(f"quantile_over_time({share:g}, ({steps})[{EACH_SECOND}])"),
    )


def phases() -> Any:
    labels = "run, phase"
    return time_series(
        "Where a step's time goes",
        "Share of each phase, all ranks. What communication computing hides is no part of a step's length.",
        "percentunit",
        Query(ratio(phase_rate(STEP, labels), phase_rate(STEP, "run"), "run", keep=True), "{{phase}}"),
        stacked=True,
        maximum=1,
    )


def phases_by_run() -> Any:
    spent = last("longhaul_train_phase_seconds", STEP)
    return shares(
        "Where the time went",
        "Share of each phase in all steps, all ranks. What communication computing hides is no part of it.",
        ratio(by("sum", "run, phase", spent), by("sum", "run", spent), "run", keep=True),
        row="run",
        column="phase",
    )


def overlap() -> Any:
    exposed = ratio(phase_rate(EXPOSED), phase_rate(COMMUNICATE), RUN)
    return time_series(
        "Communication hidden behind computing",
        "Share of the communication during which ranks computed. Compression that computes instead gains nothing here.",
        "percentunit",
        Query(f"clamp_min(1 - {exposed}, 0)"),
        maximum=1,
    )


def efficiency() -> Any:
    return time_series(
        "Scaling efficiency",
        "Share of the step that a worker alone would need too: forward, backward and optimizer. The rest is what "
        "training together costs.",
        "percentunit",
        Query(ratio(phase_rate(COMPUTE), phase_rate(STEP), RUN)),
        maximum=1,
    )


def stragglers() -> Any:
    ranks = phase_rate(COMPUTE, _RANKS)
    return time_series(
        "Slowest rank over the median",
        "Compute time of the slowest rank over that of the median one: 1 where all are alike.",
        "suffix:×",
        Query(ratio(by("max", RUN, ranks), quantile(0.5, RUN, ranks), RUN)),
        limits=Limits(1.2, 1.5),
    )


def waiting() -> Any:
    labels = "run, rank"
    return time_series(
        "Waiting for others, by rank",
        "Share of each rank's step in which it had nothing to do but wait for communication.",
        "percentunit",
        Query(ratio(phase_rate(EXPOSED, labels), phase_rate(STEP, labels), labels), "{{run}} rank {{rank}}"),
        maximum=1,
    )
