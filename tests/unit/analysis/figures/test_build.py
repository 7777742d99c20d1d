"""What is in a figure's table: means and bands over seeds, panels of at most eight series, and what is left out."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from statistics import fmean

import pytest

from testbed.analysis.figures.build import KINDS, build
from testbed.analysis.figures.run_figures import named_targets, wan_rate
from testbed.analysis.figures.table import Figure, Series, label_heights
from testbed.analysis.record.curves import curves_of
from testbed.analysis.record.record import Record, load
from testbed.core.errors import InputError
from testbed.core.record.figure_kinds import FIGURE_KINDS
from tests.unit.analysis.figures.drawn_runs import BYTES_PER_STEP, drawn_run

STRATEGIES = ("ddp", "local_sgd", "diloco", "gossip")
COMPRESSORS = ("none", "topk", "int8", "powersgd", "fp16", "sz3", "randomk", "bf16", "qsgd", "dgc", "signsgd", "zfp")


def only_series(figure: Figure) -> Series:
    (panel,) = figure.panels
    (series,) = panel.series
    return series


def test_every_kind_is_described() -> None:
    assert list(KINDS) == list(FIGURE_KINDS)


def test_a_curve_is_the_mean_over_seeds_and_its_band_their_range(tmp_path: Path) -> None:
    records = [load(drawn_run(tmp_path, seed=seed)) for seed in (0, 1, 2)]
    series = only_series(build(records, "accuracy_over_steps"))
    values = [dict(accuracy_by_step(record)) for record in records]
    assert series.x == tuple(float(step) for step in values[0])
    for step, low, mid, high in zip(series.x, series.low, series.mid, series.high, strict=True):
        found = [100 * one[int(step)] for one in values]
        assert (low, mid, high) == pytest.approx((min(found), fmean(found), max(found)))
    assert series.run_ids == tuple(record.run_id for record in records)


def accuracy_by_step(record: Record) -> list[tuple[int, float]]:
    return [(event["step"], event["value"]) for event in record.of_kind("evaluation")]


def test_an_interval_is_wider_than_the_range_and_one_seed_has_none(tmp_path: Path) -> None:
    records = [load(drawn_run(tmp_path, seed=seed)) for seed in (0, 1, 2)]
    ranges, intervals = (only_series(build(records, "time_to_target", band=band)) for band in ("range", "interval"))
    assert intervals.low[0] < ranges.low[0] and intervals.high[0] > ranges.high[0]
    assert not only_series(build(records[:1], "time_to_target", band="interval")).has_band


def test_repeats_of_a_seed_count_once(tmp_path: Path) -> None:
    once = [load(drawn_run(tmp_path / "once", seed=seed)) for seed in (0, 1)]
    repeats = [load(drawn_run(tmp_path / "more", seed=seed)) for seed in (0, 0, 0, 1)]
    assert only_series(build(once, "time_to_target")).mid == only_series(build(repeats, "time_to_target")).mid


def test_a_target_of_ones_own_is_the_first_evaluation_that_reached_it(tmp_path: Path) -> None:
    record = load(drawn_run(tmp_path))
    (curves,) = curves_of([record])
    expected = next(t_s for t_s, value in curves.metric if value >= 0.5)
    found = build([record], "time_to_target", target=0.5)
    assert only_series(found).mid == pytest.approx([1e3 * expected])
    assert found.panels[0].y.label == "emulated time to target (ms)"
    figure = build([record], "accuracy_over_time", target=0.5)
    assert [guide.label for guide in figure.panels[0].guides] == ["target 50 %"]


def test_a_metric_that_should_fall_reaches_its_target_from_above(tmp_path: Path) -> None:
    record = load(drawn_run(tmp_path, metric="perplexity"))
    (curves,) = curves_of([record])
    expected = next(t_s for t_s, value in curves.metric if value <= 20)
    assert only_series(build([record], "time_to_target", target=20)).mid == pytest.approx([expected])
    assert build([record], "accuracy_over_time").panels[0].y.label == "perplexity"


def test_some_runs_that_reached_the_target_are_counted_and_are_no_point_of_a_front(tmp_path: Path) -> None:
    never = {"metric": {"name": "accuracy", "value": 0.5, "best": 0.5, "target": 0.9, "time_to_target_s": None}}
    records = [
        load(drawn_run(tmp_path, "ddp", "topk", seed=0)),
        load(drawn_run(tmp_path, "ddp", "topk", seed=1, **never)),
        load(drawn_run(tmp_path, "ddp", "none", seed=0)),
    ]
    times = build(records, "time_to_target")
    assert times.panels[0].x.categories == ("none", "topk (1 of 2)")
    front = build(records, "pareto")
    assert [one.label for one in front.panels[0].series] == ["none"]
    assert "1 of 2 configurations did not reach the target in every run." in front.notes


def test_a_point_of_the_front_is_time_and_bytes_until_the_target(tmp_path: Path) -> None:
    record = load(drawn_run(tmp_path, "ddp", "int8"))
    point = only_series(build([record], "pareto"))
    seconds = (record.summary or {})["metric"]["time_to_target_s"]
    steps = round(seconds / ((record.summary or {})["phase_s"]["communicate"]))
    assert point.mid == pytest.approx([seconds])
    assert point.x == pytest.approx([steps * BYTES_PER_STEP["int8"] / 1e6])


@pytest.mark.parametrize(("workers", "is_shared"), [(8, True), (400, False)])
def test_steps_that_can_be_compared_share_a_scale(tmp_path: Path, workers: int, is_shared: bool) -> None:
    runs = [drawn_run(tmp_path, "ddp", "none"), drawn_run(tmp_path, "ddp", "none", topo="lan", workers=workers)]
    found = build([load(run) for run in runs], "step_split")
    assert (len({panel.y.range for panel in found.panels}) == 1) == is_shared
    assert ("Each panel has a scale of its own." in found.notes) != is_shared


def test_phases_add_up_to_the_step(tmp_path: Path) -> None:
    record = load(drawn_run(tmp_path))
    (panel,) = build([record], "step_split").panels
    total = sum(one.mid[0] for one in panel.series)
    unit = 1e-3 if "(ms)" in panel.y.label else 1.0
    assert total * unit == pytest.approx((record.summary or {})["phase_s"]["communicate"])


def test_link_use_is_a_share_of_the_target_rate(tmp_path: Path) -> None:
    record = load(drawn_run(tmp_path, "ddp", "none"))
    step_s = (record.summary or {})["phase_s"]["communicate"]
    (panel,) = build([record], "link_use").panels
    shares = {one.label: fmean(one.mid) for one in panel.series}
    per_second = BYTES_PER_STEP["none"] / step_s / 12.5e6 * 100
    assert shares == pytest.approx(
        {"oregon to virginia": 0.4 * per_second, "virginia to oregon": 0.6 * per_second}, rel=1e-3
    )
    both = build([record, load(drawn_run(tmp_path, "ddp", "topk"))], "link_use").panels[0].series[0]
    assert both.label == "none" and fmean(both.mid) == pytest.approx(0.5 * per_second, rel=1e-3)


def test_scaling_joins_numbers_of_workers_into_one_series(tmp_path: Path) -> None:
    records = [load(drawn_run(tmp_path, "ddp", "topk", workers=workers)) for workers in (2, 4, 8)]
    figure = build(records, "scaling")
    series = only_series(figure)
    step_s = [(record.summary or {})["phase_s"]["communicate"] for record in records]
    assert series.x == figure.panels[0].x.ticks == (2.0, 4.0, 8.0)
    assert series.mid == pytest.approx([32 * n / s for n, s in zip((2, 4, 8), step_s, strict=True)])
    (linear,) = figure.panels[0].guides
    assert [y / x for x, y in zip(linear.x, linear.y, strict=True)] == pytest.approx([series.mid[0] / 2] * 2)
    assert linear.y[1] == pytest.approx(figure.panels[0].y.range[1]), "it ends where it would leave the panel"


@pytest.mark.parametrize(
    ("methods", "sizes", "titles"),
    [
        ([("ddp", name) for name in COMPRESSORS[:8]], [8], [""]),
        ([("ddp", name) for name in COMPRESSORS], [6, 6], ["", ""]),
        ([(s, c) for s in STRATEGIES for c in COMPRESSORS[:4]], [4] * 4, list(STRATEGIES)),
        ([(s, c) for s in STRATEGIES for c in COMPRESSORS[:3]], [3] * 4, list(STRATEGIES)),
        ([("ddp", name) for name in COMPRESSORS[:8]] + [("dear", "none")], [8, 1], ["ddp", "dear"]),
    ],
)
def test_more_than_eight_series_become_panels(
    tmp_path: Path, methods: list[tuple[str, str]], sizes: list[int], titles: list[str]
) -> None:
    figure = build([load(drawn_run(tmp_path, *method)) for method in methods], "accuracy_over_time")
    assert [len(panel.series) for panel in figure.panels] == sizes
    assert [panel.title for panel in figure.panels] == titles
    assert figure.has_direct_labels == (len(sizes) > 1)
    assert len({panel.x.range for panel in figure.panels}) == len({panel.y.range for panel in figure.panels}) == 1
    ids = [run for panel in figure.panels for one in panel.series for run in one.run_ids]
    assert len(ids) == len(set(ids)) == len(methods)


def test_a_method_has_one_style_on_all_networks(tmp_path: Path) -> None:
    records = [
        load(drawn_run(tmp_path, "ddp", name, topo=topo)) for topo in ("wan", "lan") for name in ("none", "topk")
    ]
    figure = build(records, "accuracy_over_time")
    assert [panel.title for panel in figure.panels] == ["lan", "wan"]
    styles = [{one.label: one.style for one in panel.series} for panel in figure.panels]
    assert styles[0] == styles[1]


def test_panels_of_compressors_show_a_strategy_alike_where_one_lacks(tmp_path: Path) -> None:
    pairs = itertools.product(STRATEGIES, ("none", "topk", "int8"))
    found = [load(drawn_run(tmp_path, *pair)) for pair in pairs if pair != ("diloco", "none")]
    panels = build(found, "time_to_target").panels
    assert [len(panel.series) for panel in panels] == [3, 4, 4]
    assert len({one.style for panel in panels for one in panel.series if one.strategy == "gossip"}) == 1


def test_settings_of_one_method_are_told_apart_and_other_differences_are_said(tmp_path: Path) -> None:
    records = [load(drawn_run(tmp_path, "ddp", "topk", density=density)) for density in (0.01, 0.1)]
    figure = build([*records, load(drawn_run(tmp_path, "ddp", "none"))], "accuracy_over_time")
    assert [one.label for one in figure.panels[0].series] == ["none", "topk density=0.01", "topk density=0.1"]
    assert len({one.style for one in figure.panels[0].series}) == 3


def test_invalid_runs_are_left_out_and_named(tmp_path: Path) -> None:
    good = load(drawn_run(tmp_path, "ddp", "topk"))
    bad = load(drawn_run(tmp_path, "ddp", "none", verdict="invalid"))
    figure = build([good, bad], "accuracy_over_time")
    assert only_series(figure).compressor == "topk"
    assert figure.left_out == (f"Left out: 1 of 2 runs, invalid or unfinished: {bad.run_id} (invalid).",)
    both = build([good, bad], "accuracy_over_time", allow_invalid=True)
    assert len(both.panels[0].series) == 2 and both.left_out == ()


def test_curves_of_wide_and_narrow_ends(tmp_path: Path) -> None:
    near = [load(drawn_run(tmp_path, "ddp", name)) for name in ("topk", "sz3")]
    far = [load(drawn_run(tmp_path, "ddp", name)) for name in ("none", "powersgd")]
    assert not build(near, "accuracy_over_bytes").panels[0].x.is_log
    assert build(far, "accuracy_over_bytes").panels[0].x.is_log


def test_a_record_that_lacks_fields_says_so(tmp_path: Path) -> None:
    path = drawn_run(tmp_path)
    (path / "events.jsonl").write_text(json.dumps({"event": "evaluation", "t_s": 1}) + "\n")
    figure = build([load(path)], "accuracy_over_time")
    assert figure.panels == () and any("cannot be drawn: KeyError" in note for note in figure.notes)


def test_unknown_choices_are_refused_at_once() -> None:
    with pytest.raises(InputError) as refused:
        build([], "acuracy_over_time", band="sigma")
    assert [fault.partition(";")[0] for fault in refused.value.faults] == [
        "kind 'acuracy_over_time' is unknown",
        "band 'sigma' is unknown",
    ]
    assert "did you mean 'accuracy_over_time'?" in refused.value.faults[0]


def test_direct_labels_do_not_overlap_and_stay_in_the_panel(tmp_path: Path) -> None:
    figure = build([load(drawn_run(tmp_path, "ddp", name)) for name in COMPRESSORS], "accuracy_over_time")
    for panel in figure.panels:
        heights = sorted(label_heights(panel))
        assert heights[0] >= -1e-9 and heights[-1] <= 1 + 1e-9
        assert all(after - before > 0.07 for before, after in itertools.pairwise(heights))


def test_a_link_that_is_hardly_used_is_no_flat_line(tmp_path: Path) -> None:
    record = load(drawn_run(tmp_path, "ddp", "powersgd"))
    use, rate = build([record], "link_use").panels[0], wan_rate(record)
    assert use.y.range[1] < 50 and max(use.series[0].high) <= use.y.range[1] / 1.04
    assert rate.notes == ("Target: 100 Mbit/s, above the panel.",) and rate.panels[0].guides == ()
    busy = load(drawn_run(tmp_path, "ddp", "none"))
    assert [guide.label for guide in wan_rate(busy).panels[0].guides] == ["target 100"]


def test_targets_that_lie_close_share_a_label() -> None:
    levels = [13.0, 27.0, 29.0, 31.0, 197.0]
    found = named_targets(levels, (0.0, 340.0))
    assert [value for _, value in found] == levels
    assert [label for label, _ in found if label] == ["target 13", "target 197"]
