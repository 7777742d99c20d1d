from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from testbed.core.record.events.run import PHASES
from testbed.core.record.metric_samples import About, Totals, constant_samples, samples_of
from testbed.core.record.metrics import INCREMENTS, METRICS
from testbed.core.spec.run_spec import Part, RunSpec
from tests.unit.analysis.synthetic import make_spec

STEP: dict[str, Any] = {
    "event": "step",
    "t_s": 1.0,
    "rank": 3,
    "step": 0,
    "loss": 2.5,
    "step_s": 0.25,
    "phase_s": dict.fromkeys(PHASES, 0.03125),
    "payload_bytes": 1000,
    "samples": 32,
}
LINK = {"name": "a-b", "from": "a", "to": "b"}
SOFTNET = {"softnet_processed": 900, "softnet_dropped": 0, "softnet_squeezed": 2}
EVENTS: dict[str, dict[str, Any]] = {
    "step": STEP,
    "payload": {"event": "payload", "rank": 3, "payload_bytes": 500, "elements": 1000},
    "evaluation": {"event": "evaluation", "rank": 0, "step": 1, "name": "accuracy", "value": 0.9},
    "link": {"event": "link", **LINK, "wan": True, "wire_bytes": 9, "packets": 8, "drops": 0, "backlog_bytes": 1},
    "change": {"event": "change", **LINK, "what": "set", "before": {"delay_s": 0.01}, "after": {"delay_s": 0.02}},
    "rtt": {"event": "rtt", "name": "a-b", "rtt_s": 0.067},
    "delay_line": {"event": "delay_line", **LINK, "late_p99_s": 1e-4, "queue_drops": 0},
    "tcp": {"event": "tcp", "node": "a-0", "rtt_s": 0.07, "min_rtt_s": 0.067, "retransmitted": 2},
    "node": {"event": "node", "node": "a-0", "cpu_s": 1.5, "throttled_s": 0.0, "memory_bytes": 1e6},
    "host": {"event": "host", "cpu_idle_ratio": 0.5, "cpu_pressure_s": 0.1, "sampler_late_s": 0.001, **SOFTNET},
}


def value(totals: Totals, name: str, **labels: str) -> float:
    return totals.values[name, tuple(labels.items())]


@pytest.mark.parametrize("name", METRICS)
def test_names_follow_prometheus_conventions(name: str) -> None:
    metric = METRICS[name]
    assert re.fullmatch(r"longhaul_[a-z_]+", name)
    assert not name.endswith("_total"), "the series bears it, the family does not"
    assert metric.series == (f"{name}_total" if metric.kind == "counter" else name)
    forbidden = {"step", "tensor"} if metric.name == "longhaul_run_info" else {"step", "tensor", "seed"}
    assert not set(metric.labels) & forbidden
    assert metric.help.strip()


@pytest.mark.parametrize("kind", EVENTS)
def test_samples_are_of_known_metrics_with_their_labels(kind: str) -> None:
    samples = list(samples_of(EVENTS[kind]))
    assert samples
    for name, labels, _ in samples:
        assert tuple(key for key, _ in labels) == METRICS[name].labels


@pytest.mark.parametrize("kind", EVENTS)
def test_missing_values_give_no_sample(kind: str) -> None:
    empty = {k: None if isinstance(v, int | float) and k != "rank" else v for k, v in EVENTS[kind].items()}
    if kind == "step":
        empty["phase_s"] = {}
    if kind == "change":
        empty["after"] = {}
    changed = Totals().add(empty)
    assert [name for name, _, _ in changed] == (["longhaul_train_steps"] if kind == "step" else [])


def test_increments_are_counters() -> None:
    assert {METRICS[name].kind for name in INCREMENTS} == {"counter"}


def test_steps_add_up_for_each_rank() -> None:
    totals = Totals()
    for _ in range(3):
        totals.add(STEP)
    totals.add({**STEP, "rank": 1, "payload_bytes": 7})
    assert value(totals, "longhaul_payload_bytes", rank="3") == 3000
    assert value(totals, "longhaul_payload_bytes", rank="1") == 7
    assert value(totals, "longhaul_train_steps", rank="3") == 3
    assert value(totals, "longhaul_train_phase_seconds", rank="3", phase="forward") == 3 * 0.03125
    assert value(totals, "longhaul_train_loss", rank="3") == 2.5, "a gauge takes the last value"


def test_what_a_script_s_hook_sends_adds_up() -> None:
    totals = Totals()
    for _ in range(3):
        totals.add(EVENTS["payload"])
    assert value(totals, "longhaul_payload_bytes", rank="3") == 1500


def test_kernel_counters_are_taken_as_they_are() -> None:
    totals = Totals()
    totals.add(EVENTS["link"])
    totals.add({**EVENTS["link"], "wire_bytes": 20})
    assert value(totals, "longhaul_link_transmit_bytes", link="a-b", source="a", target="b") == 20


def test_add_returns_the_values_as_they_stand() -> None:
    totals = Totals()
    totals.add(STEP)
    changed = {name: value for name, labels, value in totals.add(STEP)}
    assert changed["longhaul_train_samples"] == 64


def test_an_event_without_samples_changes_nothing() -> None:
    totals = Totals()
    assert totals.add({"event": "schedule", "t_s": 0.0, "what": "go", "detail": ""}) == []
    assert totals.values == {}


def info(spec: RunSpec, code_hash: str = "c0de", kind: str = "emulated") -> dict[str, str]:
    about = About(kind, "valid", code_hash, None)
    (labels,) = (dict(labels) for name, labels, _ in constant_samples(spec, about) if name == "longhaul_run_info")
    assert tuple(labels) == METRICS["longhaul_run_info"].labels
    return labels


def test_a_setting_is_all_that_was_asked_but_compressor_and_seed() -> None:
    spec = make_spec()
    setting = info(spec)["setting"]
    assert info(dataclasses.replace(make_spec("int8"), seed=7))["setting"] == setting
    for other in (dataclasses.replace(spec, steps=9), dataclasses.replace(spec, tcp="reno")):
        assert info(other)["setting"] != setting
    assert info(spec, "f00d")["setting"] != setting


def test_a_compressor_s_parameters_are_told_in_so_many_letters() -> None:
    assert info(make_spec())["parameters"] == "density=0.01"
    long = [dataclasses.replace(make_spec(), compressor=Part("policy", "x", {"rules": "r" * 90 + end})) for end in "ab"]
    first, second = (info(spec)["parameters"] for spec in long)
    assert first != second and len(first) == len(second) == 64 and first.startswith("rules=rrr")


def test_of_links_that_are_not_there_nothing_is_told() -> None:
    names = {
        kind: {name for name, _, _ in constant_samples(make_spec(), About(kind, "valid", "c0de", 1.0))}
        for kind in ("emulated", "measured")
    }
    assert {name.split("_")[2] for name in names["emulated"] - names["measured"]} == {"configured", "asked"}
    assert not any("_link_" in name for name in names["measured"])
