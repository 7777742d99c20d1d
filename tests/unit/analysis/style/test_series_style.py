"""Any two series of a panel are told apart: by colour, with deuteranopia and in grey too, or by marker and dash."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.analysis.figures.web import SYMBOLS
from testbed.analysis.style import series_style
from testbed.analysis.style.color_difference import ciede2000, difference
from testbed.analysis.style.series_style import (
    COLORS,
    DASHES,
    HATCHES,
    MARKERS,
    MAX_SERIES,
    MIN_DIFFERENCE,
    ON_DARK,
    Method,
    SeriesStyle,
    are_told_apart,
    style_of,
    styles_for,
)

CONF = Path(__file__).resolve().parents[4] / "experiments" / "conf"
# Sharma, Wu, Dalal (2005), table 1: (L, a, b) of two colours, and their difference.
PUBLISHED = (
    ((50.0, 2.6772, -79.7751), (50.0, 0.0, -82.7485), 2.0425),
    ((50.0, 3.1571, -77.2803), (50.0, 0.0, -82.7485), 2.8615),
    ((50.0, -1.3802, -84.2814), (50.0, 0.0, -82.7485), 1.0000),
    ((50.0, 0.0, 0.0), (50.0, -1.0, 2.0), 2.3669),
    ((50.0, 2.4900, -0.0010), (50.0, -2.4900, 0.0009), 7.1792),
    ((50.0, 2.4900, -0.0010), (50.0, -2.4900, 0.0011), 7.2195),
    ((50.0, -0.0010, 2.4900), (50.0, 0.0009, -2.4900), 4.8045),
    ((50.0, 2.5, 0.0), (50.0, 0.0, -2.5), 4.3065),
    ((50.0, 2.5, 0.0), (73.0, 25.0, -18.0), 27.1492),
    ((50.0, 2.5, 0.0), (61.0, -5.0, 29.0), 22.8977),
    ((50.0, 2.5, 0.0), (56.0, -27.0, -3.0), 31.9030),
    ((50.0, 2.5, 0.0), (58.0, 24.0, 15.0), 19.4535),
    ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
    ((63.0109, -31.0961, -5.8663), (62.8187, -29.7946, -4.0864), 1.2630),
    ((22.7233, 20.0904, -46.6940), (23.0331, 14.9730, -42.5619), 2.0373),
    ((90.8027, -2.0831, 1.4410), (91.1528, -1.6435, 0.0447), 1.4441),
    ((6.7747, -0.2908, -2.4247), (5.8714, -0.0985, -2.2286), 0.6377),
    ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
)


@pytest.mark.parametrize(("one", "other", "published"), PUBLISHED)
def test_the_difference_of_colours_is_the_published_one(
    one: tuple[float, float, float], other: tuple[float, float, float], published: float
) -> None:
    assert round(ciede2000(one, other), 4) == published
    assert round(ciede2000(other, one), 4) == published


def test_a_green_and_a_red_of_one_lightness_are_alike_with_deuteranopia_alone() -> None:
    assert difference("#C8281E", "#6B6B00") > MIN_DIFFERENCE > difference("#C8281E", "#6B6B00", "deuteranopia")
    assert difference("#808080", "#808080") == 0 and difference("#000000", "#FFFFFF", "grey") > 90


@pytest.mark.parametrize("is_dark", [False, True])
def test_any_two_colours_differ_with_deuteranopia_too(is_dark: bool) -> None:
    colors = [ON_DARK.get(color, color) if is_dark else color for color in COLORS]
    for one, other in itertools.combinations(colors, 2):
        for vision in ("normal", "deuteranopia"):
            assert difference(one, other, vision) >= MIN_DIFFERENCE, (one, other, vision)


def test_the_first_four_colours_differ_in_grey() -> None:
    for one, other in itertools.combinations(COLORS[:4], 2):
        assert difference(one, other, "grey") >= MIN_DIFFERENCE


def test_there_are_as_many_markers_and_dashes_as_series_and_both_backends_know_them() -> None:
    for kinds in (COLORS, MARKERS, DASHES, HATCHES):
        assert len(set(kinds)) == len(kinds) == MAX_SERIES
    assert set(SYMBOLS) == set(MARKERS) and len(set(SYMBOLS.values())) == MAX_SERIES


methods = st.builds(
    Method,
    st.sampled_from([*series_style.STRATEGIES, "mine", "gaia", "other"]),
    st.sampled_from([*series_style.COMPRESSORS, "mine", "theirs"]),
    st.sampled_from(["", "density=0.01", "density=0.1", "steps=20"]),
)


@given(st.lists(methods, min_size=1, max_size=MAX_SERIES, unique=True), st.randoms())
def test_any_two_series_of_a_panel_are_told_apart(panel: list[Method], chance: random.Random) -> None:
    styles = styles_for(panel)
    for one, other in itertools.combinations(styles.values(), 2):
        has_own_mark = one.marker != other.marker and one.dash != other.dash
        differences = [difference(one.color, other.color, vision) for vision in ("normal", "deuteranopia", "grey")]
        assert has_own_mark or min(differences) >= 15, (one, other)
    again = list(panel)
    chance.shuffle(again)
    assert styles_for(again) == styles


def test_colour_says_the_strategy_and_marker_and_dash_the_compressor() -> None:
    panel = [
        Method(strategy, compressor) for strategy in ("ddp", "diloco", "gossip") for compressor in ("none", "topk")
    ]
    styles = styles_for(panel)
    for one, other in itertools.combinations(panel, 2):
        assert (styles[one].color == styles[other].color) == (one.strategy == other.strategy)
        assert (styles[one].marker == styles[other].marker) == (one.compressor == other.compressor)
        assert (styles[one].dash == styles[other].dash) == (one.compressor == other.compressor)
    assert styles[Method("ddp", "topk")] == style_of("ddp", "topk")


def test_a_part_that_all_share_says_nothing_so_its_channel_follows_the_other() -> None:
    compressors = styles_for([Method("ddp", name) for name in ("none", "topk", "int8")])
    strategies = styles_for([Method(name, "topk") for name in ("ddp", "local_sgd", "diloco")])
    for styles in (compressors, strategies):
        assert len({style.color for style in styles.values()}) == len({style.marker for style in styles.values()}) == 3


def test_other_panels_get_other_styles_while_there_are_some() -> None:
    first = styles_for([Method("ddp", name) for name in series_style.COMPRESSORS[:8]])
    second = styles_for([Method("ddp", name) for name in series_style.COMPRESSORS[8:16]], list(first.values()))
    assert not set(first.values()) & set(second.values())


def test_nine_series_are_no_panel() -> None:
    with pytest.raises(ValueError, match="9 series in a panel; at most 8"):
        styles_for([Method("ddp", f"mine_{number}") for number in range(9)])


def test_one_channel_alone_tells_nothing_apart() -> None:
    solid = SeriesStyle(COLORS[4], "o")
    assert not are_told_apart(solid, SeriesStyle(COLORS[4], "s"))
    assert not are_told_apart(solid, SeriesStyle(COLORS[5], "o")), "in grey they are alike"
    assert are_told_apart(solid, SeriesStyle(COLORS[4], "s", (5, 2)))


def test_every_strategy_and_compressor_of_this_tree_has_a_place() -> None:
    """A new one goes to the end of the table; without a place it would take that of its checksum."""
    for group, places in (("strategy", series_style.STRATEGIES), ("compressor", series_style.COMPRESSORS)):
        assert {path.stem for path in (CONF / group).glob("*.yaml")} == set(places) and len(set(places)) == len(places)
