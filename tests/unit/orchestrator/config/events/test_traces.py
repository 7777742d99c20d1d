"""Traces compiled: by vectors made by hand, and refused with the line at fault."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import InputError
from testbed.core.spec.link_profile import MIN_RATE_BIT_S
from testbed.orchestrator.config.events import traces
from tests.unit.orchestrator.events_of import compiled, faults


def test_a_bin_holds_what_is_earned_up_to_its_end() -> None:
    one_a_ms = list(range(1, 1001))
    assert list(traces.mahimahi_rates(one_a_ms, 1.0, 100)) == [(0.0, 12e6)]
    assert list(traces.mahimahi_rates(one_a_ms, 10.0, 100)) == [(0.0, 12e6)]  # no seam where it wraps


def test_rates_of_bins_by_hand() -> None:
    opportunities = [0, 10, 10, 100, 101, 200, 200, 200, 400]
    # bins of 100 ms: (0, 10, 10, 100), (101, 200, 200, 200), none, (400)
    assert list(traces.mahimahi_rates(opportunities, 0.4, 100)) == [(0.0, 480e3), (0.2, 120e3)]
    # of 200 ms: 8, 1, and the file again
    assert list(traces.mahimahi_rates(opportunities, 0.6, 200)) == [
        (0.0, 8 * 12e3 / 0.2),
        (0.2, 1 * 12e3 / 0.2),
        (0.4, 8 * 12e3 / 0.2),
    ]


def test_an_outage_has_the_rate_at_which_a_packet_takes_as_long() -> None:
    opportunities = [100, 500, 2900, 3000]
    assert list(traces.mahimahi_rates(opportunities, 3.0, 100)) == [
        (0.0, 120e3),
        (0.1, pytest.approx(12e3 / 0.3)),
        (0.4, 120e3),
        (0.5, MIN_RATE_BIT_S),  # 12 kbit in 2.3 s is less than a link may have
        (2.8, 120e3),
    ]


def test_a_last_bin_that_is_cut_is_divided_by_its_own_length() -> None:
    assert list(traces.mahimahi_rates([50, 100, 150], 0.15, 100)) == [(0.0, 240e3)]
    assert list(traces.mahimahi_rates([50, 100, 110, 120, 150], 0.15, 100)) == [(0.0, 240e3), (0.1, 720e3)]


def test_a_wrapping_trace_keeps_its_mean_whatever_the_bins() -> None:
    opportunities = [3, 7, 7, 31, 64, 65, 66, 97]
    for bin_ms in (1, 10, 33, 97, 250):
        rates = list(traces.mahimahi_rates(opportunities, 9.7, bin_ms))
        ends = [*(t_s for t_s, _ in rates[1:]), 9.7]
        bits = sum(rate * (end - start) for (start, rate), end in zip(rates, ends, strict=True) if rate > 1)
        outages = 9.7 * MIN_RATE_BIT_S + 12e3 * len(rates) if bin_ms < 60 else 0  # a packet each, which are not asked
        assert 100 * 8 * 12e3 * (1 - 1e-9) <= bits <= 100 * 8 * 12e3 * (1 + 1e-9) + outages


def entry_of(path: Path, **more: Any) -> dict[str, Any]:
    return {"at": "10 s", "trace": "us-eu", "file": str(path), **more}


def test_a_mahimahi_trace_plays_once_or_wraps(tmp_path: Path) -> None:
    path = tmp_path / "up"
    path.write_text("50\n100\n200\n")
    once = compiled(entry_of(path, format="mahimahi", **{"from": "us"}))
    own = ("us", {"rate_bit_s": 100e6})
    assert [(c.t_s, c.source, c.values["rate_bit_s"]) for c in once] == [
        (10, "us", 240e3),
        (10.1, "us", 120e3),
        (10.2, *own[:1], 100e6),
    ]
    wrapped = compiled(entry_of(path, format="mahimahi", **{"for": "300 ms"}))
    assert [(c.t_s, c.source, c.values["rate_bit_s"]) for c in wrapped] == [
        (10, None, 240e3),
        (10.1, None, 120e3),
        (10.2, None, 240e3),
        (10.3, None, 100e6),
    ]
    cut = compiled(entry_of(path, format="mahimahi", loop=False, **{"for": "1 h"}))
    assert cut[-1].t_s == 10.2
    coarse = compiled(entry_of(path, format="mahimahi", bin="200 ms"))
    assert [c.values["rate_bit_s"] for c in coarse] == [180e3, 100e6]
    (line,) = faults(entry_of(path, format="mahimahi", bin="1500 us"))
    assert line.endswith("bin: must be a whole number of milliseconds, found 1.5 ms")


def test_a_trace_that_is_too_long_is_refused_with_the_figure(tmp_path: Path) -> None:
    path = tmp_path / "up"
    path.write_text("1\n2\n")
    (line,) = faults(entry_of(path, format="mahimahi", **{"for": "10001 s"}))
    assert "makes up to 100010 changes, at most 100000 are taken" in line
    path = tmp_path / "up.csv"
    path.write_text("t_s,loss\n0,0\n1,0.01\n")
    (line,) = faults(entry_of(path, loop=True, **{"for": "30 h"}))
    assert "makes up to 108000 changes" in line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "holds no time above 0"),
        ("0\n0\n", "holds no time above 0"),
        ("5\n4\n", "line 2: 4 ms is before the line above"),
        ("1.5\n", "line 1: '1.5' is not a whole number of milliseconds"),
        ("-1\n", "line 1: '-1' is not"),
        ("x\n" * 9 + "7\n", "and 4 more faults"),
        ("1_0\n", "line 1: '1_0' is not a whole number"),
        ("1\n" + "2" * 5000, "line 2: '2222"),
        ("1600000000123\n1600000000133\n", "line 1: the first time, 1600000000123 ms, is a time of the calendar"),
        ("1\n1700000000\n", "line 2: the time, 1700000000 ms, is a time of the calendar"),
        ("1600000000\n1600000001\n", "line 1: the first time, 1600000000 ms, is a time of the calendar"),
    ],
)
def test_a_bad_mahimahi_file_names_its_line(tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / "up"
    path.write_text(text)
    assert line in faults(entry_of(path, format="mahimahi"))[-1]


def test_csv_rows_hold_until_the_next(tmp_path: Path) -> None:
    path = tmp_path / "link.csv"
    path.write_text(
        "# made by hand\nt_s, rate, rtt, loss\n0, 12e6, 0.1, 0\n1.5, 20 Mbit/s, 120 ms, 0.5%\n\n2, 50%,, \n"
    )
    changes = compiled(entry_of(path))
    assert [(c.t_s, c.source, c.values) for c in changes] == [
        (10, None, {"rate_bit_s": 12e6, "delay_s": 0.05, "loss_ratio": 0.0}),
        (11.5, None, {"rate_bit_s": 20e6, "delay_s": 0.06, "loss_ratio": 0.005}),
        (12, None, {"rate_bit_s": 50e6}),
    ]
    changes = compiled(entry_of(path, loop=True, **{"for": "4 s"}))
    assert [c.t_s for c in changes] == [10, 11.5, 12, 12.5, 14]
    assert changes[3].values["rate_bit_s"] == 12e6  # the last row lasted 0.5 s, as the one before it
    assert changes[4].values == {"rate_bit_s": 100e6, "delay_s": 0.04, "loss_ratio": 0.0}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("t_s,rate\n", "holds no row"),
        (
            "t_s,mbps\n0,12\n",
            "column 'mbps': unknown; known: delay, jitter, loss, rate, rtt, t_s; a bare rate is in bit/s",
        ),
        ("time,rate\n0,12e6\n", "has no t_s"),
        ("t_s\n0\n", "no column to set"),
        ("t_s,rate,rate\n0,1e6,1e6\n", "column 'rate' is there twice"),
        ("t_s,rate\n0,1e6\n0,2e6\n", "line 3: t_s 0 is not after the row above"),
        ("t_s,rate\n-1,1e6\n", "line 2: t_s '-1' is not a number of seconds from 0"),
        ("t_s,rate\nnan,1e6\n", "line 2: t_s 'nan' is not"),
        ("t_s,rate\n0,1e6,3\n", "line 2: 3 cells where the heading has 2"),
        ("t_s,rate\n0,12 Mbps\n1,13 Mbps\n", "at 0 s: rate: rate '12 Mbps': unknown unit 'Mbps'"),
        ("t_s,rate\n0,inf\n", "line 2: at 0 s: rate: rate 'inf': not a number with a unit"),
        ("t_s,rate\n0,1_0\n", "line 2: at 0 s: rate: rate '1_0': unknown unit '_0'"),
        ("t_s,rate\n0,1e-400\n", "line 2: at 0 s: rate: '1e-400' is too small"),
        ("t_s,rate,rtt\n0,,\n1,,\n", "no row has a value, so that nothing would change; fill in rate, rtt"),
        ("t_s,rate\n0,5e6\n1e-9,4e6\n", "line 3: t_s 1e-9 is not after the row above"),
        ("t_s,rate\n0,5e6\n1700000001,4e6\n", "line 3: the time, 1700000001 s, is a time of the calendar"),
        ("t_s,rate\n0,5e6\n20240102,4e6\n", "line 3: the time, 20240102 s, is a time of the calendar"),
        ("t_s,loss\n0,0\n1,0.01\n", "line 3: at 1 s: loss: ratio '0.01': has no %, and may mean 0.01% or 1%"),
        ('t_s,rate\n0,"5 Mbit/s\n1,2 Mbit/s\n', "line 2: a quote is not closed; close it on the same line"),
        ('t_s,rate\n0,"5"x\n', "line 2: is not CSV"),
        ("t_s,rate\n0," + "5" * 200_000, "line 2: is not CSV: field larger than field limit"),
        ("t_s;rate\n0;5e6\n", "line 1: cells are separated by semicolons; separate them by commas"),
        ("t_s" + ",rate" * 30 + "\n0\n", "line 1: has 31 columns"),
        ("t_s,rate\n1600000000.5,5e6\n1600000001.5,2e6\n", "line 2: the first time, 1600000000.5 s, is a time of"),
        ("t_s,rate\n0,\0\n", "line 2: holds the control character U+0000"),
        (
            "t_s,rate\n0,12.5\n",
            "line 2: link us-eu from us at 10 s: rate must be from 10000 to 3.2e+10 bit/s, found 12.5",
        ),
        ("t_s,rtt\n0,67\n", "one-way delay must be from 0 to 5 s, found 33.5 s"),
        ("t_s,rtt,delay\n0,0.1,0.1\n", "rtt and delay exclude each other"),
    ],
)
def test_a_bad_csv_says_what_is_wrong(tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / "link.csv"
    path.write_text(text)
    assert any(line in fault for fault in faults(entry_of(path))), faults(entry_of(path))


def test_one_row_cannot_be_repeated(tmp_path: Path) -> None:
    path = tmp_path / "link.csv"
    path.write_text("t_s,loss\n0,0\n")
    assert faults(entry_of(path, loop=True, **{"for": "9 s"}))[0].endswith(
        "one row cannot be repeated; give a second one, or no loop"
    )


def test_a_rate_of_0_is_an_outage_as_in_a_mahimahi_trace(tmp_path: Path) -> None:
    path = tmp_path / "link.csv"
    path.write_text("t_s,rate\n0,5e6\n1,0\n2,3e6\n3,0 Mbit/s\n3.5,0%\n3.75,4e6\n5,0\n")
    rates = [(c.t_s, c.values["rate_bit_s"]) for c in compiled(entry_of(path))]
    short = 12e3 / 0.75  # one outage of two rows, in which one packet leaves
    assert rates == [
        *((10, 5e6), (11, 12e3), (12, 3e6), (13, short), (13.5, short), (13.75, 4e6)),
        (15, MIN_RATE_BIT_S),
    ]
    path.write_text("t_s,rate\n0,0\n1e-6,5e6\n")
    brief, _ = compiled(entry_of(path))
    assert brief.values["rate_bit_s"] == pytest.approx(12e9), "one packet within a microsecond"
    packets = tmp_path / "link.mahimahi"
    packets.write_text("100\n200\n1000\n")
    (outage,) = [c for c in compiled(entry_of(packets, format="mahimahi")) if c.t_s == 10.2]
    assert outage.values["rate_bit_s"] == pytest.approx(12e3 / 0.7)


def test_a_trace_of_millions_of_lines_is_read_soon(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_text("\n".join(map(str, range(1, 2_000_001))))
    begun_s = time.process_time()
    assert len(traces.read_mahimahi(path)) == 2_000_000
    assert time.process_time() - begun_s < 60, "it takes 0.8 s where nothing else runs, and minutes if it is quadratic"
    path.write_text("t_s,rate,rtt\n" + "".join(f"{row},{5e6 + row},{0.02 + row / 1e7:g}\n" for row in range(100_000)))
    begun_s = time.process_time()
    assert len(compiled(entry_of(path, format="csv"))) == 100_000
    assert time.process_time() - begun_s < 60, "it takes 0.9 s where nothing else runs, and minutes if it is quadratic"
    path.write_text("t_s,rate\n" + "".join(f"{second},5e6\n" for second in range(200_000)))
    with pytest.raises(InputError, match="more than 100000 rows"):
        traces.read_csv(path)
