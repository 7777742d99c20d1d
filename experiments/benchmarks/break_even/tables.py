"""Whether compression pays behind one server: for each rate of its link measured rounds over clients, the formula's
beside them, and from how many clients on it does.

The formula is `testbed.worker.methods.parameter_server.bounds.break_even.ServerRound` by what the same runs say of
codecs. Both arms handle what they
send and receive: they measure, copy, pack, check and average it. What that takes raw is no codec's, so that a codec's
seconds are those of its arm less the raw one's.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator

from experiments.benchmarks.break_even.measure import ARMS, COMPRESSED, DECODERS, RAW
from experiments.common.tables import Found, disturbed, table
from testbed.analysis.style.chart import OKABE_ITO, legend, new_figure, standalone, style, to_svg
from testbed.worker.methods.parameter_server.bounds.break_even import Codec, Crossing, ServerRound

Arms = Mapping[str, Found]
"""Both arms of one rate and number of clients."""
NEAR = 32
"""Clients for which the rate is told at which both take as long."""
_COUNTED_MESSAGES, _WIRE_MESSAGES = 14, 15
"""A client's, in a run: models and updates of seven rounds; and on the wire the last model, which no step counts."""


@dataclass(frozen=True)
class Formula:
    """Of one rate, by what its runs have measured."""

    raw: ServerRound
    """Handling what is raw taken for a codec of ratio 1."""
    compressed: ServerRound
    """Codec and handling together."""
    rate_bit_s: float
    """Of the link; that of a round is what headers leave of it."""

    @property
    def codecs(self) -> ServerRound:
        """The formula itself: codecs alone.

        Raises:
            ValueError: what is compressed takes no longer to handle than what is raw.
        """
        ours, theirs = self.compressed, self.raw
        return replace(ours, up=_beyond(ours.up, theirs.up), down=_beyond(ours.down, theirs.down))

    @property
    def crossing_overlapping(self) -> Crossing:
        """Where the server handles one client's update, decoding it or not, while others' arrive."""
        (raw_once_s, raw_each_s), (once_s, each_s) = (
            (
                self.round_s(arm, 0, overlaps=True),
                self.round_s(arm, 1, overlaps=True) - self.round_s(arm, 0, overlaps=True),
            )
            for arm in ARMS
        )
        return Crossing((once_s - raw_once_s) / (raw_each_s - each_s) if raw_each_s > each_s else math.inf)

    @property
    def near_bit_s(self) -> float:
        """The link's rate at which `NEAR` clients take as long either way."""
        return self.codecs.break_even_bit_s(NEAR) * self.rate_bit_s / self.raw.rate_bit_s

    def round_s(self, arm: str, clients: float, *, overlaps: bool = False) -> float:
        one = self.raw if arm == RAW else self.compressed
        return replace(one, overlaps=overlaps).compressed_s(clients)


def _beyond(whole: Codec, handling: Codec) -> Codec:
    """What is left of the seconds of `whole`."""

    def rest(name: str) -> float:
        left_s = 1 / getattr(whole, name) - 1 / getattr(handling, name)
        return 1 / left_s if left_s else math.inf

    return replace(whole, compress_bytes_s=rest("compress_bytes_s"), decompress_bytes_s=rest("decompress_bytes_s"))


def pairs(points: Sequence[Found]) -> dict[float, dict[int, Arms]]:
    """By rate, by clients: where both arms were measured; runs that may not be believed left out."""
    found: dict[float, dict[int, dict[str, Found]]] = {}
    for point in points:
        asked = point["asked"]
        if point["result"]["verdict"] != "invalid":
            found.setdefault(asked["rate_gbit_s"], {}).setdefault(asked["clients"], {})[asked["arm"]] = point
    whole = {
        rate: {clients: arms for clients, arms in sorted(of_rate.items()) if len(arms) == len(ARMS)}
        for rate, of_rate in sorted(found.items())
    }
    return {rate: of_rate for rate, of_rate in whole.items() if of_rate}


def formula(rate_gbit_s: float, by_clients: Mapping[int, Arms]) -> Formula:
    """By medians over these numbers of clients."""

    def median(arm: str, value: Callable[[int, Mapping[str, Any]], float]) -> float:
        return float(statistics.median(value(n, arms[arm]["result"]) for n, arms in by_clients.items()))

    def of(arm: str, key: str) -> float:
        return median(arm, lambda _, result: result[key])

    size_bytes, rate_bit_s = of(RAW, "update_bytes"), 1e9 * rate_gbit_s

    def whole(arm: str) -> ServerRound:
        decode_s = median(arm, lambda n, result: result["server_decompress_s"] / n)
        up, down = (
            Codec(compress_bytes_s=size_bytes / there_s, decompress_bytes_s=size_bytes / back_s, ratio=ratio)
            for there_s, back_s, ratio in (
                (of(arm, "client_compress_s"), decode_s, size_bytes / of(arm, "update_bytes")),
                (of(arm, "server_compress_s"), of(arm, "client_decompress_s"), size_bytes / of(arm, "model_bytes")),
            )
        )
        payload_bit_s = rate_bit_s / of(RAW, "wire_over_payload") * _WIRE_MESSAGES / _COUNTED_MESSAGES
        return ServerRound(size_bytes=size_bytes, rate_bit_s=payload_bit_s, up=up, down=down, decoders=DECODERS)

    return Formula(whole(RAW), whole(COMPRESSED), rate_bit_s)


def gained_s(arms: Arms) -> float:
    """By how much a measured round is shorter with compression."""
    return float(arms[RAW]["result"]["round_s"] - arms[COMPRESSED]["result"]["round_s"])


def crossings(by_clients: Mapping[int, Arms]) -> list[float]:
    """Clients at which measured rounds take as long either way, by straight lines between neighbouring numbers."""
    gained = [(clients, gained_s(arms)) for clients, arms in by_clients.items()]
    return [n0 + (n1 - n0) * g0 / (g0 - g1) for (n0, g0), (n1, g1) in itertools.pairwise(gained) if g0 * g1 < 0]


def break_even(points: Sequence[Found]) -> str:
    return "\n\n".join(
        f"**The server's link at {rate:g} Gbit/s**\n\n{_rounds(rate, of_rate)}\n\n{_said(rate, of_rate)}"
        for rate, of_rate in pairs(points).items()
    )


def _rounds(rate_gbit_s: float, by_clients: Mapping[int, Arms]) -> str:
    whole = formula(rate_gbit_s, by_clients)
    rows = []
    for clients, arms in by_clients.items():
        raw, compressed = (arms[arm]["result"] for arm in ARMS)
        formulas_s = [whole.round_s(arm, clients) for arm in ARMS]
        own = formula(rate_gbit_s, {clients: arms}).codecs
        verdicts = {f"{point['result']['verdict']}{disturbed(point)}" for point in arms.values()}
        rows.append(
            [
                str(clients),
                *(_seconds(one, by_formula_s) for one, by_formula_s in zip((raw, compressed), formulas_s, strict=True)),
                f"{raw['round_s'] / compressed['round_s']:.2f} ({formulas_s[0] / formulas_s[1]:.2f})",
                *(f"{_speeds(codec)}, {codec.ratio:.2f}" for codec in (own.up, own.down)),
                str(own.crossing),
                *(f"{compressed['dilation']:g}", ", ".join(sorted(verdicts))),
            ]
        )
    codecs = (f"{way}: v_c / v_d, MB/s, R" for way in ("up", "down"))
    heads = ("clients", "raw, ms", "SZ3, ms", "raw / SZ3", *codecs, "pays, by the formula and these", "k", "verdicts")
    return table(heads, rows)


def _seconds(result: Mapping[str, Any], formulas_s: float) -> str:
    least, most = (1e3 * result[key] for key in ("least_round_s", "most_round_s"))
    return f"{1e3 * result['round_s']:.1f} [{least:.1f} to {most:.1f}] ({1e3 * formulas_s:.1f})"


def _speeds(codec: Codec) -> str:
    return f"{codec.compress_bytes_s / 1e6:.0f} / {codec.decompress_bytes_s / 1e6:.0f}"


def _said(rate_gbit_s: float, by_clients: Mapping[int, Arms]) -> str:
    found = formula(rate_gbit_s, by_clients)
    one = found.codecs
    codecs = (
        f"{way} {_speeds(codec)} MB/s and R = {codec.ratio:.2f}" for way, codec in (("up", one.up), ("down", one.down))
    )
    return (
        f"Compression pays, as measured: **{measured(by_clients)}**; by the formula: **{one.crossing}**"
        f"; if updates were handled while others arrive: {found.crossing_overlapping}. Medians: v_c / v_d"
        f" {', '.join(codecs)};"
        f" {one.rate_bit_s / 1e9:.3g} Gbit/s of payload. {NEAR} clients break even at"
        f" {found.near_bit_s / 1e9:.2g} Gbit/s."
    )


def measured(by_clients: Mapping[int, Arms]) -> str:
    """From how many clients on it pays."""
    numbers, found = list(by_clients), crossings(by_clients)
    if not found:
        pays = gained_s(by_clients[numbers[0]]) > 0
        return f"{'always' if pays else 'never'}, with {numbers[0]} to {numbers[-1]} clients"
    return f"as long either way at {' and '.join(f'{clients:.3g}' for clients in found)} clients"


# How many times as fast a round is with compression, drawn over clients: measured, and the formula's curves.

_CURVE_POINTS = 200
_MARKERS = "osx"
_ROOM = 1.15
"""Beside the fewest and the most clients."""


def draw(points: Sequence[Found]) -> str:
    """As an SVG file's text."""
    found = pairs(points)
    numbers = sorted({clients for of_rate in found.values() for clients in of_rate})
    with style():
        figure, (axes,) = new_figure(legend_rows=4)
        axes.axhline(1.0, color=OKABE_ITO[7], linewidth=0.8)
        for (rate, of_rate), color, marker in zip(found.items(), OKABE_ITO, _MARKERS, strict=False):
            _curves(axes, formula(rate, of_rate), numbers, f"{rate:g} Gbit/s", color)
            xs, ys = zip(*((clients, _ratio(arms)) for clients, arms in of_rate.items()), strict=True)
            axes.plot(xs, ys, color=color, marker=marker, linestyle="", label=f"{rate:g} Gbit/s, measured")
        for axis, positions in ((axes.xaxis, numbers), (axes.yaxis, (0.5, 1, 2, 3, 4))):
            (axes.set_xscale if axis is axes.xaxis else axes.set_yscale)("log")
            axis.set_ticks(positions)
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set(xlabel="clients", ylabel="raw round / compressed round")
        legend(axes)
        return standalone(to_svg(figure))


def _curves(axes: Axes, found: Formula, numbers: Sequence[int], name: str, color: str) -> None:
    least, most = numbers[0] / _ROOM, numbers[-1] * _ROOM
    curve = [least * (most / least) ** (step / _CURVE_POINTS) for step in range(_CURVE_POINTS + 1)]
    for overlaps, dashes, what in ((False, "-", "formula"), (True, "--", "formula, handling while more arrives")):
        raw, compressed = ([found.round_s(arm, clients, overlaps=overlaps) for clients in curve] for arm in ARMS)
        ratios = [raw_s / compressed_s for raw_s, compressed_s in zip(raw, compressed, strict=True)]
        axes.plot(curve, ratios, color=color, linestyle=dashes, label=f"{name}, {what}")


def _ratio(arms: Arms) -> float:
    return float(arms[RAW]["result"]["round_s"] / arms[COMPRESSED]["result"]["round_s"])
