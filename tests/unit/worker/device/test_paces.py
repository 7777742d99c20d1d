"""Dilations that a pilot orders of a training that goes on."""

from __future__ import annotations

from testbed.worker.device.paces import Paces


def test_each_holds_from_its_step_on() -> None:
    paces = Paces()
    assert paces.at(1) is None
    paces.order(5, 2.0)
    paces.order(9, 3.5)
    assert [paces.at(step) for step in (4, 5, 8, 9, 100)] == [None, 2.0, 2.0, 3.5, 3.5]


def test_of_two_for_one_step_the_later_counts() -> None:
    paces = Paces()
    paces.order(5, 2.0)
    paces.order(5, 1.5)
    assert paces.at(6) == 1.5
