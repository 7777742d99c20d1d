"""A prediction for people."""

from __future__ import annotations

from testbed.analysis.simulator.prediction import KIND, Prediction
from testbed.core.units import format_size, format_time

_MOST_LINKS = 5


def text(found: Prediction) -> str:
    spec, times, sent = found.spec, found.times, found.traffic
    regions = len({node.region for node in spec.topology.nodes})
    names = (spec.topo, spec.workload.name, spec.strategy.name, spec.compressor.name, spec.device.name)
    rows = [
        ("step time", format_time(times.step_s)),
        ("  computing", f"{format_time(found.plan.compute_s)} ({'assumed' if found.assumed else 'measured'} times)"),
        ("  exposed communication", format_time(times.exposed_s)),
        ("first step", format_time(times.first_step_s)),
        ("bound by", found.bound_by),
        ("payload a step", f"{format_size(sent.payload_bytes)} (dense {format_size(found.dense_bytes)})"),
        ("over the WAN a step", format_size(sent.wan_wire_bytes)),
    ]
    busiest = sorted(sent.wan, key=lambda link: link.carrying_s, reverse=True)
    for link in busiest[:_MOST_LINKS]:
        share = f"{link.carrying_s / times.step_s:.0%} of its rate"
        rows.append((f"  {link.name} from {link.source}", f"{format_size(link.wire_bytes)}, {share}"))
    if len(busiest) > _MOST_LINKS:
        rows.append((f"  and {len(busiest) - _MOST_LINKS} more", ""))
    width = max(len(head) for head, _ in rows) + 2
    title = f"{'  '.join(names)}  {spec.workers} workers, {regions} regions  ({KIND})"
    lines = [title, "", *(f"{head:{width}}{value}".rstrip() for head, value in rows), "", *found.standing.lines()]
    return "\n".join(lines)
