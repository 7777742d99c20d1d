"""Many runs as groups: what a compressor gains, and how sure that is."""

from __future__ import annotations

from typing import Any

from dashboards.vocabulary import seeds
from dashboards.vocabulary.kinds import TIMES, Query, bars
from dashboards.vocabulary.queries import RUN, best_metric, by, last, time_to_target, wan_bytes
from dashboards.vocabulary.tables import Column, table

_GROUP = tuple(seeds.GROUP.split(", "))


def speed_up() -> Any:
    return bars(
        "Speed-up over no compression",
        "Mean time to target without compression over that with it, among runs of one kind (emulated, or on real "
        "machines) that differ only in compressor and seed. A compressor that reached no target, or has no run to "
        "compare with, is missing.",
        TIMES,
        Query(
            seeds.speed_up(),
            "{{compressor}} {{parameters}} {{topo}} {{workload}} {{strategy}} {{workers}} {{device}} {{kind}}",
        ),
    )


def over_seeds() -> Any:
    """Means with their number of seeds and 95% interval: neither is left out."""
    is_run = by("max", RUN, last("longhaul_run_info"))
    metric = by("max", RUN, best_metric())
    return table(
        "Over seeds",
        "A row has runs that differ only in their seed; rows of one setting differ only in the compressor. Next to a "
        "mean is half its 95% interval (Student's t); blank for a single seed.",
        _GROUP,
        Column("seeds", seeds.count(is_run)),
        Column("seeds that reached the target", seeds.count(time_to_target())),
        Column("time to target", seeds.mean(time_to_target()), "s"),
        Column("± time to target", seeds.half_interval(time_to_target()), "s"),
        Column("deviation of time to target", seeds.deviation(time_to_target()), "s"),
        Column("best metric", seeds.mean(metric), decimals=4),
        Column("± best metric", seeds.half_interval(metric), decimals=4),
        Column("WAN bytes", seeds.mean(wan_bytes()), "decbytes"),
        sort_by="time to target",
    )
