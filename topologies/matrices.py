"""Measured figures between regions, as data: by whom, when, how and under which licence.

A figure of one TCP flow, or of few, depends on the windows of the hosts as much as on the link. It goes into
`flow_gbit_s`, never by itself into `capacity_gbit_s`; where it serves as a capacity all the same, `capacity` says so
and why. A round trip has no direction: where both ends measured one, the mean of the two is taken.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Source of figures."""

    name: str
    url: str
    date: str
    """Date of the measurement, or the latest day on which it can have been."""
    method: str
    """Method of the measurement, with the number of flows."""
    licence: str

    @property
    def text(self) -> str:
        return f"{self.name}, {self.url}; {self.date}; {self.method}; licence: {self.licence}"


@dataclass(frozen=True)
class Pair:
    """Figures that were measured between two regions."""

    rtt_ms: float
    capacity_gbit_s: float | None = None
    flow_gbit_s: float | None = None
    forward_flow_gbit_s: float | None = None
    """Flow from the first region to the second where both ways were measured; `flow_gbit_s` is then the way back."""


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """Regions, with a figure or more for every two of them."""

    regions: tuple[str, ...]
    pairs: dict[tuple[str, str], Pair]
    origin: Origin
    """Source of round trips, and of the figures of single flows."""
    capacity: str
    """Words at the end of a source: meaning of the capacity, and where it comes from."""

    def pair(self, a: str, b: str) -> Pair:
        return self.pairs[a, b] if (a, b) in self.pairs else self.pairs[b, a]

    def flow_gbit_s(self, source: str, target: str) -> float | None:
        """Return the figure of a single flow in this direction, or the only one there is."""
        pair = self.pair(source, target)
        return (pair.forward_flow_gbit_s if (source, target) in self.pairs else None) or pair.flow_gbit_s


DTFM = Origin(
    name="DT-FM (arXiv 2206.01288)",
    url="github.com/DS3Lab/DT-FM scheduler/generate_sim_com_matrices.py",
    date="2022, published June 2022",
    method="a single measurement between AWS instances, few TCP flows",
    licence="MIT",
)
HIVEMIND = Origin(
    name="Erben, Mayer, Jacobsen (VLDB 17(6), 2024)",
    url="github.com/cirquit/hivemind-multi-cloud artifacts/networking",
    date="April 2023",
    method="ping and iperf between Google Cloud VMs, 1 TCP flow, medians of 5",
    licence="MIT",
)
SKYPLANE = Origin(
    name="Skyplane (NSDI 2023)",
    url="github.com/skyplane-project/skyplane profiles/latency.csv, throughput.csv (history)",
    date="January to April 2022",
    method="ping, and iperf3 for 5 s with 64 TCP flows",
    licence="Apache-2.0",
)
IBM = Origin(
    name="IBM Cloud's documentation",
    url="github.com/ibm-cloud-docs/vpc network-latency.md",
    date="27 July to 25 August 2024",
    method="the operator's monthly average of round trips, no throughput; mean of both directions",
    licence="none stated, figures as published",
)


def _rows(text: str) -> dict[tuple[str, str], tuple[float, ...]]:
    """Return numbers by pair of regions, from lines of two regions and numbers."""
    split = [line.split() for line in text.strip().splitlines()]
    return {(a, b): tuple(map(float, numbers)) for a, b, *numbers in split}


def _square(text: str) -> tuple[tuple[str, ...], dict[tuple[str, str], float]]:
    """Return (regions, figure by pair) from lines of a region and its figure to each one in order; "-" to itself."""
    rows = {line.split()[0]: line.split()[1:] for line in text.strip().splitlines()}
    regions = tuple(rows)
    cells = {(a, b): cell for a in regions for b, cell in zip(regions, rows[a], strict=True)}
    return regions, {pair: float(cell) for pair, cell in cells.items() if cell != "-"}


_DTFM = _rows("""
oregon     virginia   67  0.79
oregon     ohio       49  1.10
oregon     tokyo      96  0.523 0.861
oregon     seoul      124 0.46
oregon     singapore  163 0.341
oregon     sydney     139 0.36
oregon     london     136 0.42
oregon     frankfurt  143 0.404
oregon     ireland    124 0.482
virginia   ohio       11  1.12
virginia   tokyo      143 0.524
virginia   seoul      172 0.500
virginia   singapore  230 0.364
virginia   sydney     197 0.383
virginia   london     76  1.16
virginia   frankfurt  90  1.02  0.521
virginia   ireland    67  1.05
ohio       tokyo      130 0.694
ohio       seoul      159 0.529
ohio       singapore  197 0.452
ohio       sydney     185 0.484
ohio       london     86  1.05
ohio       frankfurt  99  0.799
ohio       ireland    77  1.14
tokyo      seoul      34  1.10
tokyo      singapore  73  1.01
tokyo      sydney     100 0.761
tokyo      london     210 0.366
tokyo      frankfurt  223 0.36
tokyo      ireland    199 0.465
seoul      singapore  74  1.14
seoul      sydney     148 0.58
seoul      london     238 0.342
seoul      frankfurt  235 0.358
seoul      ireland    228 0.335
singapore  sydney     92  0.816
singapore  london     169 0.500
singapore  frankfurt  155 0.535
singapore  ireland    179 0.492
sydney     london     262 0.326
sydney     frankfurt  265 0.328
sydney     ireland    254 0.344
london     frankfurt  14  1.14
london     ireland    12  1.09
frankfurt  ireland    24  1.08
""")
"""Round trip in ms and Gbit/s; of two pairs both directions are known: from the second region to the first, then back.
For all others there is one direction, and which one is not known.

The 0.79 Gbit/s between Oregon and Virginia went through a VPN, over 4 threads of 4 sockets each; the same row of the
authors' log has 1.16 Gbit/s with 32 iperf3 streams through that VPN, and 4.56 by public address.

The figure called delay there equals the round trip Skyplane measured between the same
regions (67 and 68.3, 223 and 223.2), though DT-FM's own tc scripts added it one way, on each sender."""

_DTFM_REGIONAL = _rows("""
virginia   oregon     67  1.15
virginia   california 59  1.05
virginia   ohio       11  1.12
oregon     california 12  1.25
oregon     ohio       49  1.10
california ohio       52  1.02
""")
"""The regional case has figures of its own: 1.15 Gbit/s between Virginia and Oregon, not 0.79."""

_GOOGLE = _rows("""
us-central1  europe-west1          103.1 0.210
us-central1  asia-east1            157.1 0.133
us-central1  australia-southeast1  176   0.117
asia-east1   australia-southeast1  131.8 0.162
europe-west1 asia-east1            253.1 0.076
europe-west1 australia-southeast1  272   0.069
""")
"""Round trip in ms and Gbit/s of one flow. The regions are inferred from hosts called us, eu, asia, australia."""

_AWS = """
us-east-1      -     68.3  84.9  89.8  167.8 236.6 197.0 116.7
us-west-2      4.35  -     122.3 146.6 97.5  168.9 138.6 186.7
eu-west-1      4.31  3.87  -     22.3  214.4 179.0 253.9 179.7
eu-central-1   4.11  3.66  4.66  -     223.2 155.1 245.6 203.0
ap-northeast-1 3.66  4.08  3.12  2.90  -     72.0  114.6 281.7
ap-southeast-1 3.05  3.45  3.31  3.50  4.28  -     93.3  360.1
ap-southeast-2 3.11  3.66  2.62  2.63  3.99  4.11  -     307.8
sa-east-1      3.91  3.36  3.34  3.08  2.57  1.92  2.04  -
"""
"""Above the diagonal round trips in ms; below it Gbit/s received, from the line's region to the column's."""

_AZURE = _rows("""
eastus      westus      61.7  14.2
eastus      northeurope 66.4  13.8
eastus      westeurope  80.3  13.5
eastus      japaneast   156   10.6
westus      northeurope 125   12
westus      westeurope  139   11.6
westus      japaneast   105.5 12.7
northeurope westeurope  15    15.4
northeurope japaneast   231   4.8
westeurope  japaneast   224   8.6
""")
"""Round trip in ms and Gbit/s; of two figures for two directions the lower."""

_IBM = """
dallas     -   34  31  123 113 119 150 186 143 146
toronto    34  -   19  93  82  108 168 215 162 129
washington 31  19  -   91  75  87  172 214 164 118
frankfurt  123 93  91  -   13  29  232 250 233 198
london     113 83  75  13  -   27  244 261 243 188
madrid     122 106 88  29  27  -   257 275 258 209
osaka      150 169 172 231 243 257 -   122 9   293
sydney     186 214 214 249 261 275 122 -   115 328
tokyo      143 162 166 233 244 256 9   115 -   284
sao-paulo  144 128 119 196 187 208 291 328 283 -
"""
"""Round trip in ms as the line's region measured it. The two of a pair differ by 3 ms at most, Sao Paulo's too: that is
the measuring, not a one-way asymmetry, so the mean holds."""


def _aws() -> Matrix:
    regions, cells = _square(_AWS)
    order = {region: index for index, region in enumerate(regions)}
    return Matrix(
        regions=regions,
        pairs={(a, b): Pair(cells[a, b], cells[b, a]) for a, b in cells if order[a] < order[b]},
        origin=SKYPLANE,
        capacity="received with 64 flows by m5.8xlarge (5 Gbit/s egress cap), one direction measured, used for both",
    )


def _ibm() -> Matrix:
    regions, cells = _square(_IBM)
    means = {(a, b): Pair((cells[a, b] + cells[b, a]) / 2) for a, b in cells}
    return Matrix(regions=regions, pairs=means, origin=IBM, capacity="")


def _dtfm(regions: tuple[str, ...], rows: dict[tuple[str, str], tuple[float, ...]]) -> Matrix:
    return Matrix(
        regions=regions,
        pairs={pair: Pair(rtt_ms, rate, rate, *forward) for pair, (rtt_ms, rate, *forward) in rows.items()},
        origin=DTFM,
        capacity="the same measurement taken as a link's capacity, as DT-FM's own emulation took it; few flows do not"
        " fill a link, which carried up to 5 Gbit/s (aws8)",
    )


MATRICES = {
    "us3": Matrix(
        regions=("virginia", "ohio", "oregon"),
        pairs={pair: Pair(rtt_ms, 5.0, *flows) for pair, (rtt_ms, *flows) in _DTFM.items()},
        origin=DTFM,
        capacity="assumed: the 5 Gbit/s egress cap of an m5.8xlarge, of which Skyplane's 64 flows (January 2022,"
        " Apache-2.0) received 4.35 from us-west-2 to us-east-1 and 4.47 from us-east-2 to us-west-2",
    ),
    "dtfm-regional4": _dtfm(("virginia", "oregon", "california", "ohio"), _DTFM_REGIONAL),
    "dtfm-world8": _dtfm(("oregon", "virginia", "ohio", "tokyo", "seoul", "london", "frankfurt", "ireland"), _DTFM),
    "gcp4": Matrix(
        regions=("us-central1", "europe-west1", "asia-east1", "australia-southeast1"),
        pairs={pair: Pair(rtt_ms, 6.2, flow) for pair, (rtt_ms, flow) in _GOOGLE.items()},
        origin=HIVEMIND,
        capacity="6.2 Gbit/s, received with 40 to 80 flows between Europe and the US; assumed for the other pairs",
    ),
    "aws8": _aws(),
    "azure5": Matrix(
        regions=("eastus", "westus", "northeurope", "westeurope", "japaneast"),
        pairs={pair: Pair(rtt_ms, rate) for pair, (rtt_ms, rate) in _AZURE.items()},
        origin=SKYPLANE,
        capacity="received with 64 flows by D32_v5 (16 Gbit/s cap), the lower of both directions, used for both",
    ),
    "ibm10": _ibm(),
}
