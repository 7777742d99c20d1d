from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from testbed.core.record.summary import LINK_KEYS, SUMMARY_KEYS, empty_summary, summary_faults

Summary = dict[str, Any]


@pytest.fixture
def summary() -> Summary:
    link = dict.fromkeys(LINK_KEYS)
    return {**empty_summary(), "status": "completed", "verdict": "valid", "links": [link]}


def test_an_empty_summary_has_every_key_in_order_and_null() -> None:
    found = empty_summary()
    assert list(found) == list(SUMMARY_KEYS)
    assert found["schema_version"] == 1
    for key, nested in SUMMARY_KEYS.items():
        if nested:
            assert list(found[key].items()) == [(name, None) for name in nested]


def test_two_empty_summaries_share_nothing() -> None:
    first = empty_summary()
    first["bytes"]["payload"] = 1
    first["reasons"].append("x")
    assert empty_summary()["bytes"]["payload"] is None
    assert empty_summary()["reasons"] == []


def test_a_whole_summary_has_no_faults(summary: Summary) -> None:
    assert summary_faults(summary) == []


@pytest.mark.parametrize("key", [key for key in SUMMARY_KEYS if key not in ("status", "verdict")])
def test_a_missing_key_is_a_fault(summary: Summary, key: str) -> None:
    del summary[key]
    assert summary_faults(summary) == [f"summary lacks {key!r}"]


CHANGES: list[tuple[Callable[[Summary], Any], str]] = [
    (lambda s: s.update(extra=1), "which the interface does not name"),
    (lambda s: s["bytes"].pop("dense"), "'bytes' must hold exactly payload, wire_total, wire_wan, dense"),
    (lambda s: s["step_time_s"].update(p99=1), "'step_time_s' must hold exactly mean, p50, p95"),
    (lambda s: s["links"][0].pop("wan"), "a link of the summary must hold exactly"),
    (lambda s: s.update(status="done"), "status 'done' is none of"),
    (lambda s: s.update(verdict="good"), "verdict 'good' is none of"),
]


@pytest.mark.parametrize(("change", "fault"), CHANGES)
def test_a_wrong_form_is_a_fault(summary: Summary, change: Callable[[Summary], Any], fault: str) -> None:
    broken = copy.deepcopy(summary)
    change(broken)
    found = summary_faults(broken)
    assert len(found) == 1
    assert fault in found[0]
