"""Every rule of the verdict: silent where all is well, `suspect` past one threshold, `invalid` past the second."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.core.spec.run_spec import Part, RunSpec
from testbed.orchestrator.observation.verdict.judge import Judge
from topologies import two_regions

Event = dict[str, Any]
LINK = {"name": "oregon-virginia", "from": "oregon", "to": "virginia"}


def spec() -> RunSpec:
    part = Part("x", "x.X")
    topology = two_regions.build(rate="100 Mbit/s", rtt="67 ms")
    return RunSpec(topology=topology, workload=part, strategy=part, compressor=part, device=part, steps=3)


def measurement(
    stage: str = "busy",
    rate_bit_s: float | None = 100e6,
    rtt_s: float | None = 0.0671,
    delay_s: float | None = 0.0336,
) -> Event:
    found = {"rate_bit_s": rate_bit_s, "rtt_s": rtt_s, "delay_s": delay_s, "probes": 20, "probes_span_s": 0.2}
    return {"t_s": -1.0, "event": "measurement", **LINK, "stage": stage, **found}


def link(busy_s: float = 0.0, busy_bytes: float = 0.0) -> Event:
    return {"t_s": 1.0, "event": "link", **LINK, "wan": True, "busy_s": busy_s, "busy_bytes": busy_bytes}


def access(wire_bytes: int) -> Event:
    ends = {"name": "oregon-0-oregon", "from": "oregon-0", "to": "oregon"}
    return {"t_s": 1.0, "event": "link", **ends, "wan": False, "wire_bytes": wire_bytes, "busy_s": 0, "busy_bytes": 0}


def host(idle: float = 0.5, steal_s: float = 0.0, late_s: float = 0.0) -> Event:
    figures = {"cpu_idle_ratio": idle, "steal_s": steal_s, "interval_s": 2.0, "sampler_late_s": late_s}
    return {"t_s": 1.0, "event": "host", **figures}


def delay_line(late_p99_s: float = 1e-4, queue_drops: int = 0, t_s: float = 1.0) -> Event:
    counts = {"packets": 1000, "drops": 0, "queue_drops": queue_drops}
    return {"t_s": t_s, "event": "delay_line", **LINK, "late_p99_s": late_p99_s, **counts}


def rtt(rtt_s: float, t_s: float = 1.0, forward_share: float = 0.5) -> Event:
    ways = {"forward_s": rtt_s * forward_share, "backward_s": rtt_s * (1 - forward_share)}
    return {"t_s": t_s, "event": "rtt", "name": LINK["name"], "rtt_s": rtt_s, **ways}


def node(throttled_s: float) -> Event:
    return {"t_s": 1.0, "event": "node", "node": "oregon-0", "throttled_s": throttled_s}


def change(t_s: float, what: str, **after: float) -> Event:
    return {"t_s": t_s, "event": "change", "what": what, **LINK, "after": after}


def step(payload_bytes: int) -> Event:
    return {"t_s": 1.0, "event": "step", "payload_bytes": payload_bytes}


def met(node: str = "a", training_bytes: int = 0, refused: int = 0) -> Event:
    counts = {"requests": 5, "put_bytes": training_bytes, "training_bytes": training_bytes, "refused": refused}
    return {"t_s": 2.0, "event": "rendezvous", "node": node, **counts}


END: Event = {"t_s": 2.0, "event": "schedule", "what": "end"}
GOOD: list[Event] = [
    measurement("idle"),
    measurement(),
    link(1.0, 12.5e6),
    host(),
    delay_line(),
    *[rtt(0.0672)] * 6,
    step(1000),
    access(1050),
    END,
]


def verdict(*events: Event) -> tuple[str, list[str]]:
    judge = Judge(spec())
    for event in events:
        judge.add(event)
    return judge.verdict()


def test_a_good_run_is_valid_without_a_reason() -> None:
    assert verdict(*GOOD) == ("valid", [])


@pytest.mark.parametrize(
    ("events", "expected", "word"),
    [
        ([measurement(rate_bit_s=97e6)], "suspect", "measured 97 Mbit/s (busy)"),
        ([measurement(rate_bit_s=94e6)], "invalid", "measured 94 Mbit/s (busy)"),
        ([measurement(rate_bit_s=106e6)], "invalid", "106 Mbit/s"),
        ([link(0.05, 0.05 * 12.5e6 * 0.93)] * 20, "suspect", "(training)"),
        ([link(0.05, 0.05 * 12.5e6 * 0.8)] * 20, "invalid", "(training)"),
        ([{**measurement(), "burst": {"gaps": {"error_p90_ratio": 1.3}}}], "suspect", "gaps between packets"),
        ([measurement(rtt_s=0.069)], "suspect", "measured 69 ms (busy)"),
        ([measurement(rtt_s=0.072)], "invalid", "measured 72 ms (busy)"),
        ([measurement(rtt_s=0.0335)], "invalid", "measured 33.5 ms"),
        (
            [measurement(delay_s=0.035)],
            "suspect",
            "from oregon to virginia: asked a one-way delay of 33.5 ms, measured 35",
        ),
        ([measurement(delay_s=0.067)], "invalid", "asked a one-way delay of 33.5 ms, measured 67 ms (busy)"),
        ([delay_line(3e-3)] * 1 + [delay_line()] * 8, "suspect", "too late in 10%"),
        ([delay_line(3e-3)] * 4 + [delay_line()] * 5, "invalid", "too late in 40%"),
        ([delay_line(queue_drops=3)], "invalid", "no room for 3 packets"),
        ([host(0.0)] * 9, "suspect", "idle only 5.0%"),
        ([host(0.0)] * 99, "invalid", "idle only 0.5%"),
        ([{**host(), "cpu_pressure_s": seconds} for seconds in (1.65, 3.3)], "suspect", "55% of the time (pressure)"),
        ([{**host(), "cpu_pressure_s": 2.0 * n} for n in range(1, 8)], "invalid", "88% of the time (pressure)"),
        ([{**host(), "softnet_dropped": n} for n in (0, 3)], "invalid", "3 packets found no room"),
        ([node(throttled_s=0.05)], "suspect", "a quota of its cgroup"),
        ([node(throttled_s=0.5)], "invalid", "a quota of its cgroup"),
        ([host(steal_s=0.1)], "suspect", "steal"),
        ([host(steal_s=0.5)], "invalid", "steal"),
        ([host(late_s=1.5)], "suspect", "1.5 s late"),
        ([step(1000)], "invalid", "traffic went around"),
        ([met(training_bytes=40_000), met("b", training_bytes=40_000)], "invalid", "80000 bytes at the rendezvous"),
        ([met(refused=2)], "suspect", "node a: 2 of its requests"),
        ([{"event": "foreign_interface", "t_s": -1.0, "node": "oregon-0", "interface": "eth7"}], "invalid", "eth7"),
        ([{"event": "start", "t_s": 0.2, "rank": 2, "late_s": 0.1}], "suspect", "rank 2 began 100 ms late"),
        ([{"event": "start", "t_s": 1.2, "rank": 2, "late_s": 0.6}], "invalid", "rank 2 began"),
        (
            [{"event": "done", "t_s": 2.0, "rank": rank, "parameters_crc32": crc} for rank, crc in ((0, 1), (1, 2))],
            "invalid",
            "different parameters; the strategy has to make them equal in `finish`, or to declare `agreement`",
        ),
    ],
)
def test_each_rule_fires(events: list[Event], expected: str, word: str) -> None:
    found, reasons = verdict(*events, *GOOD)
    assert found == expected, reasons
    assert any(word in reason for reason in reasons), reasons


@pytest.mark.parametrize(
    ("steal_s", "expected"), [(0.1, "valid"), (0.3, "suspect"), (0.5, "suspect"), (0.9, "invalid")]
)
def test_what_another_machine_took_of_a_paced_run_counts_for_less(steal_s: float, expected: str) -> None:
    """Of two seconds: its lateness is known, and judged."""
    paced = {**step(0), "step": 1, "rank": 0, "step_s": 1.0, "late_s": 0.0, "queued_s": 0.0}
    found, reasons = verdict(*(event for event in GOOD if event["event"] != "host"), host(steal_s=steal_s), paced)
    assert found == expected, reasons
    assert all("steal" in reason for reason in reasons)


def test_the_round_trip_in_training_is_judged_by_its_least_since_probes_queue() -> None:
    queued = [rtt(0.130)] * 50
    assert verdict(*GOOD, *queued)[0] == "valid"
    assert verdict(*(e for e in GOOD if e["event"] != "rtt"), *queued)[0] == "invalid"


def test_a_link_that_is_full_both_ways_need_never_be_free_both_ways_at_once() -> None:
    events, full = [e for e in GOOD if e["event"] != "rtt"], 0.1335
    by_turns = [rtt(full, forward_share=share) for share in (0.0335 / full, 1 - 0.0335 / full)]
    assert verdict(*events, *by_turns * 25)[0] == "valid"
    found, reasons = verdict(*events, *[rtt(0.1, forward_share=share) for share in (0.36, 0.64)] * 25)
    assert found == "invalid" and any("asked a round trip of 67 ms, measured 72 ms" in reason for reason in reasons)


def test_a_round_trip_that_is_right_with_its_ways_wrong_is_invalid() -> None:
    events = [e for e in GOOD if e["event"] != "rtt"]
    found, reasons = verdict(*events, *[rtt(0.067, forward_share=1.0)] * 50)
    assert found == "invalid"
    assert any("from virginia to oregon: asked a one-way delay of 33.5 ms, measured 0 ns" in r for r in reasons), (
        reasons
    )


def test_what_came_before_the_first_step_is_no_evidence_of_training() -> None:
    assert verdict(*GOOD, *[delay_line(0.5, t_s=-1.0)] * 50, rtt(0.01, t_s=-1.0))[0] == "valid"


def test_too_short_a_time_with_a_full_queue_says_nothing() -> None:
    events = [e for e in GOOD if e["event"] != "link" or not e["wan"]]
    assert verdict(*events, link(0.2, 1.0))[0] == "valid"


def test_a_scattered_rate_in_training_is_not_blamed_beyond_its_error() -> None:
    """Windows of some milliseconds scatter by a burst's worth; a mean within two standard errors is no finding."""
    scattered = [link(0.05, 0.05 * 12.5e6 * share) for share in (0.8, 1.1) * 10]
    assert verdict(*(e for e in GOOD if e["event"] != "link" or not e["wan"]), *scattered)[0] == "valid"


def test_loss_is_judged_by_what_chance_allows() -> None:
    lossy = {**delay_line(), "packets": 100_000, "drops": 20}
    assert verdict(*GOOD, lossy)[0] == "invalid", "none was asked for"


def test_what_could_not_be_measured_or_read_is_not_vouched_for() -> None:
    assert verdict(*GOOD, measurement(rate_bit_s=None))[0] == "suspect"
    assert verdict(*(e for e in GOOD if e["event"] != "rtt"))[0] == "suspect"
    found, reasons = verdict(*GOOD, {"event": "step", "t_s": 1.0}, {"event": "rtt", "name": "x", "t_s": None})
    assert (found, reasons) == ("suspect", ["2 events of the record could not be read"])


def test_a_run_whose_cores_nobody_watched_is_suspect() -> None:
    found, reasons = verdict(*(e for e in GOOD if e["event"] != "host"))
    assert (found, reasons) == ("suspect", ["the cores were not observed during training"])


def test_grave_reasons_come_first() -> None:
    _, reasons = verdict(host(late_s=1.5), measurement(rate_bit_s=10e6), *GOOD)
    assert "10 Mbit/s" in reasons[0] and len(reasons) == 2


def test_figures_are_held_against_what_the_schedule_asked_at_their_time() -> None:
    slower = [
        change(10.0, "set", rate_bit_s=50e6),
        *[{**link(0.05, 0.05 * 12.5e6 / 2), "t_s": 20.0}] * 20,
    ]
    assert verdict(*slower, *GOOD)[0] == "valid"
    assert verdict(*slower[1:], *GOOD)[0] == "invalid", "without the change, half the rate is a fault"
    longer = [change(10.0, "set", delay_s=0.1), *[rtt(0.1336, 20.0, 0.1 / 0.1336)] * 6]
    assert verdict(*longer, *GOOD)[0] == "valid"
    assert verdict(*longer[1:], *GOOD[:5], END)[0] == "invalid"


def test_what_is_seen_while_a_link_changes_or_is_down_says_nothing() -> None:
    strange = [*[{**link(0.05, 0.0), "t_s": 10.5}] * 20, *[rtt(5.0, 10.5)] * 6]
    assert verdict(*GOOD, change(10.0, "down"), *strange)[0] == "valid"
    assert verdict(*GOOD, change(10.0, "down"), change(10.2, "up"), *strange)[0] == "valid"
    late = [{**event, "t_s": 15.0} for event in strange]
    assert verdict(*GOOD, change(10.0, "down"), change(10.2, "up"), *late)[0] == "invalid"


def test_losses_are_held_against_their_own_variance() -> None:
    lost = {**delay_line(), "packets": 10_000, "drops": 130, "asked_drops": 100.0, "asked_drops_variance": 99.0}
    assert verdict(lost, *GOOD[:4], *GOOD[5:])[0] == "valid"
    assert verdict({**lost, "drops": 160}, *GOOD[:4], *GOOD[5:])[0] == "invalid"
    bursty = {**lost, "drops": 160, "asked_drops_variance": 1500.0}
    assert verdict(bursty, *GOOD[:4], *GOOD[5:])[0] == "valid"
