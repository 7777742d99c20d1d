"""When a delay line's packets are due, and what counts as late."""

from __future__ import annotations

import pytest

from testbed.orchestrator.emulation.shapers.due_times import DueTimes


def test_a_packet_arrived_when_its_stamp_says() -> None:
    due_times = DueTimes(0.0)
    assert due_times.arrived_s(99.5, 100.0) == 99.5
    assert due_times.arrived_s(100.001, 100.0) == 100.0, "the wall clock was set"
    assert due_times.arrived_s(None, 100.0) == 100.0
    assert due_times.figures()["late_max_s"] is None


def test_a_packet_whose_stamp_is_too_old_is_late_by_all_of_it() -> None:
    due_times = DueTimes(0.0)
    assert due_times.arrived_s(97.0, 100.0) == 100.0
    assert due_times.figures()["late_max_s"] == pytest.approx(3.0)


def test_no_packet_is_due_before_an_earlier_one() -> None:
    due_times = DueTimes(0.0)
    assert due_times.due_s(1.0, 0.05) == 1.05
    assert due_times.due_s(1.01, 0.01) == 1.05
    figures = due_times.figures()
    assert figures["delay_mean_s"] == pytest.approx(0.045), "the second waited for the first"
    assert figures["delay_deviation_s"] == pytest.approx(0.005)


def test_figures_are_of_the_time_since_the_last() -> None:
    due_times = DueTimes(0.0)
    due_times.due_s(1.0, 0.05)
    due_times.late_s += [1e-3] * 98 + [2e-3, 5e-3]
    figures = due_times.figures()
    assert (figures["late_p50_s"], figures["late_p99_s"], figures["late_max_s"]) == (1e-3, 5e-3, 5e-3)
    assert set(due_times.figures().values()) == {None}
