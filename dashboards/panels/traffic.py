"""What the links carried, and whether they were what was asked for."""

from __future__ import annotations

from typing import Any

from dashboards.vocabulary.kinds import TIMES, Limits, Query, bars, time_series
from dashboards.vocabulary.queries import (
    DIRECTION,
    RUN,
    asked_rate,
    asked_round_trip,
    by,
    from_workers,
    last,
    on_wan,
    rate,
    ratio,
    series,
    wan_bytes,
)
from dashboards.vocabulary.tables import Column, table
from testbed.orchestrator.observation.verdict import link_rules

_WAY = "{{run}} {{source}} to {{target}}"
_LINK = "run, link"


def throughput() -> Any:
    sent = by("sum", DIRECTION, on_wan(rate("longhaul_link_transmit_bytes")))
    return time_series(
        "WAN throughput",
        "Bits that left each direction of each WAN link in a second, headers included, probes excluded.",
        "bps",
        Query(f"8 * {sent}", _WAY),
        Query(f"8 * {by('max', DIRECTION, on_wan(asked_rate()))}", f"target, {_WAY}", is_asked=True),
    )


def use() -> Any:
    sent = by("sum", DIRECTION, on_wan(rate("longhaul_link_transmit_bytes")))
    return time_series(
        "Use of the WAN links",
        "Throughput over the target rate. A full link shows 1; more than that was not shaped.",
        "percentunit",
        Query(ratio(sent, asked_rate(), DIRECTION), _WAY),
        limits=Limits(0.95, 1.02),
    )


def bytes_by_link() -> Any:
    return bars("Bytes by WAN link", "What left each direction in all.", "decbytes", Query(wan_bytes(DIRECTION), _WAY))


def compression() -> Any:
    """Both jump at the same moment, a step's end, so their ratio does not depend on how long steps are."""
    steps = by("max", RUN, rate("longhaul_train_steps"))
    dense = by("max", RUN, series("longhaul_dense_bytes_per_step"))
    claimed = by("sum", RUN, rate("longhaul_payload_bytes"))
    return time_series(
        "Compression over time",
        "Bytes of uncompressed ring data parallel over bytes the algorithm sent, step by step.",
        TIMES,
        Query(f"{dense} * on ({RUN}) {ratio(steps, claimed, RUN)}"),
    )


def wire_and_payload() -> Any:
    sent = by("sum", RUN, from_workers(rate("longhaul_link_transmit_bytes")))
    return time_series(
        "Sent by all workers",
        "Bits in a second on the workers' own interfaces, and what the algorithm says it sent, told at a step's end.",
        "bps",
        Query(f"8 * {sent}", "{{run}} on the wire"),
        Query(f"8 * {by('sum', RUN, rate('longhaul_payload_bytes'))}", "{{run}} claimed"),
    )


def round_trip() -> Any:
    return time_series(
        "Round trip",
        "Probes over each WAN link, including queueing, and the target without it.",
        "s",
        Query(by("max", _LINK, series("longhaul_link_rtt_seconds")), "{{run}} {{link}}"),
        Query(asked_round_trip(), "target, {{run}} {{link}}", is_asked=True),
    )


def round_trip_bars(share: float, name: str) -> Any:
    found = f"quantile_over_time({share:g}, {series('longhaul_link_rtt_seconds')}[$__range])"
    return bars(
        f"Round trip, {name}",
        "Of the probes over each WAN link in the whole run, queueing included.",
        "s",
        Query(by("max", _LINK, found), "{{run}} {{link}}"),
    )


def added_delay() -> Any:
    found = by("max", _LINK, series("longhaul_link_rtt_seconds"))
    return time_series(
        "Round trip above target",
        "What probes waited in queues, and what the emulation added.",
        "s",
        Query(f"{found} - on ({_LINK}) {asked_round_trip()}", "{{run}} {{link}}"),
        minimum=None,
    )


def queueing() -> Any:
    waiting = by("max", DIRECTION, on_wan(series("longhaul_link_queue_bytes")))
    return time_series(
        "Queueing delay",
        "Bytes waiting at each direction of a WAN link over its rate: how long a packet that joins now waits.",
        "s",
        Query(ratio(waiting, asked_rate(), DIRECTION), _WAY),
    )


def drops() -> Any:
    return time_series(
        "Drops at queues",
        "Packets a second for which a link's queue had no room, WAN and access links.",
        "pps",
        Query(by("sum", _LINK, rate("longhaul_link_dropped_packets")), "{{run}} {{link}}"),
    )


def retransmissions() -> Any:
    return time_series(
        "Segments sent again",
        "By each node's TCP, a second.",
        "pps",
        Query(by("sum", "run, node", rate("longhaul_tcp_retransmitted_segments")), "{{run}} {{node}}"),
    )


def smoothed_round_trip() -> Any:
    nodes = "run, node"
    return time_series(
        "Round trip as TCP sees it",
        "Largest smoothed and smallest round trip of each node's training connections (TCP_INFO).",
        "s",
        Query(by("max", nodes, series("longhaul_tcp_smoothed_rtt_seconds")), "{{run}} {{node}} smoothed"),
        Query(by("max", nodes, series("longhaul_tcp_min_rtt_seconds")), "{{run}} {{node}} least"),
    )


def asked_and_measured() -> Any:
    asked = by("max", DIRECTION, on_wan(last("longhaul_link_configured_bytes_per_second"), over_range=True))
    # A round trip belongs to both directions of its link.
    of_link = by("max", _LINK, last("longhaul_link_configured_rtt_seconds"))
    asked_rtt = f"0 * {asked} + on ({_LINK}) group_left () {of_link}"
    idle_rate, idle_rtt = (_measured(name, "idle") for name in ("bytes_per_second", "rtt_seconds"))
    busy_rtt = _measured("rtt_seconds", "busy")
    rate_limits = Limits(link_rules.RATE_SUSPECT, link_rules.RATE_INVALID)
    doubtful = link_rules.DELAY_SUSPECT_RATIO
    delay_limits = Limits(doubtful, link_rules.DELAY_INVALID_TIMES * doubtful)
    return table(
        "Target and measured",
        "Each direction of each WAN link before training: idle, and during the workers' warm-up. Errors are "
        "coloured at the verdict's limits; a millisecond of a round trip is always allowed.",
        ("run", "link", "source", "target"),
        Column("target rate", f"8 * {asked}", "bps"),
        Column("rate", f"8 * {idle_rate}", "bps"),
        Column("rate off by", _error(idle_rate, asked), "percentunit", rate_limits, 2),
        Column("target round trip", asked_rtt, "s"),
        Column("round trip", idle_rtt, "s"),
        Column("round trip in warm-up", busy_rtt, "s"),
        Column("round trip off by", _error(idle_rtt, asked_rtt), "percentunit", delay_limits, 2),
    )


def _measured(what: str, stage: str) -> str:
    found = last(f"longhaul_link_measured_{what}", f'stage="{stage}"')
    return by("max", DIRECTION, on_wan(found, over_range=True))


def _error(measured: str, asked: str) -> str:
    return f"abs({measured} / on ({DIRECTION}) ({asked}) - 1)"
