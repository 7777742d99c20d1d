"""One table of styles for all figures: colour says the strategy, marker and dash say the compressor.

Where all series of a panel have one strategy, its colour would say nothing: colours then follow the compressor too.
Where all have one compressor, marker and dash follow the strategy too. Any two series of a panel are told apart.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

from testbed.analysis.style.color_difference import VISIONS, difference

MAX_SERIES = 8
"""Number of series in a panel, and of colours, markers and dashes. More become several panels."""
MIN_DIFFERENCE = 15.0
"""CIEDE2000 from which on two colours are told apart without looking for the difference."""
INK = "#000000"
COLORS = (INK, "#0077E0", "#FB9D47", "#5E3C82", "#018D81", "#F14D81", "#A4480D", "#D494FF")
"""Any two differ by 16 or more, with deuteranopia too; the first four do so in grey. Black is what others are compared
with. Found by a search for colours near those of Okabe and Ito, none too pale for white paper."""
_COLORS_ON_DARK = ("#FFFFFF", "#6587A3", "#F28D2C", "#7C4AD5", "#218354", "#D47995", "#EAC1AF", "#CA8DFF")
ON_DARK = dict(zip(COLORS, _COLORS_ON_DARK, strict=True))
"""Colour of about the same hue that replaces each one on a dark page."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
"""Names of matplotlib."""
DASHES: tuple[tuple[float, ...], ...] = (
    *((), (5, 2), (1.2, 1.6), (7, 2, 1.2, 2), (11, 3), (7, 2, 1.2, 2, 1.2, 2), (2.5, 1.5), (10, 2, 3, 2)),
)
"""Lengths of strokes and gaps in points; none is a solid line."""
HATCHES = ("", "/", "\\", "x", ".", "-", "|", "+")
"""Filling of bars, as the dash is of lines; names that matplotlib and Plotly share."""

# Never reordered, only added to: the place decides the style. Neighbours differ most.
STRATEGIES = (
    *("ddp", "local_sgd", "diloco", "streaming_diloco", "parameter_server", "gossip", "federated", "dear"),
    *("torch_ddp", "hybrid", "fedbuff", "dkfac", "pipetransformer", "slamb", "lamb", "kv_transfer"),
    *("mpd_kfac", "dp_kfac", "spd_kfac", "pad_kfac"),
)
COMPRESSORS = (
    *("none", "topk", "int8", "powersgd", "fp16", "sz3", "randomk", "bf16"),
    *("qsgd", "dgc", "signsgd", "zfp", "int4", "thc", "terngrad", "fp8"),
    *("efsignsgd", "natural", "demo", "acpsgd", "zstd", "gtopk", "nf4", "adaptive"),
    *("onebit", "sidco", "eden", "blosc2", "oktopk", "intsgd", "dynamic8", "policy"),
    *("signum", "threshold", "countsketch", "adaq", "onebit_adam", "sketchml", "inceptionn", "cocktailsgd"),
    *("zeroone_adam", "chunked_topk", "int8_zstd", "deepreduce", "deepreduce_bloom", "deepreduce_fit"),
    *("deepreduce_qsgd",),
)


@dataclass(frozen=True, order=True)
class Method:
    """Content of a series. Series that are alike in all three have one style."""

    strategy: str
    compressor: str
    setting: str = ""
    """Text that tells configurations of one strategy and one compressor apart, such as "density=0.01"."""


@dataclass(frozen=True)
class SeriesStyle:
    color: str
    marker: str
    dash: tuple[float, ...] = ()


def style_of(strategy: str, compressor: str) -> SeriesStyle:
    """Return the style of a series, before `styles_for` tells it apart from others."""
    mark = _place(COMPRESSORS, compressor) % MAX_SERIES
    return SeriesStyle(COLORS[_place(STRATEGIES, strategy) % MAX_SERIES], MARKERS[mark], DASHES[mark])


def color_among_compressors(compressor: str) -> str:
    """Return the colour of a compressor where all series have one strategy."""
    return COLORS[_place(COMPRESSORS, compressor) % MAX_SERIES]


def place_of(method: Method) -> tuple[int, int, Method]:
    """Return the sort key of the order in which figures name methods."""
    return _place(STRATEGIES, method.strategy), _place(COMPRESSORS, method.compressor), method


def styles_for(methods: Sequence[Method], taken: Collection[SeriesStyle] = ()) -> dict[Method, SeriesStyle]:
    """Return the style of each method of one panel. The order of `methods` has no influence.

    Args:
        taken: Styles of other methods in other panels, which are avoided as long as others are left.

    Raises:
        ValueError: There are more than `MAX_SERIES`.
    """
    ordered = sorted(set(methods), key=place_of)
    if len(ordered) > MAX_SERIES:
        raise ValueError(f"{len(ordered)} series in a panel; at most {MAX_SERIES} can be told apart")
    marks = _slots({(one.compressor, one.setting): _place(COMPRESSORS, one.compressor) for one in ordered})
    colors = _slots({one.strategy: _place(STRATEGIES, one.strategy) for one in ordered}, _differ_in_grey)
    color_of = {one: colors[one.strategy] for one in ordered}
    mark_of = {one: marks[one.compressor, one.setting] for one in ordered}
    if len(colors) == 1:
        color_of = mark_of
    elif len(marks) == 1:
        mark_of = color_of
    styles: dict[Method, SeriesStyle] = {}
    for one in ordered:
        slots = [(mark_of[one] + turn) % MAX_SERIES for turn in range(MAX_SERIES)]
        candidates = [SeriesStyle(COLORS[color_of[one]], MARKERS[slot], DASHES[slot]) for slot in slots]
        # There always is one: at most seven others have a marker and a dash.
        fitting = [new for new in candidates if all(are_told_apart(new, old) for old in styles.values())]
        others = {style.marker for other, style in styles.items() if mark_of[other] != mark_of[one]}
        styles[one] = min(fitting, key=lambda style: (style in taken, style.marker in others))
    return styles


def are_told_apart(one: SeriesStyle, other: SeriesStyle) -> bool:
    """Return True if two series differ in marker and dash, or in colour with each of `VISIONS`."""
    if one.marker != other.marker and one.dash != other.dash:
        return True
    return all(difference(one.color, other.color, vision) >= MIN_DIFFERENCE for vision in VISIONS)


def _place(names: Sequence[str], name: str) -> int:
    """Return the place of a name; one that is new gets a place behind all others by its checksum."""
    return names.index(name) if name in names else len(names) + zlib.crc32(name.encode()) % 1000


def _differ_in_grey(slot: int, other: int) -> bool:
    return difference(COLORS[slot], COLORS[other], "grey") >= MIN_DIFFERENCE


def _slots(
    places: Mapping[Hashable, int], differ: Callable[[int, int], bool] = lambda slot, other: slot != other
) -> dict[Hashable, int]:
    """Return a slot below `MAX_SERIES` for each key: the one of its place, or the next that fits.

    Args:
        differ: Returns True if two slots fit together. Where none fits, the next free one is taken.
    """
    slots: dict[Hashable, int] = {}
    for key in sorted(places, key=lambda key: (places[key], str(key))):
        wanted = [(places[key] + step) % MAX_SERIES for step in range(MAX_SERIES)]
        free = [slot for slot in wanted if slot not in slots.values()]
        fitting = (slot for slot in free if all(differ(slot, other) for other in slots.values()))
        slots[key] = next(fitting, (free or wanted)[0])
    return slots
