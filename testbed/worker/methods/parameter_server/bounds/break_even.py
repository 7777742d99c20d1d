"""Whether compression pays: at which bandwidth, from how many clients on, and by what a run has measured of a link.

S bytes take S / B over a link of B bytes/s. Compressed to S / R they take less, but S / v_c and S / v_d come on top,
with v_c and v_d the bytes that a codec reads and gives back each second. So each codec has a bandwidth above which it
costs time. Behind one server all clients share its link and wait for its decoder: the more they are, the more these two
count, and the less what each does at the same time as the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any

from testbed.core.declaration import checked
from testbed.core.kinds import Number
from testbed.core.parameters import Count, Fraction, number, raise_all, whole

MEASURING, PAYS, NO_GAIN, PROBE = "measuring", "pays", "no gain", "probe"
"""Why a gate has decided as it did."""


@dataclass(frozen=True, kw_only=True)
class Codec:
    """What one codec does to one kind of data, with one thread.

    Raises:
        ValueError: a number is not finite and above 0.
    """

    compress_bytes_s: float
    """Raw bytes (v_c)."""
    decompress_bytes_s: float
    """Likewise (v_d)."""
    ratio: float
    """Raw bytes over compressed ones (R); below 1, it inflates."""

    def __post_init__(self) -> None:
        raise_all(*(_positive(name, value) for name, value in asdict(self).items()))

    @property
    def break_even_bit_s(self) -> float:
        """B*: below, compressing, sending and decompressing one after another takes less than sending raw; 0: never."""
        return max(0.0, 8 * (1 - 1 / self.ratio) / (1 / self.compress_bytes_s + 1 / self.decompress_bytes_s))

    def raw_s(self, size_bytes: float, rate_bit_s: float) -> float:
        return 8 * size_bytes / rate_bit_s

    def compressed_s(self, size_bytes: float, rate_bit_s: float) -> float:
        """One after another."""
        codec_s = size_bytes / self.compress_bytes_s + size_bytes / self.decompress_bytes_s
        return codec_s + self.raw_s(size_bytes, rate_bit_s) / self.ratio


@dataclass(frozen=True)
class Crossing:
    """At how many clients a round with compression takes as long as one without; above, it takes less."""

    clients: float
    """Infinite: never."""

    @property
    def never(self) -> bool:
        return math.isinf(self.clients)

    @property
    def always(self) -> bool:
        """With one client already."""
        return self.clients < 1

    def __str__(self) -> str:
        return "never" if self.never else "always" if self.always else f"from {math.floor(self.clients) + 1} clients on"


@dataclass(frozen=True, kw_only=True)
class ServerRound:
    """One round of a parameter server whose clients share its link: all send S bytes up, and are sent S bytes down.

    Clients compress at the same time, the server decompresses what arrives; what it sends it compresses once. Latency
    is left out: where all tensors go as one message, it is alike with and without compression.

    Raises:
        ValueError: a number is out of its range; all of them, one a line.
    """

    size_bytes: float
    """Of the model, raw (S)."""
    rate_bit_s: float
    """Of the server's link, either way."""
    up: Codec
    down: Codec
    decoders: int = 1
    """Threads with which the server decompresses, each as fast as one alone (p)."""
    overlaps: bool = False
    """Whether they decompress one client's update while others' arrive, as where these come one after another. Where
    all arrive at once, at the end, nothing is left to hide behind."""

    def __post_init__(self) -> None:
        raise_all(
            _positive("size_bytes", self.size_bytes),
            _positive("rate_bit_s", self.rate_bit_s),
            whole("decoders", self.decoders, 1),
        )

    def raw_s(self, clients: float) -> float:
        return 2 * clients * self._link_s

    def compressed_s(self, clients: float) -> float:
        return self._once_s + clients * self._each_s

    @property
    def crossing(self) -> Crossing:
        gained_s = 2 * self._link_s - self._each_s
        return Crossing(self._once_s / gained_s if gained_s > 0 else math.inf)

    def break_even_bit_s(self, clients: float) -> float:
        """The link's rate below which a round of so many is shorter with compression, where nothing overlaps; 0: at
        none."""
        apart = replace(self, overlaps=False)
        codec_s = apart._once_s + clients * self._decoding_s
        left = 1 / self.up.ratio + 1 / self.down.ratio
        return max(0.0, 8 * self.size_bytes * clients * (2 - left) / codec_s)

    @property
    def _link_s(self) -> float:
        return 8 * self.size_bytes / self.rate_bit_s

    @property
    def _update_s(self) -> float:
        """On the server's link, of one client."""
        return self._link_s / self.up.ratio

    @property
    def _decoding_s(self) -> float:
        """Of the server, for one client."""
        return self.size_bytes / (self.decoders * self.up.decompress_bytes_s)

    @property
    def _each_s(self) -> float:
        """What each client adds."""
        update = self._update_s, self._decoding_s
        return self._link_s / self.down.ratio + (max(update) if self.overlaps else sum(update))

    @property
    def _once_s(self) -> float:
        """What does not grow with the clients: theirs to compress and decompress, the server's to compress; and of
        what overlaps the first update's way or the last one's decoding."""
        ours = 1 / self.up.compress_bytes_s + 1 / self.down.compress_bytes_s + 1 / self.down.decompress_bytes_s
        ends_s = min(self._update_s, self._decoding_s) if self.overlaps else 0.0
        return self.size_bytes * ours + ends_s


@dataclass(frozen=True)
class Decision:
    compress: bool
    why: str
    """`MEASURING`, `PAYS`, `NO_GAIN`, or `PROBE`: it would not pay, and is measured again all the same."""
    raw_s: float | None
    """Predicted; None: too little has been measured."""
    compressed_s: float | None


@dataclass
class _Measured:
    """Running means; None before the first measurement. The fields' names are those of a state."""

    compress_bytes_s: float | None = None
    decompress_bytes_s: float | None = None
    ratio: float | None = None
    rate_bit_s: float | None = None
    skipped: int = 0
    """Decisions in a row, up to the last, to send raw."""


@checked
@dataclass
class Gate:
    """Decides for one direction of one link, once a round, whether to compress: not where that is predicted to take
    `margin` of the raw transfer or more.

    Codecs are measured in the run, not taken from a table: one that shares its cores with others is several times as
    slow as alone. While nothing is compressed nothing is measured of the codec, so every `probe_every` rounds it is.

    Raises:
        ValueError: a parameter is out of its range; all of them, one a line.
    """

    margin: Annotated[float, Number(above=0, most=1)] = 0.95
    """Share of raw time above which nothing is compressed."""
    probe_every: Count = 10
    """Uncompressed rounds until the codec is measured again."""
    memory: Fraction = 0.7
    """Share of a running mean kept per measurement."""
    _measured: _Measured = field(default_factory=_Measured, init=False, repr=False)

    def decide(self, size_bytes: float) -> Decision:
        """Of the next transfer of so many raw bytes; to be asked once for each."""
        raise_all(_positive("size_bytes", size_bytes))
        measured, codec = self._measured, self._codec()
        if codec is None or measured.rate_bit_s is None:
            return Decision(True, MEASURING, None, None)
        raw_s = codec.raw_s(size_bytes, measured.rate_bit_s)
        compressed_s = codec.compressed_s(size_bytes, measured.rate_bit_s)
        if compressed_s < self.margin * raw_s:
            why = PAYS
        else:
            why = NO_GAIN if measured.skipped + 1 < self.probe_every else PROBE
        measured.skipped = measured.skipped + 1 if why == NO_GAIN else 0
        return Decision(why != NO_GAIN, why, raw_s, compressed_s)

    def observe_transfer(self, sent_bytes: float, transfer_s: float) -> None:
        """Of a transfer, compressed or not.

        Args:
            transfer_s: until it was acknowledged.

        Raises:
            ValueError: not above 0.
        """
        raise_all(_positive("sent_bytes", sent_bytes), _positive("transfer_s", transfer_s))
        self._take("rate_bit_s", 8 * sent_bytes / transfer_s)

    def observe_codec(self, raw_bytes: float, sent_bytes: float, compress_s: float, decompress_s: float) -> None:
        """Of one transfer that was compressed, at both its ends.

        Raises:
            ValueError: not above 0.
        """
        given = {
            "raw_bytes": raw_bytes,
            "sent_bytes": sent_bytes,
            "compress_s": compress_s,
            "decompress_s": decompress_s,
        }
        raise_all(*(_positive(name, value) for name, value in given.items()))
        self._take("compress_bytes_s", raw_bytes / compress_s)
        self._take("decompress_bytes_s", raw_bytes / decompress_s)
        self._take("ratio", raw_bytes / sent_bytes)

    def state_dict(self) -> dict[str, Any]:
        return asdict(self._measured)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._measured = _Measured(**state)

    def _codec(self) -> Codec | None:
        one = self._measured
        if one.compress_bytes_s is None or one.decompress_bytes_s is None or one.ratio is None:
            return None
        return Codec(compress_bytes_s=one.compress_bytes_s, decompress_bytes_s=one.decompress_bytes_s, ratio=one.ratio)

    def _take(self, name: str, value: float) -> None:
        before: float | None = getattr(self._measured, name)
        mean = value if before is None else self.memory * before + (1 - self.memory) * value
        setattr(self._measured, name, mean)


def _positive(name: str, value: object) -> str | None:
    """A fault, unless it is finite and above 0."""
    return number(name, value, above=0, below=math.inf)
