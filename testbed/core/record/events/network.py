"""Events measured on the network. Times and rates are emulated; byte counts are layer-2 bytes.

`wire_bytes`, `packets` and `drops` of a link count up from the first step, those of a delay line from its start.
`busy_*`, `late_*` and `delay_*` belong to the interval since the event before.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.core.record.events.base import Count, Event, NamedNumbers, Number, Record, Text

WALL_CLOCK = frozenset({"link", "rtt", "delay_line", "tcp", "background"})
"""Events whose times and rates are measured on the wall clock and converted when they are recorded."""


@dataclass(frozen=True, kw_only=True)
class Burst(Record):
    """A packet train at full rate."""

    window_s: Number
    """Seconds over which the rate was taken."""
    wire_bytes: Count
    """Bytes that arrived in this time."""
    drops: Count
    """Packets that the queue dropped."""
    arrived_ratio: Number
    """Bytes that arrived over bytes that were sent."""
    gaps: NamedNumbers | None
    """Errors of gaps between units, as shares of the ideal gap; null if too few units came."""


@dataclass(frozen=True, kw_only=True)
class Measurement(Event, name="measurement"):
    """One direction of a link was measured before the first step."""

    name: Text
    """Link."""
    from_: Text
    to: Text
    stage: Text
    """`idle`: before anything else. `busy`: during the workers' warm-up."""
    rate_bit_s: Number | None
    """Rate of the burst; null if there was none."""
    burst: Burst | None
    """Packet train that gave the rate; null if there was none."""
    rtt_s: Number | None
    """Median round trip of the probes, their mean if the link has jitter."""
    rtt_max_s: Number | None
    """Longest round trip."""
    delay_s: Number | None
    """Median one-way delay of this direction, the mean if it has jitter."""
    probes: Count
    """Number of probes that came back."""
    probes_span_s: Number | None
    """Seconds over which they were sent."""


@dataclass(frozen=True, kw_only=True)
class ForeignInterface(Event, name="foreign_interface"):
    """A node has an interface that Longhaul did not make: traffic may bypass the emulated links."""

    node: Text
    interface: Text
    """Name of the interface."""


@dataclass(frozen=True, kw_only=True)
class Link(Event, name="link"):
    """Counters of one direction of a link."""

    name: Text
    """Link."""
    from_: Text
    to: Text
    wan: bool
    """False for the access link of a node."""
    wire_bytes: Count
    """Bytes of the run, without those of probes and background traffic."""
    packets: Count
    """Packets, without those of probes."""
    drops: Count
    """Packets that the queue dropped."""
    backlog_bytes: Count
    """Bytes that wait in the queue now."""
    interval_s: Number
    """Seconds since the event before."""
    busy_s: Number
    """Length of a sampling window with a non-empty queue; 0 if there was none."""
    busy_bytes: Count
    """Bytes that left the queue in this window."""
    excluded_bytes: Number
    """Bytes of probes and background traffic, which `wire_bytes` leaves out."""
    rate_bit_s: Number
    """Target rate at this moment."""


@dataclass(frozen=True, kw_only=True)
class Rtt(Event, name="rtt"):
    """Round trip of one probe, queueing included."""

    name: Text
    """Link."""
    rtt_s: Number
    """Round trip, the sum of both ways."""
    forward_s: Number
    """Way from the link's first end to its second."""
    backward_s: Number
    """Way back."""
    sent: Count
    """Probes sent so far."""


@dataclass(frozen=True, kw_only=True)
class Rendezvous(Event, name="rendezvous"):
    """Use that a node made of the run's rendezvous, where ranks find each other; at the end of the run."""

    node: Text
    requests: Count
    """Requests of any kind."""
    put_bytes: Count
    """Bytes of names and values that it put down."""
    training_bytes: Count
    """Bytes of these that it put down after the first step had begun; they did not cross the links."""
    refused: Count
    """Requests beyond a limit, or malformed."""


@dataclass(frozen=True, kw_only=True)
class Background(Event, name="background"):
    """Background traffic on one direction since the first step."""

    name: Text
    """Link."""
    from_: Text
    to: Text
    flows: Count
    """Flows that began."""
    finished: Count
    """Flows that ended with their last byte acknowledged."""
    refused: Count
    """Flows that did not begin because too many were unfinished."""
    failed: Count
    """Flows whose connection broke."""
    offered_bytes: Count
    """Bytes of all flows that were due."""
    delivered_bytes: Count
    """Bytes that applications received."""
    late_s: Number
    """Longest delay of a flow's beginning in the interval."""
    wire_bytes: Count
    """Bytes on the wire at the far end."""
    ack_wire_bytes: Count
    """Bytes on the wire that these flows cost the other direction."""


@dataclass(frozen=True, kw_only=True)
class DelayLine(Event, name="delay_line"):
    """Accuracy of the shaper of one direction. netem reports neither delays nor lateness: these are null."""

    name: Text
    """Link."""
    from_: Text
    to: Text
    late_p50_s: Number | None
    """Median time by which packets left later than due."""
    late_p99_s: Number | None
    """99th percentile of it."""
    late_max_s: Number | None
    """Longest of it."""
    delay_mean_s: Number | None
    """Mean delay that packets were to get, jitter included, lateness not."""
    delay_deviation_s: Number | None
    """Standard deviation of it."""
    packets: Count
    """Packets that arrived."""
    drops: Count
    """Packets that the link's loss dropped."""
    asked_drops: Number
    """Expected number of drops for these packets by the link's settings."""
    asked_drops_variance: Number
    """Variance of this number."""
    doubled: Count
    """Packets that were duplicated."""
    interval_s: Number
    """Seconds since the event before."""
    queue_drops: Count
    """Packets that the kernel dropped because a queue of the shaper was full."""


@dataclass(frozen=True, kw_only=True)
class Tcp(Event, name="tcp"):
    """Training connections of one node (TCP_INFO), since they were opened."""

    node: Text
    rtt_s: Number | None
    """Longest smoothed round trip; null without connections."""
    min_rtt_s: Number | None
    """Longest of the connections' shortest round trips."""
    retransmitted: Count
    """Segments sent again."""
    delivered_bytes: Count
    """Bytes that were acknowledged."""
