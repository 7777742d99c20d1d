"""Tables of a page have one unit a column, named in its heading."""

from __future__ import annotations

import re

from testbed.analysis.report.measured_table import measured_table


def test_a_column_has_one_unit_and_what_is_missing_stays_so() -> None:
    columns = ("link", ("rate", "rate"), ("RTT", "time"), ("loss", "ratio"), "probes")
    rows = [("a", 1e8, 0.067, 0.001, 20), ("b", 2.5e7, None, 0.0, 20), ("c", 1e6, 0.02, None, 20)]
    html = measured_table(columns, rows)
    for heading in ("rate (Mbit/s)", "RTT (ms)", "loss (%)", "probes"):
        assert html.count(f">{heading}<") == 1
    text = " ".join(re.sub(r"<[^>]*>", " ", html.partition("<tbody>")[2]).split())
    assert text == "a 100 67 0.1 20 b 25 - 0 20 c 1 20 - 20"


def test_without_a_value_a_column_is_there() -> None:
    assert "sent (B)" in measured_table(("link", ("sent", "size")), [("a", None)])


def test_what_is_compared_has_the_unit_of_what_was_asked() -> None:
    rates = (("target rate", "rate"), ("measured", "rate", "target rate"))
    columns = (*rates, ("target RTT", "time"), ("measured", "time"))
    html = measured_table(columns, [(1e9, 0.996e9, 0.067, 0.0002)])
    assert re.findall(r"<th[^>]*>([^<]+)", html) == [
        *("target rate (Gbit/s)", "measured (Gbit/s)", "target RTT (ms)", "measured (us)")
    ]
    assert re.findall(r"<td[^>]*>([^<]+)", html) == ["1", "0.996", "67", "200"]
    assert "measured (Mbit/s)" in measured_table(columns, [(None, 0.996e9, None, None)])
