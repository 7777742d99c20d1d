"""When clients are there: what a trace says, what chance does, and which files are refused."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from pathlib import Path

import pytest

from testbed.worker.methods.federated.clients.availability import Alternating, Availability, Trace

LINES = ["client,from_s,until_s", "0,0,10", "0,20,30", "1,5,8", "0,10,12", "2,0,40"]


def _file(folder: Path, lines: list[str]) -> str:
    path = folder / f"trace{len(list(folder.iterdir()))}.csv"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_a_trace_has_its_times_and_nobody_after_them(tmp_path: Path) -> None:
    trace = Trace(file=_file(tmp_path, LINES))
    assert [trace.until_s(0, now_s) for now_s in (0, 9, 11.5, 12, 19, 20, 30, 99)] == [
        *(12, 12, 12, None, None, 30, None, None)
    ]
    assert [trace.next_s(0, now_s) for now_s in (3, 12, 30)] == [3, 20, math.inf]
    assert trace.next_s(1, 0) == 5 and trace.until_s(1, 4.9) is None
    assert trace.until_s(7, 0) is None and trace.next_s(7, 0) == math.inf  # nobody has said when


def test_a_trace_begins_anew_after_its_period_and_who_stays_over_its_end_stays(tmp_path: Path) -> None:
    trace = Trace(file=_file(tmp_path, [*LINES, "0,35,40"]), period_s=40)
    assert trace.until_s(1, 3 * 40 + 6) == 3 * 40 + 8
    assert trace.next_s(1, 40 + 8) == 80 + 5
    assert trace.until_s(0, 40 + 36) == 80 + 12  # it is there again at once
    assert trace.until_s(0, 80 + 1) == 80 + 12
    assert trace.until_s(2, 1e6) == math.inf


def test_a_file_is_refused_with_all_its_faults(tmp_path: Path) -> None:
    lines = ["client,from_s,until_s", "0,0,10", "0,9,12", "-1,0,1", "x,0,1", "1,5,5", "1,0,nan", "2,0,50", "3,1", ""]
    with pytest.raises(ValueError, match="line 3") as caught:
        Trace(file=_file(tmp_path, lines), period_s=40)
    told = str(caught.value)
    for fault in (
        "line 3: client 0 is there already, by line 2",
        "line 4: client=-1",
        "line 5: 'x,0,1': must be a whole number and two numbers",
        "line 6: from_s=5, until_s=5",
        "line 7: '1,0,nan'",
        "line 8: until_s=50: is after period_s=40",
        "line 9: '3,1'",
    ):
        assert fault in told, fault
    assert len(told.splitlines()) == 7


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["client,from,until"], "line 1: must be client,from_s,until_s"),
        (LINES[:1], "no client is ever available"),
        ([*LINES[:1], *["x"] * 50], "and 30 more"),
        ([*LINES[:1], "0,1600000000,1600000060"], "line 2: the first time, 1600000000 s, is a time of the calendar"),
        ([*LINES[:1], "0,1600000000123,1600000060000"], "line 2: the first time, 1600000000123 s, is"),
        ([*LINES[:1], '0,"1,2'], "line 2: a quote is not closed"),
        ([*LINES[:1], "0,1_0,2_0"], "line 2: '0,1_0,2_0': must be a whole number and two numbers"),
        ([*LINES[:1], "0,١,٢"], "line 2: "),
        ([*LINES[:1], "0,1,1e999"], "line 2: "),
        (["client;from_s;until_s", "0;1;2"], "line 1: cells are separated by semicolons"),
        ([*LINES[:1], "0,0,\0"], "line 2: holds the control character"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, lines: list[str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Trace(file=_file(tmp_path, lines))


def test_a_path_has_to_be_absolute_and_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"(?s)^file=trace.csv: must be the absolute path.*\nperiod_s=0: "):
        Trace(file="trace.csv", period_s=0)
    with pytest.raises(ValueError, match="No such file"):
        Trace(file=str(tmp_path / "none.csv"))


def test_clients_that_there_are_not_are_told(tmp_path: Path) -> None:
    trace = Trace(file=_file(tmp_path, LINES))
    assert list(trace.faults(3)) == []
    (fault,) = trace.faults(1)
    assert "names 2 clients that there are not (1, 2)" in fault


def _shares(availability: Availability, at_s: float, clients: int) -> float:
    return sum(availability.until_s(client, at_s) is not None for client in range(clients)) / clients


def test_client_and_time_alone_decide_and_seeds_differ() -> None:
    times = [random.Random(1).random() * 1000 for _ in range(50)]
    asked = [(client, at_s) for client in range(20) for at_s in times]
    one, other = (Alternating(present_s=30, absent_s=60).of_run(seed) for seed in (3, 3))
    forward = [one.until_s(*each) for each in asked]
    assert forward == [other.until_s(*each) for each in reversed(asked)][::-1]
    assert forward != [Alternating(present_s=30, absent_s=60).of_run(4).until_s(*each) for each in asked]
    own = Alternating(present_s=30, absent_s=60, seed=3).of_run(99)
    assert forward == [own.until_s(*each) for each in asked]


def test_as_many_are_there_as_the_means_say_at_first_and_later() -> None:
    availability = Alternating(present_s=30, absent_s=60)
    for at_s in (0.0, 5.0, 2000.0):
        assert _shares(availability, at_s, 2000) == pytest.approx(1 / 3, abs=0.04)


def test_times_are_exponential_and_one_ends_where_the_next_begins() -> None:
    availability, at_s, spans = Alternating(present_s=30, absent_s=60), 0.0, []
    for _ in range(2000):
        from_s = availability.next_s(0, at_s)
        until_s = availability.until_s(0, from_s)
        assert until_s is not None and until_s > from_s
        assert availability.until_s(0, until_s) is None and availability.until_s(0, (from_s + until_s) / 2) == until_s
        spans.append((from_s, until_s))
        at_s = until_s
    present = [until_s - from_s for from_s, until_s in spans]
    absent = [after[0] - before[1] for before, after in pairwise(spans)]
    for found, mean in ((present, 30), (absent, 60)):
        assert sum(found) / len(found) == pytest.approx(mean, rel=0.1)
        assert sum(one > mean for one in found) / len(found) == pytest.approx(math.exp(-1), abs=0.04)


def test_bad_means_are_refused_together() -> None:
    with pytest.raises(ValueError, match=r"(?s)present_s=0:.*\nabsent_s=inf:.*\nseed=-1:"):
        Alternating(present_s=0, absent_s=math.inf, seed=-1)
