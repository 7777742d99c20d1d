"""Queues watched: where a flow's window begins; and medians."""

from __future__ import annotations

from experiments.common import testnet


def test_the_window_of_a_flow_begins_after_a_stretch_without_drops() -> None:
    watch = testnet.QueueWatch(lambda: None)  # type: ignore[arg-type, return-value]
    drops = {1.0: 3, 4.5: 4, 5.2: 5, 9.0: 6}
    watch.samples = [testnet.Sample(tick / 10, 0, 0, sum(at_s <= tick / 10 for at_s in drops)) for tick in range(120)]
    assert watch.calm_from_s(3.0, 8.0, 1.0) == 3.0
    assert watch.calm_from_s(4.0, 8.0, 1.0) == 4.0
    assert watch.calm_from_s(4.6, 8.0, 1.0) == 6.2  # the second falls into the calm after the first
    assert watch.calm_from_s(5.0, 5.5, 1.0) == 5.5
    assert watch.calm_from_s(6.5, 8.0, 1.0) == 6.5
    assert watch.drops(4.0, 6.0) == 2


def test_the_middle_of_an_even_number_of_values_is_between_two() -> None:
    assert testnet.median([1.0, 2.0, 4.0, 9.0]) == 3.0
    assert testnet.median([]) is None
