"""Whether the emulation was faithful: cores, clocks, and packets the machine lost. Limits are the verdict's own."""

from __future__ import annotations

from typing import Any

from dashboards.vocabulary.kinds import Limits, Query, states, time_series
from dashboards.vocabulary.queries import (
    DIRECTION,
    RANGE,
    RUN,
    by,
    last,
    rate,
    ratio,
    run_time,
    series,
    wall_rate,
    wall_time,
)
from dashboards.vocabulary.tables import Column, table
from testbed.orchestrator.observation.verdict import lateness_rules, link_rules, machine_rules

_IDLE = Limits(machine_rules.IDLE_SUSPECT, machine_rules.IDLE_INVALID)
_PRESSURE = Limits(machine_rules.PRESSURE_SUSPECT, machine_rules.PRESSURE_INVALID)
_THROTTLED = Limits(machine_rules.THROTTLED_SUSPECT, machine_rules.THROTTLED_INVALID)
_LATE = Limits(lateness_rules.LATE_SUSPECT, lateness_rules.LATE_INVALID)
_QUEUED = Limits(lateness_rules.QUEUED_SUSPECT, lateness_rules.QUEUED_INVALID)
_DELAYED = Limits(link_rules.LATE_S, 2 * link_rules.LATE_S)
_SAMPLER = Limits(machine_rules.SAMPLER_LATE_S, 2 * machine_rules.SAMPLER_LATE_S)
_ANY = Limits(1, 1)
_WAY = "{{run}} {{source}} to {{target}}"


def idle() -> Any:
    return time_series(
        "Idle share of the cores",
        "Of all cores. Workers that have no core wait for one, and a step is longer than it should be.",
        "percentunit",
        Query(by("min", RUN, series("longhaul_host_cpu_idle_ratio"))),
        limits=_IDLE,
        maximum=1,
    )


def pressure() -> Any:
    return time_series(
        "Waiting for a core",
        "Share of the time in which some task of the machine waited for a core (pressure stall information).",
        "percentunit",
        Query(_pressure()),
        limits=_PRESSURE,
        maximum=1,
    )


def shortage() -> Any:
    """The rule of `machine_rules.StarvedSeconds`, second by second."""
    short = f"{by('min', RUN, series('longhaul_host_cpu_idle_ratio'))} < bool {machine_rules.IDLE_SUSPECT:g}"
    waited = f"{_pressure()} > bool {machine_rules.PRESSURE_SUSPECT:g}"
    grave = f"{_pressure()} > bool {machine_rules.PRESSURE_INVALID:g}"
    return states(
        "Were cores short?",
        f"Short: idle below {machine_rules.IDLE_SUSPECT:.0%}, or somebody waiting for more than "
        f"{machine_rules.PRESSURE_SUSPECT:.0%} of the time; gravely: {machine_rules.PRESSURE_INVALID:.0%}.",
        Query(f"clamp_max(({short}) + ({waited}), 1) + ({grave})"),
        {"0": ("enough", "green"), "1": ("short", "orange"), "2": ("gravely short", "red")},
    )


def throttled() -> Any:
    return time_series(
        "Held back by a quota",
        "Share of the time in which each node's container might not run, having used up its quota of CPU time.",
        "percentunit",
        Query(wall_rate("sum", "run, node", "longhaul_node_throttled_seconds"), "{{run}} {{node}}"),
        limits=_THROTTLED,
    )


def node_cores() -> Any:
    return time_series(
        "Cores used by each node",
        "CPU seconds of its container in a second.",
        "short",
        Query(wall_rate("sum", "run, node", "longhaul_node_cpu_seconds"), "{{run}} {{node}}"),
    )


def memory() -> Any:
    return time_series(
        "Memory of each node",
        "Charged to its container.",
        "decbytes",
        Query(by("max", "run, node", series("longhaul_node_memory_bytes")), "{{run}} {{node}}"),
    )


def late_phases() -> Any:
    ranks = by("sum", f"{RUN}, rank", rate("longhaul_train_late_seconds"))
    return time_series(
        "Training late",
        "By how much of the time the latest rank sent later than the device it stands for would have.",
        "percentunit",
        Query(by("max", RUN, ranks)),
        limits=_LATE,
    )


def queued_messages() -> Any:
    return time_series(
        "Messages waiting for a core",
        "Share of the time in which a rank's messages waited for a core, the mean over ranks.",
        "percentunit",
        Query(by("avg", RUN, rate("longhaul_train_queued_seconds"))),
        limits=_QUEUED,
    )


def late_packets() -> Any:
    return time_series(
        "Packets late out of the delay shaper",
        "99th percentile of each direction, second by second.",
        "s",
        Query(by("max", DIRECTION, series("longhaul_delay_line_late_seconds")), _WAY),
        limits=_DELAYED,
    )


def late_sampler() -> Any:
    return time_series(
        "Collector late",
        "How late the collector took its last sample: a machine too busy to be looked at.",
        "s",
        Query(by("max", RUN, series("longhaul_sampler_late_seconds"))),
        limits=_SAMPLER,
    )


def observation() -> Any:
    return time_series(
        "What observing costs",
        "Share of one core: of the collector alone, and of all of the process that observes the run. None of it is "
        "inside a node, nor on a link.",
        "percentunit",
        Query(wall_rate("max", RUN, "longhaul_collector_cpu_seconds"), "{{run}} collector"),
        Query(wall_rate("max", RUN, "longhaul_observer_cpu_seconds"), "{{run}} all of it"),
    )


def lost_packets() -> Any:
    lost = by("sum", RUN, rate("longhaul_host_softnet_dropped_packets"))
    no_room = by("sum", RUN, rate("longhaul_delay_line_dropped_packets"))
    return time_series(
        "Packets the machine lost",
        "Full CPU backlog (of the whole machine) or full delay shaper: losses that were not requested. One makes a run "
        "invalid.",
        "pps",
        Query(lost, "{{run}} backlog"),
        Query(no_room, "{{run}} delay shaper"),
    )


def squeezes() -> Any:
    rounds = by("sum", RUN, rate("longhaul_host_softnet_squeezes"))
    received = by("sum", RUN, rate("longhaul_host_softnet_processed_packets"))
    return time_series(
        "Rounds of receiving cut short",
        "Rounds that ended with packets left over, for each packet received (time_squeeze), the whole machine's.",
        "percentunit",
        Query(ratio(rounds, received, RUN)),
    )


def checks() -> Any:
    """One row a run: what the verdict looks at, each coloured where it would doubt it."""
    pressure_s = by("max", RUN, last("longhaul_host_cpu_pressure_seconds"))
    idle_mean = by("min", RUN, f"avg_over_time({series('longhaul_host_cpu_idle_ratio')}[{RANGE}])")
    sampler = by("max", RUN, f"max_over_time({series('longhaul_sampler_late_seconds')}[{RANGE}])")
    packets = by("max", RUN, f"quantile_over_time(0.95, {series('longhaul_delay_line_late_seconds')}[{RANGE}])")
    lost = by("sum", RUN, last("longhaul_host_softnet_dropped_packets"))
    late = by("max", RUN, last("longhaul_train_late_seconds"))
    queued = by("avg", RUN, last("longhaul_train_queued_seconds"))
    return table(
        "What the verdict looks at",
        "Over each run, coloured where the verdict would doubt it. Shares are of the time of all steps; the "
        "verdict's own figures are exact and in the run's report.",
        ("run", "compressor", "verdict"),
        Column("", by("max", f"{RUN}, verdict", last("longhaul_run_info"))),
        Column("reasons", by("max", RUN, last("longhaul_verdict_reasons")), "none", _ANY),
        Column("cores idle", idle_mean, "percentunit", _IDLE, 1),
        Column("waiting for a core", ratio(pressure_s, f"({wall_time()})", RUN), "percentunit", _PRESSURE, 1),
        Column("training late", ratio(late, run_time(), RUN), "percentunit", _LATE, 2),
        Column("messages waiting", ratio(queued, run_time(), RUN), "percentunit", _QUEUED, 2),
        Column("packets late", packets, "s", _DELAYED),
        Column("collector late", sampler, "s", _SAMPLER),
        Column("packets lost", lost, "none", _ANY),
    )


def _pressure() -> str:
    return wall_rate("max", RUN, "longhaul_host_cpu_pressure_seconds")
