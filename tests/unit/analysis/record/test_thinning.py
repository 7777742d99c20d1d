"""Thinned curves are the curves, as far as anybody can see."""

from __future__ import annotations

from testbed.analysis.record.thinning import thin


def test_thinning_keeps_peaks() -> None:
    points = [(float(x), 0.0) for x in range(100_000)]
    points[77_777] = (77_777.0, 9.0)
    kept = thin(points)
    assert len(kept) <= 600
    assert (77_777.0, 9.0) in kept
    assert kept == sorted(kept)
    assert thin(points[:600]) == points[:600]


def test_thinning_keeps_the_ends_and_the_order_of_a_stepped_line() -> None:
    """Two points at a time, the second with the value from then on; of values that go down, and stay."""
    points = [(0.0, 1000.0)]
    for second in range(1, 1000):
        points += [(float(second), 1001.0 - second), (float(second), 1000.0 - second)]
    points.append((5000.0, 1.0))
    kept = thin(points)
    assert (kept[0], kept[-1]) == (points[0], points[-1]) and len(kept) <= 600
    places = {point: place for place, point in enumerate(points)}
    assert [places[point] for point in kept] == sorted(places[point] for point in kept)
