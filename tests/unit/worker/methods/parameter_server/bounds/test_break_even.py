"""Where compression pays: the closed forms by measured speeds, and a gate that is told what links and codecs do."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from testbed.worker.methods.parameter_server.bounds.break_even import (
    MEASURING,
    NO_GAIN,
    PAYS,
    PROBE,
    Codec,
    Gate,
    ServerRound,
)

MB, GBIT = 1e6, 1e9
SPEEDS = st.floats(min_value=1e6, max_value=1e10)
RATIOS = st.floats(min_value=0.5, max_value=100)


def _codec(compress: float, decompress: float, ratio: float) -> Codec:
    return Codec(compress_bytes_s=compress * MB, decompress_bytes_s=decompress * MB, ratio=ratio)


SZ3 = _codec(300, 550, 5.58)


@pytest.mark.parametrize(
    ("compress", "decompress", "ratio", "gbit_s"),
    # one thread, a model of 25 million parameters: MB/s each way, ratio, and the break-even rate to two digits
    [
        (224, 490, 5.58, 1.0),  # SZ3 without a predictor, 1e-2 of the range
        (246, 430, 5.15, 1.0),  # SZ3 by interpolation
        (218, 402, 5.47, 0.92),  # SZ3 by Lorenzo and regression
        (305, 264, 2.88, 0.74),  # zfp at the same tolerance
        (378, 755, 1.09, 0.17),  # zstd, lossless
        (2081, 7571, 4.00, 9.8),  # int8 and zstd
        (7831, 8180, 2.00, 16.0),  # fp16
    ],
)
def test_a_codec_pays_below_its_break_even_rate(
    compress: float, decompress: float, ratio: float, gbit_s: float
) -> None:
    codec = _codec(compress, decompress, ratio)
    assert codec.break_even_bit_s == pytest.approx(gbit_s * GBIT, rel=0.03)
    for rate, pays in ((0.99, True), (1.01, False)):
        rate_bit_s = rate * codec.break_even_bit_s
        assert (codec.compressed_s(100 * MB, rate_bit_s) < codec.raw_s(100 * MB, rate_bit_s)) is pays


@pytest.mark.parametrize("ratio", [1.0, 0.9])
def test_what_does_not_shorten_never_pays(ratio: float) -> None:
    assert _codec(300, 550, ratio).break_even_bit_s == 0


def _round(rate_gbit_s: float, decoders: int = 1) -> ServerRound:
    return ServerRound(size_bytes=500 * MB, rate_bit_s=rate_gbit_s * GBIT, up=SZ3, down=SZ3, decoders=decoders)


def test_a_round_is_told_by_hand() -> None:
    one = _round(1)  # 4 s a transfer; 1.667 s to compress, 0.909 to decompress
    assert one.raw_s(3) == pytest.approx(24)
    assert one.compressed_s(3) == pytest.approx(2 * 1.66667 + 0.90909 + 3 * (2 * 4 / 5.58 + 0.90909), rel=1e-5)


@pytest.mark.parametrize(
    ("gbit_s", "decoders", "told"),
    [(1, 1, "always"), (10, 1, "never"), (10, 4, "from 10 clients on"), (40, 1, "never"), (40, 4, "never")],
)
def test_from_how_many_clients_on_it_pays(gbit_s: float, decoders: int, told: str) -> None:
    crossing = _round(gbit_s, decoders).crossing
    assert str(crossing) == told
    assert (crossing.always, crossing.never) == (told == "always", told == "never")
    if gbit_s == 10 and decoders == 4:
        assert crossing.clients == pytest.approx(9.88, abs=0.01)


def test_what_is_decoded_while_more_arrives_costs_the_longer_of_the_two() -> None:
    apart, overlapping, once_s = _round(1), replace(_round(1), overlaps=True), 2 * 1.66667 + 0.90909
    # by hand: an update is 0.717 s on the link and takes 0.909 s to decompress
    assert overlapping.compressed_s(3) == pytest.approx(once_s + 3 * (0.71685 + 0.90909) + 0.71685, rel=1e-5)
    assert overlapping.compressed_s(1) == pytest.approx(apart.compressed_s(1))
    quick = replace(overlapping, up=replace(SZ3, decompress_bytes_s=5500 * MB))  # 0.0909 s: the link is the longer
    assert quick.compressed_s(3) == pytest.approx(once_s + 3 * 2 * 0.71685 + 0.09091, rel=1e-5)
    assert replace(_round(10, 4), overlaps=True).crossing.clients < _round(10, 4).crossing.clients


def test_at_its_break_even_rate_so_many_clients_take_as_long_either_way() -> None:
    rate_bit_s = _round(10, 4).break_even_bit_s(32)
    at = replace(_round(10, 4), rate_bit_s=rate_bit_s)
    assert at.crossing.clients == pytest.approx(32)
    assert replace(at, overlaps=True).break_even_bit_s(32) == pytest.approx(rate_bit_s)
    assert replace(at, up=_codec(300, 550, 0.5)).break_even_bit_s(32) == 0


@given(
    v_c=SPEEDS,
    v_d=SPEEDS,
    up=RATIOS,
    down=RATIOS,
    rate=st.floats(1e6, 1e11),
    decoders=st.integers(1, 64),
    overlaps=st.booleans(),
)
def test_above_the_crossing_and_there_alone_a_round_with_compression_is_shorter(
    v_c: float, v_d: float, up: float, down: float, rate: float, decoders: int, overlaps: bool
) -> None:
    codecs = [Codec(compress_bytes_s=v_c, decompress_bytes_s=v_d, ratio=ratio) for ratio in (up, down)]
    one = ServerRound(
        size_bytes=MB, rate_bit_s=rate, up=codecs[0], down=codecs[1], decoders=decoders, overlaps=overlaps
    )
    crossing = one.crossing
    assert crossing.clients > 0
    for clients in (1, 2, 7, 50, 10**4):
        assume(crossing.never or abs(clients / crossing.clients - 1) > 1e-6)
        assume(abs(one.compressed_s(clients) / one.raw_s(clients) - 1) > 1e-9)
        assert (one.compressed_s(clients) < one.raw_s(clients)) is (clients > crossing.clients)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"compress_bytes_s=0.*\ndecompress_bytes_s=nan.*\nratio=inf"):
        Codec(compress_bytes_s=0, decompress_bytes_s=math.nan, ratio=math.inf)
    with pytest.raises(ValueError, match=r"size_bytes=0.*\nrate_bit_s=-1.*\ndecoders=0"):
        ServerRound(size_bytes=0, rate_bit_s=-1, up=SZ3, down=SZ3, decoders=0)
    with pytest.raises(ValueError, match=r"margin=0.*\nprobe_every=0.*\nmemory=1"):
        Gate(margin=0, probe_every=0, memory=1)
    with pytest.raises(ValueError, match=r"raw_bytes=0.*\nsent_bytes=0.*\ncompress_s=0.*\ndecompress_s=-1"):
        Gate().observe_codec(0, 0, 0, -1)
    with pytest.raises(ValueError, match=r"sent_bytes=0.*\ntransfer_s=nan"):
        Gate().observe_transfer(0, math.nan)


def _gate(margin: float = 0.95, transfer_s: float = 1.0) -> Gate:
    """1000 bytes: an eighth of a second each to compress and decompress, to half of them."""
    gate = Gate(margin=margin)
    gate.observe_codec(1000, 500, 0.125, 0.125)
    gate.observe_transfer(1000, transfer_s)
    return gate


def test_a_gate_compresses_until_it_has_measured_and_then_where_it_pays_enough() -> None:
    gate = Gate()
    for observe in (lambda: gate.observe_transfer(1000, 1.0), lambda: gate.observe_codec(1000, 500, 0.125, 0.125)):
        assert (gate.decide(1000).compress, gate.decide(1000).why) == (True, MEASURING)
        observe()
    assert asdict(gate.decide(1000)) == {
        "compress": True,
        "why": PAYS,
        "raw_s": 1.0,
        "compressed_s": 0.75,
    }
    assert gate.decide(2000).compressed_s == 1.5
    assert _gate(margin=0.75).decide(1000).why == NO_GAIN  # as long as the margin is too long
    assert _gate(margin=0.76).decide(1000).why == PAYS


def test_a_gate_that_skips_measures_again_every_ten_rounds() -> None:
    gate = _gate(transfer_s=0.1)
    reasons = [gate.decide(1000).why for _ in range(25)]
    assert reasons == [*[NO_GAIN] * 9, PROBE, *[NO_GAIN] * 9, PROBE, *[NO_GAIN] * 5]
    probe = next(found for found in (gate.decide(1000) for _ in range(10)) if found.why == PROBE)
    assert probe.compress and probe.compressed_s is not None and probe.compressed_s > (probe.raw_s or 0)
    for _ in range(20):
        gate.observe_transfer(1000, 10.0)  # the link has become slow
    assert gate.decide(1000).why == PAYS


def test_a_gate_keeps_running_means_and_goes_on_from_its_state() -> None:
    gate = _gate(transfer_s=0.1)
    gate.observe_codec(1000, 250, 0.25, 0.0625)
    gate.observe_transfer(1000, 0.2)
    state = gate.state_dict()
    # 0.7 of 8000, 2, 80000 and 0.3 of what came: 4000 and 16000, 4, 40000
    assert [state[key] for key in ("compress_bytes_s", "decompress_bytes_s", "ratio", "rate_bit_s")] == pytest.approx(
        [6800, 10400, 2.6, 68000]
    )
    for _ in range(4):
        gate.decide(1000)
    other = Gate()
    other.load_state_dict(json.loads(json.dumps(gate.state_dict(), allow_nan=False)))
    assert [gate.decide(1000) for _ in range(12)] == [other.decide(1000) for _ in range(12)]
