"""The tables of the benchmarks: what they mark, and that they stay between their markers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.benchmarks import document
from experiments.benchmarks import registry as tables
from experiments.benchmarks.compressors import tables as compression_tables
from experiments.benchmarks.dear import dear
from experiments.benchmarks.dear import tables as dear_bell
from experiments.benchmarks.links import tables as tables_tables
from experiments.common import page as document_page
from experiments.common import sources as members
from experiments.common import testnet as inside
from experiments.common.harness import Point, Results, points_of

INSIDE: dict[str, Any] = {
    "burst_rate_bit_s": 99.5e6,
    "flow_rate_bit_s": 99e6,
    "flow_full_share": 0.5,
    "goodput_bit_s": 95e6,
    "probes": 210,
    **{f"{way}_{share}_s": 0.0501 for way in ("forward", "backward") for share in ("p50", "p99")},
    "rtt_p50_s": 0.1008,
    "rtt_p99_s": 0.1009,
}


def point(*, busy: bool = True, **result: Any) -> dict[str, Any]:
    asked = {"rate_bit_s": 100e6, "rtt_s": 0.1, "busy": busy}
    return {"asked": asked, "result": {**INSIDE, **result}, "is_disturbed": False, "others_cores": 0.0}


@pytest.mark.parametrize(
    ("found", "faults"),
    [
        (point(), []),
        (point(burst_rate_bit_s=98.9e6), ["rate"]),
        (point(burst_rate_bit_s=None), ["rate"]),
        (point(rtt_p50_s=0.1011), ["median RTT"]),
        (point(rtt_p99_s=0.1011), ["p99 RTT"]),
        (point(rtt_p99_s=0.1011, busy=False), []),
        (point(probes=0), ["no probe"]),
    ],
)
def test_a_point_outside_its_target_is_marked(found: dict[str, Any], faults: list[str]) -> None:
    assert tables_tables.accuracy_faults(found) == faults
    row = tables.of("accuracy", [found]).splitlines()[-1]
    assert ("inside" in row) == (not faults)


@pytest.mark.parametrize(("goodput_bit_s", "steady"), [(95.6e6, True), (96.5e6, False), (None, False)])
def test_goodput_beyond_the_rate_is_no_figure(goodput_bit_s: float | None, steady: bool) -> None:
    row = tables.of("accuracy", [point(goodput_bit_s=goodput_bit_s)]).splitlines()[-1]
    assert ("not steady" in row) == (not steady)
    assert ("95.6" in row) == steady


def test_the_window_of_a_flow_begins_after_a_stretch_without_drops() -> None:
    watch = inside.QueueWatch(lambda: None)  # type: ignore[arg-type, return-value]
    drops = {1.0: 3, 4.5: 4, 5.2: 5, 9.0: 6}
    watch.samples = [inside.Sample(tick / 10, 0, 0, sum(at_s <= tick / 10 for at_s in drops)) for tick in range(120)]
    assert watch.calm_from_s(3.0, 8.0, 1.0) == 3.0
    assert watch.calm_from_s(4.0, 8.0, 1.0) == 4.0
    assert watch.calm_from_s(4.6, 8.0, 1.0) == 6.2  # the second falls into the calm after the first
    assert watch.calm_from_s(5.0, 5.5, 1.0) == 5.5
    assert watch.calm_from_s(6.5, 8.0, 1.0) == 6.5
    assert watch.drops(4.0, 6.0) == 2


def test_the_middle_of_an_even_number_of_values_is_between_two() -> None:
    assert inside.median([1.0, 2.0, 4.0, 9.0]) == 3.0
    assert inside.median([]) is None


def system(name: str, **result: Any) -> dict[str, Any]:
    asked = {"system": name, "rate_bit_s": 100e6, "rtt_s": 0.067}
    rates = {"filled_rate_bit_s": 99e6, "filled_rates_bit_s": [98e6, 100e6]}
    found = {**rates, "probes": 100, "rtt_p50_s": 0.068, "rtt_p99_s": 0.070, **result}
    return {"asked": asked, "result": found, "is_disturbed": False, "others_cores": 0.0}


def test_what_plain_mininet_is_asked_one_way_is_half_of_the_round_trip() -> None:
    *_, ours, plain = tables.of("netem", [system("mininet", filled_rate_bit_s=None), system("longhaul")]).splitlines()
    assert ours == "| 100 Mbit/s | 67 ms | 33.5 ms | longhaul, netem | -1.00 | -2.00 to +0.00 | +1.000 / +3.000 | 100 |"
    assert plain.startswith("| 100 Mbit/s | 67 ms | 33.5 ms | Mininet, TCLink | - |")


def test_plain_mininet_stands_beside_ours_at_its_rate() -> None:
    asked = {"bw_mbit_s": 100, "delay": None, "busy": True}
    result = {"burst_rate_bit_s": 98e6, "flow_rate_bit_s": 97e6, "goodput_bit_s": 9e7, "rtt_p50_s": 1e-5, "said": []}
    plain = {"asked": asked, "result": result, "is_disturbed": False, "others_cores": 0.0}
    ours = point()
    ours["asked"]["rtt_s"] = 0.0002
    row = tables.of("mininet_tclink", [plain], [ours]).splitlines()[-1]
    assert row.startswith("| 100 | none | busy | -2.00 | -0.50 | -3.00 |")


def test_points_never_measured_are_named_and_those_not_asked_any_more_go(tmp_path: Path) -> None:
    results = Results(tmp_path, "accuracy")
    asked = [Point({"rate_bit_s": rate}, 1) for rate in (1e6, 2e6, 3e6)]
    for one in (asked[0], Point({"rate_bit_s": 9e6}, 1)):
        results.keep(one, "code", {"others_cores": 0.0, "is_disturbed": False, "result": {}})
    found, missing = results.of(asked)
    assert [one["asked"] for one in found] == [asked[0].asked] and missing == asked[1:]
    said = document_page.missing_line(missing, len(found))
    assert said.startswith("2 of 3 points were never measured") and '"rate_bit_s": 2000000.0' in said
    results.keep_only(asked)
    assert list(results.points) == [asked[0].key]


def test_every_benchmark_names_points_and_how_long_each_takes() -> None:
    for name in tables.NAMES:
        for quick in (True, False):
            points = points_of(name, quick=quick)
            assert points and all(one.seconds > 0 for one in points)
            assert len({one.key for one in points}) == len(points)


def test_a_table_replaces_what_was_between_its_markers_and_nothing_else() -> None:
    page = "a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb\n<!-- y: begin -->\n<!-- y: end -->\n"
    assert document_page.between(page, "x", "new") == page.replace("old", "new")
    with pytest.raises(ValueError, match="z"):
        document_page.between(page, "z", "new")


def test_the_page_has_a_place_for_every_table() -> None:
    for name in tables.NAMES:
        page = document.ELSEWHERE.get(name, document.PAGE)
        assert document_page.between(page.read_text(), name, "") != ""
        assert document_page.between(page.read_text(), "machine", "") != ""


def test_of_two_disturbed_measurements_the_less_disturbed_stays(tmp_path: Any) -> None:
    results = Results(tmp_path, "accuracy")
    asked = Point({"rate_bit_s": 1e6}, 1)
    for others in (0.5, 0.3, 0.9):
        results.keep(asked, "code", {"others_cores": others, "is_disturbed": True, "result": {}})
    (kept,) = Results(tmp_path, "accuracy").found()
    assert kept["others_cores"] == 0.3
    assert not results.has(asked, "code")
    assert results.is_disturbed(asked, "code") and not results.is_disturbed(asked, "other code")


def test_a_slowed_transfer_is_held_against_all_repeats_at_once() -> None:
    def repeat(k: int, number: int, *warm_s: float) -> dict[str, Any]:
        asked = {"what": "all_reduce", "congestion": "reno", "k": k, "repeat": number}
        result = {"first_s": 2.0, "warm_s": list(warm_s), "median_s": 0.0}
        return {"asked": asked, "result": result, "is_disturbed": False, "others_cores": 0.0}

    text = tables.of("dilation", [repeat(1, 0, 1.0, 1.0), repeat(1, 1, 1.2, 1.2), repeat(2, 0, 1.2, 1.2, 1.2)])
    assert text.splitlines()[-2].split(" | ")[5:] == ["1.100", "+0.0", "reported |"]
    assert text.splitlines()[-1].split(" | ")[5:] == ["1.200", "+9.1", "outside |"]


def _learnt(compressor: str, *accuracies: float) -> list[dict[str, Any]]:
    return [
        {
            "asked": {"compressor": compressor, "seed": seed},
            "result": {"metric": {"value": value}, "dense_bytes": 100, "sent_bytes": 10},
        }
        for seed, value in enumerate(accuracies)
    ]


def test_half_a_point_is_judged_by_the_interval_of_the_differences() -> None:
    table = compression_tables.learning(
        _learnt("none", 0.870, 0.860, 0.865)
        + _learnt("close", 0.869, 0.859, 0.865)
        + _learnt("far", 0.850, 0.841, 0.845)
        + _learnt("torn", 0.870, 0.850, 0.860)
        + _learnt("once", 0.870)
    )
    verdicts = {row.split(" | ")[0].strip("| "): row.split(" | ")[4] for row in table.splitlines()[2:]}
    assert verdicts == {"none": "yes", "close": "yes", "far": "no", "torn": "open", "once": "one seed"}
    # by hand: differences -0.1, -0.1 and 0 points, of standard deviation 0.0577; 4.303 * 0.0577 / sqrt(3) = 0.143
    assert "| -0.07 ± 0.14 |" in table


def test_a_members_figures_depend_on_its_own_files_and_what_they_import() -> None:
    files = {path.name for path in members.compressor_files("int8_zstd")}
    assert {
        "zstd.py",
        "int8.py",
        "blockwise.py",
        "codec_process.py",
        "codec_child.py",
        "compressor.py",
        "routes.py",
        "int8_zstd.yaml",
    } <= files
    assert not {"topk.py", "sz3.py", "selection.py"} & files


def of_the_bell(kind: str, ratio: float, step_s: float, verdict: str = "valid") -> dict[str, Any]:
    asked = {"kind": kind, "ratio": ratio, "repeat": 0}
    return {"asked": asked, "result": {"step_s": step_s, "verdict": verdict}, "is_disturbed": False}


def test_the_bell_has_what_was_measured_and_leaves_out_what_is_invalid() -> None:
    points = [
        *(of_the_bell("dear", ratio, 2.0) for ratio in (1.0, 2.0, 4.0)),
        *(of_the_bell("overlapped", 2.0, 2.5), of_the_bell("overlapped", 4.0, 9.0, "invalid")),
        of_the_bell("one bucket", 1.0, 3.0),
    ]
    assert dear_bell.gains(points, "overlapped") == [(2.0, 1.25)]
    assert dear_bell.gains(points, "one bucket") == [(1.0, 1.5)]
    text = dear_bell.draw(points)
    assert text.startswith("<svg xmlns=") and text.endswith("</svg>\n")
    assert "measured over overlapped" in text and "measured over after backward" not in text
    assert text == dear_bell.draw(points)


def test_the_bound_of_the_bell_peaks_where_the_all_reduce_takes_twice_the_backward_pass() -> None:
    ratios = [ratio / 100 for ratio in range(10, 1000)]
    peak = max(ratios, key=lambda ratio: dear_bell.bound("overlapped", ratio))
    assert (peak, dear_bell.bound("overlapped", peak)) == (2.0, pytest.approx(1.25))
    assert dear_bell.bound("overlapped", 0.5) == pytest.approx(1.0)
    assert dear_bell.bound("one bucket", 2.0) == pytest.approx(1.75)
    assert set(dear_bell.LOOKS) == set(dear.KINDS) - {"dear"}
