"""Links between ranks: as a topology asks for, and as probes have found them."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.core.parallelism.links import (
    Line,
    asked_links,
    fitted,
    links_from_json,
    links_to_json,
    probe_rounds,
    probed_links,
)
from testbed.core.parallelism.problem import LinkMatrix
from topologies import two_regions
from topologies.hierarchical import build as hierarchical


def test_asked_links_are_the_delays_on_the_way_and_its_least_rate_without_headers() -> None:
    topology = two_regions.build(workers=4, rate="50 Mbit/s", rtt="40 ms")
    links = asked_links(topology)
    access = topology.access_links[0].forward
    assert len(links.members) == 2
    assert links.alpha_s[0][3] == pytest.approx(0.02 + 2 * access.delay_s)
    assert links.rate_bit_s[0][3] == pytest.approx(50e6 * 1448 / 1514)
    assert links.alpha_s[0][1] == pytest.approx(2 * access.delay_s)
    assert links.rate_bit_s[0][1] == pytest.approx(access.rate_bit_s * 1448 / 1514)


def test_asked_links_of_a_topology_with_a_way_over_other_regions() -> None:
    topology = hierarchical(workers=8)
    links = asked_links(topology)
    longest_s = max(map(max, links.alpha_s))
    assert longest_s > max(link.forward.delay_s for link in topology.wan_links)


@given(st.floats(1e-6, 1.0), st.floats(1e4, 1e10))
def test_a_line_without_noise_is_found(alpha_s: float, rate_bit_s: float) -> None:
    sizes = (1, 16_384, 262_144, 4_194_304)
    line = fitted({size: [2 * alpha_s + 8 * size / rate_bit_s] * 3 for size in sizes})
    largest_s = 2 * alpha_s + 8 * sizes[-1] / rate_bit_s
    # what one part of a sum of floats is known to: its share of the sum
    assert line.alpha_s == pytest.approx(alpha_s, rel=1e-6, abs=1e-9 * largest_s)
    if 8 * sizes[-1] / rate_bit_s > 1e-3 * largest_s:
        assert line.rate_bit_s == pytest.approx(rate_bit_s, rel=1e-6)


def test_a_small_messages_noise_does_not_drown_in_a_large_ones() -> None:
    drawn = random.Random(3)
    sizes = (1, 65_536, 1_048_576)
    tried = {s: [(2 * 0.01 + 8 * s / 50e6) * drawn.uniform(0.98, 1.02) for _ in range(3)] for s in sizes}
    line = fitted(tried)
    assert line.alpha_s == pytest.approx(0.01, rel=0.05)
    assert line.rate_bit_s == pytest.approx(50e6, rel=0.05)


def test_one_late_message_of_three_does_not_count() -> None:
    line = fitted({1: [0.02, 0.02, 9.0], 1_000_000: [0.18, 0.18, 0.18]})
    assert (line.alpha_s, line.rate_bit_s) == (pytest.approx(0.01, rel=1e-4), pytest.approx(50e6, rel=1e-4))


def test_noise_leaves_neither_negative_latency_nor_a_byte_that_takes_no_time() -> None:
    falling = fitted({1: [0.2], 1_000: [0.1]})
    assert falling.rate_bit_s == pytest.approx(8 * 1_000 / 0.1)
    assert falling.alpha_s >= 0
    assert fitted({100: [0.01], 1_000: [1.0]}).alpha_s == 0


def test_too_few_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="of 1 sizes; a line needs two"):
        fitted({1: [0.1]})
    with pytest.raises(ValueError, match="of 9 bytes: none"):
        fitted({1: [0.1], 9: []})


def test_each_two_regions_are_probed_by_one_pair_and_each_with_two_ranks_inside() -> None:
    assert probe_rounds("aaabbc") == [[(0, 3)], [(0, 5), (3, 4)], [(3, 0)], [(3, 5), (0, 1)], [(5, 0)], [(5, 3)]]
    assert probe_rounds("a") == []
    assert probe_rounds("aa") == [[(0, 1)]]


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=9))
def test_what_is_probed_suffices_for_all_pairs_and_no_region_has_part_twice_at_a_time(regions: list[str]) -> None:
    rounds = probe_rounds(regions)
    for pairs in rounds:
        busy = [region for pair in pairs for region in {regions[rank] for rank in pair}]
        assert len(busy) == len(set(busy))
    lines = {pair: Line(0.5, 8e6) for pairs in rounds for pair in pairs}
    links = probed_links(regions, lines)
    assert links.regions == tuple(regions)
    assert all(links.rate_bit_s[i][j] == 8e6 for i in range(len(regions)) for j in range(len(regions)) if i != j)


def test_pairs_have_the_median_of_what_was_found_between_their_regions() -> None:
    lines = {(0, 2): Line(0.1, 1e6), (1, 2): Line(0.3, 3e6), (2, 0): Line(0.2, 5e6), (0, 1): Line(0.0, 1e9)}
    links = probed_links("aab", lines)
    assert (links.alpha_s[0][2], links.alpha_s[1][2], links.alpha_s[2][1]) == (0.2, 0.2, 0.2)
    assert (links.rate_bit_s[1][0], links.rate_bit_s[2][1]) == (1e9, 5e6)


def test_two_regions_between_which_nothing_was_probed_are_named() -> None:
    with pytest.raises(ValueError, match="no pair from b to a"):
        probed_links("ab", {(0, 1): Line(0.1, 1e6)})


def test_links_pass_through_json() -> None:
    links = LinkMatrix.of_regions("aab", lambda a, b: 0.1 * (a < b), lambda a, b: 1e6 if a < b else 2e6)
    assert links_from_json(json.loads(json.dumps(links_to_json(links)))) == links
    with pytest.raises(ValueError, match="not links between ranks: KeyError"):
        links_from_json({"regions": ["a"]})
    with pytest.raises(ValueError, match=r"alpha_s\[0\]\[1\]=-1"):
        links_from_json({"regions": ["a", "b"], "alpha_s": [[0, -1], [0, 0]], "rate_bit_s": [[1, 1], [1, 1]]})
