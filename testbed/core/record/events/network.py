"""Events measured on the network. Times and rates are emulated; byte counts are layer-2 bytes.

`wire_bytes`, `packets` and `drops` of a link count up from the first step, those of `delay_line` from its start.
`busy_*`, `late_*` and `delay_*` belong to the interval since the event before.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.core.record.events.base import Count, Event, NamedNumbers, Number, Record, Text

WALL_CLOCK = frozenset({"link", "rtt", "delay_line", "tcp", "background"})
"""Events whose times and rates are measured on the wall clock and converted when they are recorded."""


@dataclass(frozen=True, kw_only=True)
class Burst(Record):
    """Packet train at full rate."""

    window_s: Number
    """Time of the rate."""
    wire_bytes: Count
    """Bytes that arrived then."""
    drops: Count
    """Packets that the queue dropped."""
    arrived_ratio: Number
    """Bytes arrived / bytes sent."""
    gaps: NamedNumbers | None
    """Errors of gaps / the ideal gap. The gaps are between units; null if too few units came."""


@dataclass(frozen=True, kw_only=True)
class Measurement(Event, name="measurement"):
    """A link's direction, measured before step 1."""

    name: Text
    """Link."""
    from_: Text
    to: Text
    stage: Text
    """`idle`, or `busy`: during the workers' warm-up."""
    rate_bit_s: Number | None
    """Rate of the burst."""
    burst: Burst | None
    """Packet train of the rate. Null, as is the rate, if there was none."""
    rtt_s: Number | None
    """Median round trip; the mean with jitter."""
    rtt_max_s: Number | None
    """Longest round trip."""
    delay_s: Number | None
    """Median one-way delay; the mean with jitter."""
    probes: Count
    """Probes that came back."""
    probes_span_s: Number | None
    """Time over which they were sent."""


@dataclass(frozen=True, kw_only=True)
class ForeignInterface(Event, name="foreign_interface"):
    """A node has an interface that Longhaul did not make: traffic may bypass the links."""

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
    """False for a node's access link."""
    wire_bytes: Count
    packets: Count
    """Bytes without probes and background traffic, and packets without probes."""
    drops: Count
    """Packets that the queue dropped."""
    backlog_bytes: Count
    """Bytes in the queue now."""
    interval_s: Number
    """Seconds since the event before."""
    busy_s: Number
    busy_bytes: Count
    """Sampling window with a non-empty queue, and bytes sent. 0 if there was none."""
    excluded_bytes: Number
    """Bytes of probes and background traffic."""
    rate_bit_s: Number
    """Target rate at this moment."""


@dataclass(frozen=True, kw_only=True)
class Rtt(Event, name="rtt"):
    """Round trip of a probe, queueing included."""

    name: Text
    """Link."""
    rtt_s: Number
    """Sum of both ways."""
    forward_s: Number
    backward_s: Number
    """Way from the link's first end, and back."""
    sent: Count
    """Probes sent so far."""


@dataclass(frozen=True, kw_only=True)
class Rendezvous(Event, name="rendezvous"):
    """A node's use of the rendezvous, at the end. Ranks find each other there."""

    node: Text
    requests: Count
    """Requests."""
    put_bytes: Count
    training_bytes: Count
    """Bytes put down, in all and after step 1. They are names and values; those after step 1 did not cross the
    links."""
    refused: Count
    """Requests refused. They were malformed or beyond a limit."""


@dataclass(frozen=True, kw_only=True)
class Background(Event, name="background"):
    """Background traffic on a direction since step 1."""

    name: Text
    """Link."""
    from_: Text
    to: Text
    flows: Count
    finished: Count
    refused: Count
    failed: Count
    """Flows that began, ended, were refused, broke. Finished flows were acknowledged to the last byte; flows are
    refused when too many are unfinished."""
    offered_bytes: Count
    delivered_bytes: Count
    """Bytes due, and received by applications."""
    late_s: Number
    """Longest delay of a flow's beginning. In the interval."""
    wire_bytes: Count
    ack_wire_bytes: Count
    """Bytes on the wire at the far end, and what these flows cost the other direction."""


@dataclass(frozen=True, kw_only=True)
class DelayLine(Event, name="delay_line"):
    """Accuracy of a direction's shaper; netem has no times. They are null there."""

    name: Text
    """Link."""
    from_: Text
    to: Text
    late_p50_s: Number | None
    late_p99_s: Number | None
    late_max_s: Number | None
    """Lateness: median, 99th percentile, maximum."""
    delay_mean_s: Number | None
    delay_deviation_s: Number | None
    """Intended delay: mean, standard deviation. Jitter is included."""
    packets: Count
    """Packets that arrived."""
    drops: Count
    """Packets that the loss dropped."""
    asked_drops: Number
    asked_drops_variance: Number
    """Expected drops, and their variance."""
    doubled: Count
    """Packets duplicated."""
    interval_s: Number
    """Seconds since the event before."""
    queue_drops: Count
    """Packets that a full shaper dropped."""


@dataclass(frozen=True, kw_only=True)
class Tcp(Event, name="tcp"):
    """A node's training connections (TCP_INFO), since opened."""

    node: Text
    rtt_s: Number | None
    min_rtt_s: Number | None
    """Longest smoothed, and longest minimum, RTT."""
    retransmitted: Count
    """Segments sent again."""
    delivered_bytes: Count
    """Bytes acknowledged."""
