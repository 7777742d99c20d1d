"""What a method looks like: one colour and one marker, by its name alone, hence the same on every page and table.

The marker says the same as the colour, for print without colours and for eyes that do not tell them apart.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from testbed.core.spec.run_spec import RunSpec

COLORS = ("#000000", "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442")
"""Okabe and Ito, "Color Universal Design" (2008), black first: for what others are compared with."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*", "p")
"""matplotlib's names. Their number has no factor in common with the colours' number plus one: 88 pairs, each once."""
DASHES = ("-", "--", ":", "-.")

_PLACES = (
    # Never reordered, only added to: the place decides the look. Of each eight in a row no two share a colour.
    *("none", "topk", "int8", "powersgd", "fp16", "sz3", "randomk", "bf16"),
    *("qsgd", "dgc", "signsgd", "zfp", "int4", "thc", "terngrad", "fp8"),
    *("efsignsgd", "natural", "demo", "acpsgd", "zstd", "gtopk", "nf4", "adaptive"),
    *("onebit", "sidco", "eden", "blosc2", "oktopk", "intsgd", "dynamic8", "policy"),
    *("signum", "threshold", "countsketch", "adaq", "onebit_adam", "sketchml", "inceptionn", "cocktailsgd"),
    *("zeroone_adam", "chunked_topk", "int8_zstd", "deepreduce", "torch_ddp"),
    *("deepreduce_bloom", "deepreduce_fit", "deepreduce_qsgd"),
)
_TURN = len(MARKERS) * len(COLORS)


@dataclass(frozen=True)
class PlotStyle:
    color: str
    marker: str
    dashes: str = "-"
    """Not the method's: it tells settings of one method apart, where a page has several."""


def method_of(spec: RunSpec) -> str:
    """The compressor's name for `ddp`, the strategy's where nothing is compressed, both otherwise."""
    strategy, compressor = spec.strategy.name, spec.compressor.name
    if strategy == "ddp":
        return compressor
    return strategy if compressor == "none" else f"{strategy} {compressor}"


def has_place(name: str) -> bool:
    """Whether a name is that of a method with a look of its own."""
    return name in _PLACES


def plot_style_of(method: str, setting: int = 0) -> PlotStyle:
    """A name that has no place of its own gets one of those that are left, by its checksum.

    Args:
        setting: counts the settings of this method on a page.
    """
    if method in _PLACES:
        place = _PLACES.index(method)
    else:
        place = len(_PLACES) + zlib.crc32(method.encode()) % (_TURN - len(_PLACES))
    color = place % len(COLORS)
    marker = (place + place // len(COLORS)) % len(MARKERS)
    return PlotStyle(COLORS[color], MARKERS[marker], DASHES[setting % len(DASHES)])
