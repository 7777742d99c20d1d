from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.core.units import (
    column_unit,
    format_rate,
    format_size,
    format_time,
    parse_rate_bit_s,
    parse_ratio,
    parse_size_bytes,
    parse_time_s,
    significant,
)

PARSERS: list[Callable[[str], float]] = [parse_rate_bit_s, parse_time_s, parse_size_bytes, parse_ratio]


@pytest.mark.parametrize(
    ("text", "rate_bit_s"),
    [
        ("1 Gbit/s", 1e9),
        ("2.5 Gbit/s", 2.5e9),
        ("100Mbit/s", 1e8),
        ("  64 kbit/s ", 64e3),
        ("1e3 Mbit/s", 1e9),
        ("1.5e-3 Gbit/s", 1.5e6),
        ("9600 bit/s", 9600),
        ("1 Tbit/s", 1e12),
        ("0", 0),
        (0, 0),
    ],
)
def test_a_rate_with_a_unit_is_in_bit_s(text: str, rate_bit_s: float) -> None:
    assert parse_rate_bit_s(text) == pytest.approx(rate_bit_s)


@pytest.mark.parametrize(
    ("text", "time_s"),
    [("67 ms", 0.067), ("250us", 250e-6), ("250 µs", 250e-6), ("3 ns", 3e-9), ("2 min", 120), ("1.5 h", 5400)],
)
def test_a_time_with_a_unit_is_in_seconds(text: str, time_s: float) -> None:
    assert parse_time_s(text) == pytest.approx(time_s)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("25 MiB", 25 * 2**20), ("25 MB", 25_000_000), ("4 KiB", 4096), ("4 kB", 4000), ("1 GiB", 2**30), ("7 B", 7)],
)
def test_a_size_says_whether_it_is_decimal_or_binary(text: str, size_bytes: int) -> None:
    found = parse_size_bytes(text)
    assert found == size_bytes and isinstance(found, int)


@pytest.mark.parametrize(("text", "ratio"), [("0.1%", 0.001), ("50 %", 0.5), ("100%", 1), (0, 0), ("0", 0), (0.0, 0)])
def test_a_ratio_is_a_percentage_or_0(text: str | float, ratio: float) -> None:
    assert parse_ratio(text) == pytest.approx(ratio)


@pytest.mark.parametrize("text", ["100 Mbps", "100 MB/s", "100 mbit/s", "100 Mbit", "1 gbit/s", "5 ms"])
def test_an_unknown_unit_of_a_rate_is_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(ValueError, match=r"unknown unit .*Mbit/s"):
        parse_rate_bit_s(text)


@pytest.mark.parametrize("text", ["100", 100, 100.0, "67"])
@pytest.mark.parametrize("parse", [parse_rate_bit_s, parse_time_s, parse_size_bytes])
def test_a_bare_number_other_than_0_has_no_unit(parse: Callable[[str | float], float], text: str | float) -> None:
    with pytest.raises(ValueError, match="no unit"):
        parse(text)


@pytest.mark.parametrize(
    "text",
    ["", "ms", "-5 ms", "- 5 ms", "1,5 s", "1.2.3 s", "nan s", "inf s", "0x10 s", "1_0 s", "1_000 s", "1 s 2 s", "٣ s"],
)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="time"):
        parse_time_s(text)


@pytest.mark.parametrize("value", [True, False, None, [1], {"a": 1}])
@pytest.mark.parametrize("parse", PARSERS)
def test_another_type_is_refused(parse: Callable[[object], float], value: object) -> None:
    with pytest.raises(ValueError, match="expected a number with a unit"):
        parse(value)


@pytest.mark.parametrize("text", ["101%", "1e9%"])
def test_a_ratio_above_1_is_refused(text: str | float) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        parse_ratio(text)


@pytest.mark.parametrize(
    ("text", "readings"), [(0.5, "0.5% or 50%"), ("0.01", "0.01% or 1%"), (1, "1% or 100%"), ("30", "30% or 3000%")]
)
def test_a_bare_number_is_refused_as_a_ratio_with_both_readings(text: str | float, readings: str) -> None:
    with pytest.raises(ValueError, match=f"has no %, and may mean {readings}"):
        parse_ratio(text)


@pytest.mark.parametrize("parse", PARSERS)
def test_a_text_too_long_for_a_quantity_is_refused_soon(parse: Callable[[str], float]) -> None:
    with pytest.raises(ValueError, match="too long"):
        parse("1 x" + " " * 300_000 + "y")


@pytest.mark.parametrize("parse", PARSERS)
def test_a_number_too_large_to_hold_is_refused(parse: Callable[[str], float]) -> None:
    unit = {parse_rate_bit_s: " Gbit/s", parse_time_s: " s", parse_size_bytes: " GB", parse_ratio: "%"}[parse]
    with pytest.raises(ValueError, match="1e400"):
        parse(f"1e400{unit}")


@pytest.mark.parametrize("text", ["1e-400", "0.1e-399", "5e-324"])
@pytest.mark.parametrize("parse", PARSERS)
def test_a_number_too_small_to_hold_is_refused_and_not_0(parse: Callable[[str], float], text: str) -> None:
    unit = {parse_rate_bit_s: " bit/s", parse_time_s: " ms", parse_size_bytes: " B", parse_ratio: "%"}[parse]
    if text == "5e-324" and parse in (parse_rate_bit_s, parse_size_bytes):
        assert 0 <= parse(f"{text}{unit}") < 1e-300, "the smallest that is no 0"
        return
    with pytest.raises(ValueError, match="too small"):
        parse(f"{text}{unit}")
    assert parse(f"0e-400{unit}") == 0


@given(st.text())
def test_any_text_is_parsed_to_a_finite_number_or_refused(text: str) -> None:
    for parse in PARSERS:
        try:
            value = parse(text)
        except ValueError:
            continue
        assert math.isfinite(value) and value >= 0


@given(st.decimals(min_value=0, max_value=1000, places=3))
def test_a_whole_number_of_bytes_is_not_rounded_down(kilobytes: object) -> None:
    assert parse_size_bytes(f"{kilobytes} kB") == int(kilobytes * 1000)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("format_value", "parse", "smallest"),
    [(format_rate, parse_rate_bit_s, 1.0), (format_time, parse_time_s, 1e-9), (format_size, parse_size_bytes, 1.0)],
)
@given(scale=st.floats(min_value=0, max_value=12, exclude_min=True))
def test_what_is_formatted_parses_to_the_same_within_its_four_digits(
    format_value: Callable[[float], str], parse: Callable[[str], float], smallest: float, scale: float
) -> None:
    value = smallest * 10**scale
    # Sizes are whole bytes, so a size of few bytes may lose its fraction.
    assert parse(format_value(value)) == pytest.approx(value, rel=6e-4, abs=1.0 if parse is parse_size_bytes else 0)


def test_formats_choose_the_unit_a_reader_expects() -> None:
    assert format_rate(1e9) == "1 Gbit/s"
    assert format_rate(12_345_678) == "12.35 Mbit/s"
    assert format_time(0.067) == "67 ms"
    assert format_time(0) == "0 ns"
    assert format_size(4_500_000) == "4.5 MB"


@pytest.mark.parametrize(
    ("parse", "text", "meant"),
    [
        (parse_rate_bit_s, "100 Mbps", "Mbit/s"),
        (parse_rate_bit_s, "5kbps", "kbit/s"),
        (parse_rate_bit_s, "1 Gbps", "Gbit/s"),
        (parse_rate_bit_s, "10 mbit", "Mbit/s"),
        (parse_rate_bit_s, "10 MBIT/S", "Mbit/s"),
        (parse_rate_bit_s, "10 Gb/s", "Gbit/s"),
        (parse_rate_bit_s, "10 kbits/sec", "kbit/s"),
        (parse_rate_bit_s, "12.5 MB/s", "100 Mbit/s, which is 12.5 MB/s"),
        (parse_rate_bit_s, "1 GBps", "8 Gbit/s, which is 1 GB/s"),
        (parse_time_s, "30 sec", "s"),
        (parse_time_s, "5 MS", "ms"),
        (parse_time_s, "2 Hours", "h"),
        (parse_time_s, "5 \u03bcs", "us"),
        (parse_size_bytes, "4 mb", "MB"),
        (parse_size_bytes, "4K", "kB"),
        (parse_size_bytes, "4 Mi", "MiB"),
        (parse_ratio, "5 percent", "%"),
    ],
)
def test_a_unit_in_another_spelling_suggests_ours(parse: Callable[[str], float], text: str, meant: str) -> None:
    with pytest.raises(ValueError, match=rf"unknown unit .*; did you mean {re.escape(meant)}\? use one of ") as raised:
        parse(text)
    assert "\n" not in str(raised.value)


def test_a_unit_that_is_like_none_suggests_none() -> None:
    for parse, text in ((parse_rate_bit_s, "3 furlongs"), (parse_time_s, "3 moons"), (parse_size_bytes, "3 MiB/s")):
        with pytest.raises(ValueError, match=r"unknown unit '[^']*'; use one of"):
            parse(text)


@pytest.mark.parametrize(
    ("values", "kind", "unit"),
    [
        ([0.05, 90.0, 3.0], "time", (1.0, "s")),
        ([0.0, 0.05, 2.0, 0.4], "time", (1e-3, "ms")),
        ([4.5e5, 2e9], "size", (1e3, "kB")),
        ([1e9, 37e6, 630e6], "rate", (1e6, "Mbit/s")),
        ([], "size", (1.0, "B")),
        ([0.0], "time", (1.0, "s")),
        ([1e-15], "time", (1e-9, "ns")),
        ([5.0], "", (1.0, "")),
    ],
)
def test_a_column_has_the_unit_of_its_middle_value(values: list[float], kind: str, unit: tuple[float, str]) -> None:
    assert column_unit(values, kind) == unit


def test_numbers_keep_their_significant_digits_and_large_ones_have_no_exponent() -> None:
    assert [significant(value) for value in (0.0, 0.012345, 5.0, 9999.6, 123456.7, -20000.0)] == [
        *("0", "0.01235", "5", "10000", "123457", "-20000"),
    ]
    assert significant(0.3333, 2) == "0.33"
