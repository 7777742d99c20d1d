"""What the dashboards ask Prometheus: all of it parses, and what is computed is right.

Series are synthetic, a sample a second for a minute, with values whose ratios are exact in binary.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dashboards.interpolate import Target, targets
from dashboards.vocabulary.queries import LESS_IS_BETTER
from testbed.orchestrator.machine.clone import CLONE
from tests.unit.dashboards.promtool import check_rules, evaluate, promtool, sent

FOLDER = Path(__file__).resolve().parents[3] / "dashboards" / "grafana"
TARGETS = [target for path in sorted(FOLDER.glob("*.json")) for target in targets(json.loads(path.read_text()))]
A, B = 'run="a",topo="wan1g",compressor="none"', 'run="b",topo="wan1g",compressor="topk"'
IN_A, IN_B = '{compressor="none",run="a"}', '{compressor="topk",run="b"}'
EAST, BACK = 'link="e-w",source="e",target="w"', 'link="e-w",source="w",target="e"'
OF_EAST, OF_BACK = ('{link="e-w",run="a",source="e",target="w"}', '{link="e-w",run="a",source="w",target="e"}')
ALIKE = 'workload="digits",strategy="ddp",workers="4",device="native"'
SETTING = 'kind="emulated",setting="ab"'
OVER_WAN = {f'longhaul_link_configured_rtt_seconds{{{A},link="e-w"}}': "0.0625x60"}
RATES = {
    f"longhaul_link_{told}_bytes_per_second{{{A},{way}}}": f"{rate}x60"
    for told in ("configured", "asked")
    for way, rate in ((EAST, 1048576), (BACK, 2097152))
}


def of(panel: str, ref_id: str = "A", kind: str = "") -> Target:
    """The query of a panel, by its title."""
    return next(t for t in TARGETS if t.panel == panel and t.ref_id == ref_id and kind in t.kind)


def ranks(metric: str, common: str, *values: str) -> dict[str, str]:
    """Series of rank 0, 1 and so on, in promtool's notation."""
    return {f'{metric}{{{common},rank="{rank}"}}': told for rank, told in enumerate(values)}


def phases(common: str, rank: int, **values: str) -> dict[str, str]:
    """Series of the time that a rank spent in each phase."""
    name = f'longhaul_train_phase_seconds_total{{{common},rank="{rank}"'
    return {f'{name},phase="{phase}"}}': told for phase, told in values.items()}


def test_every_target_parses(tmp_path: Path) -> None:
    exprs = {f"t{number}:{target.panel_id}": sent(target.expr) for number, target in enumerate(TARGETS)}
    found = check_rules(exprs, tmp_path)
    assert found.returncode == 0, found.stdout + found.stderr
    assert f"{len(TARGETS)} rules found" in found.stdout


def test_a_target_that_does_not_parse_is_found(tmp_path: Path) -> None:
    assert check_rules({"broken:1": "sum by (run (x)"}, tmp_path).returncode != 0


def test_time_to_target_is_the_summary_s(tmp_path: Path) -> None:
    name = f'longhaul_run_time_to_target_seconds{{{A},name="accuracy"}}'
    evaluate(of("Time to target").expr, {name: "_x20 12.5"}, {IN_A: 12.5}, tmp_path)


def test_time_to_an_accuracy_is_read_off_the_step_clock(tmp_path: Path) -> None:
    """0.75 is reached after 30 s. Steps of rank 1 began 2 s late and took half a second of each: rank 0 counts."""
    series = {
        f'longhaul_train_metric_ratio{{{A},name="accuracy"}}': "0.25x29 0.75x30",
        f'longhaul_train_metric_ratio{{{B},name="accuracy"}}': "0.5x60",
        **phases(A, 0, forward="0+0.25x60", exposed_communication="0+0.5x60", communicate="0+8x60"),
        **phases(A, 1, forward="_x2 0+0.5x58"),
        **phases(B, 0, forward="0+0.5x60"),
    }
    evaluate(of("Time to $accuracy accuracy").expr, series, {IN_A: 22.5}, tmp_path)


def test_the_best_metric_is_the_highest_or_the_fewest_bits(tmp_path: Path) -> None:
    series = {
        f'longhaul_train_metric_ratio{{{A},name="roc_auc"}}': "0.5 0.9375 0.75x58",
        f'longhaul_train_metric_ratio{{{A},name="accuracy"}}': "0.25 0.875 0.75x58",
        f'longhaul_train_metric_ratio{{{B},name="bits_per_byte"}}': "5 2.5 3x58",
    }
    expected = {
        '{compressor="none",name="accuracy",run="a"}': 0.875,
        '{compressor="none",name="roc_auc",run="a"}': 0.9375,
        '{compressor="topk",name="bits_per_byte",run="b"}': 2.5,
    }
    evaluate(of("Best metric").expr, series, expected, tmp_path)


def test_of_every_workload_s_metric_it_is_known_which_way_is_better() -> None:
    folder = CLONE / "testbed" / "worker" / "workloads"
    metrics = [found for path in folder.glob("*.py") for found in re.findall(r"Metric\((.*?)\)", path.read_text())]
    less = {re.search(r'name="(\w+)"', one)[1] for one in metrics if "higher_is_better=False" in one}  # type: ignore[index]
    assert len(metrics) > 5 and less == set(LESS_IS_BETTER.split("|"))


def test_links_are_held_against_what_was_asked_at_that_moment(tmp_path: Path) -> None:
    """The link of 1 MiB/s is full, then half as fast and full; the round trip becomes twice as long."""
    series = {
        f"longhaul_link_transmit_bytes_total{{{A},{EAST}}}": "0+1048576x30 31981568+524288x28",
        f"longhaul_link_asked_bytes_per_second{{{A},{EAST}}}": "1048576x30 524288x28",
        **{f"longhaul_link_asked_delay_seconds{{{A},{way}}}": "0.03125x30 0.0625x28" for way in (EAST, BACK)},
        f'longhaul_link_rtt_seconds{{{A},link="e-w"}}': "0.0625x30 0.125x28",
        **OVER_WAN,
    }
    evaluate(of("Use of the WAN links").expr, series, {OF_EAST: 1}, tmp_path)
    evaluate(of("Round trip above target").expr, series, {'{link="e-w",run="a"}': 0}, tmp_path)


def test_bytes_on_the_wire_over_bytes_claimed(tmp_path: Path) -> None:
    """Two workers: what leaves them counts, neither what reaches them nor what the WAN link carries."""
    series = {
        f'longhaul_node_cpu_seconds_total{{{A},node="e-0"}}': "0+1x60",
        f'longhaul_node_cpu_seconds_total{{{A},node="w-0"}}': "0+1x60",
        f'longhaul_link_transmit_bytes_total{{{A},link="e-0-e",source="e-0",target="e"}}': "0+640x60",
        f'longhaul_link_transmit_bytes_total{{{A},link="e-0-e",source="e",target="e-0"}}': "0+999x60",
        f'longhaul_link_transmit_bytes_total{{{A},link="w-0-w",source="w-0",target="w"}}': "0+512x60",
        f"longhaul_link_transmit_bytes_total{{{A},{EAST}}}": "0+777x60",
        **ranks("longhaul_payload_bytes_total", A, "0+512x60", "0+512x60"),
        **OVER_WAN,
    }
    evaluate(of("Bytes on the wire over bytes claimed").expr, series, {IN_A: 1.125}, tmp_path)


def test_compression_is_dense_bytes_over_bytes_claimed(tmp_path: Path) -> None:
    series = {
        f"longhaul_dense_bytes_per_step{{{A}}}": "4096x60",
        **ranks("longhaul_train_steps_total", A, "0+2x60", "0+2x60"),
        **ranks("longhaul_payload_bytes_total", A, "0+64x60", "0+64x60"),
    }
    evaluate(of("Compression claimed").expr, series, {IN_A: 64}, tmp_path)
    evaluate(of("Compression over time").expr, series, {IN_A: 64}, tmp_path)


def test_use_of_a_link_is_its_throughput_over_what_was_asked(tmp_path: Path) -> None:
    series = {
        f"longhaul_link_transmit_bytes_total{{{A},{EAST}}}": "0+524288x60",
        f"longhaul_link_transmit_bytes_total{{{A},{BACK}}}": "0+524288x60",
        f'longhaul_link_transmit_bytes_total{{{A},link="e-0-e",source="e-0",target="e"}}': "0+524288x60",
        **RATES,
        **OVER_WAN,
    }
    evaluate(of("Use of the WAN links").expr, series, {OF_EAST: 0.5, OF_BACK: 0.25}, tmp_path)


def test_queueing_delay_is_what_waits_over_the_rate(tmp_path: Path) -> None:
    series = {f"longhaul_link_queue_bytes{{{A},{EAST}}}": "131072x60", **RATES, **OVER_WAN}
    evaluate(of("Queueing delay").expr, series, {OF_EAST: 0.125}, tmp_path)


def test_the_error_of_a_measured_round_trip(tmp_path: Path) -> None:
    """Of both directions, though it was asked of the link."""
    series = {
        f'longhaul_link_measured_rtt_seconds{{{A},{EAST},stage="idle"}}': "_x3 0.078125x57",
        f'longhaul_link_measured_rtt_seconds{{{A},{BACK},stage="idle"}}': "0.0625x60",
        f'longhaul_link_measured_rtt_seconds{{{A},{EAST},stage="busy"}}': "9x60",
        **RATES,
        **OVER_WAN,
    }
    evaluate(of("Target and measured", "D").expr, series, {OF_EAST: 0.0625, OF_BACK: 0.0625}, tmp_path)
    evaluate(of("Target and measured", "G").expr, series, {OF_EAST: 0.25, OF_BACK: 0.0}, tmp_path)


PHASES = {
    **phases(
        A, 0, forward="0+0.125x60", backward="0+0.125x60", exposed_communication="0+0.75x60", communicate="0+1x60"
    ),
    **phases(A, 1, forward="0+0.25x60", backward="0+0.25x60", exposed_communication="0+0.5x60", communicate="0+1x60"),
}


def test_overlap_is_what_communication_did_not_expose(tmp_path: Path) -> None:
    evaluate(of("Communication hidden behind computing").expr, PHASES, {IN_A: 0.375}, tmp_path)


def test_where_a_step_s_time_goes_adds_up_to_one(tmp_path: Path) -> None:
    shares = {"backward": 0.1875, "exposed_communication": 0.625, "forward": 0.1875}
    expected = {f'{{phase="{phase}",run="a"}}': share for phase, share in shares.items()}
    evaluate(of("Where a step's time goes").expr, PHASES, expected, tmp_path)
    evaluate(of("Where the time went").expr, PHASES, expected, tmp_path)


def test_efficiency_is_what_a_worker_alone_would_need(tmp_path: Path) -> None:
    evaluate(of("Scaling efficiency").expr, PHASES, {IN_A: 0.375}, tmp_path)


def test_a_straggler_is_held_against_the_median(tmp_path: Path) -> None:
    third = phases(A, 2, forward="0+0.25x60")
    evaluate(of("Slowest rank over the median").expr, PHASES | third, {IN_A: 2}, tmp_path)


def test_where_nothing_is_sent_there_is_no_ratio_rather_than_nan(tmp_path: Path) -> None:
    series = {
        f"longhaul_dense_bytes_per_step{{{A}}}": "4096x60",
        **ranks("longhaul_train_steps_total", A, "0x60"),
        **ranks("longhaul_payload_bytes_total", A, "0x60"),
    }
    evaluate(of("Compression over time").expr, series, {}, tmp_path)
    evaluate(of("Compression claimed").expr, series, {}, tmp_path)


@pytest.mark.parametrize(("word", "code"), [("valid", 0), ("suspect", 1), ("invalid", 2)])
def test_a_verdict_has_a_number(word: str, code: int, tmp_path: Path) -> None:
    words = ("valid", "suspect", "invalid")
    series = {f'longhaul_verdict{{{A},verdict="{each}"}}': f"_x30 {int(each == word)}" for each in words}
    evaluate(of("Verdict").expr, series, {IN_A: code}, tmp_path)


def test_cores_are_short_as_the_verdict_has_it(tmp_path: Path) -> None:
    """Run a is idle and nobody waits; b has no idle core and somebody waits nearly throughout."""
    series = {
        f"longhaul_run_dilation_ratio{{{A}}}": "1x60",
        f"longhaul_run_dilation_ratio{{{B}}}": "1x60",
        f"longhaul_host_cpu_idle_ratio{{{A}}}": "0.75x60",
        f"longhaul_host_cpu_pressure_seconds_total{{{A}}}": "0+0.125x60",
        f"longhaul_host_cpu_idle_ratio{{{B}}}": "0x60",
        f"longhaul_host_cpu_pressure_seconds_total{{{B}}}": "0+0.9375x60",
    }
    evaluate(of("Were cores short?").expr, series, {IN_A: 0, IN_B: 2}, tmp_path)


def test_shares_of_the_wall_clock_do_not_grow_with_the_dilation(tmp_path: Path) -> None:
    """Both use a core by 12.5 %; b at a dilation of 4, so that an emulated second holds half a second of it."""
    series = {
        f"longhaul_run_dilation_ratio{{{A}}}": "1x60",
        f"longhaul_run_dilation_ratio{{{B}}}": "4x60",
        f"longhaul_collector_cpu_seconds_total{{{A}}}": "0+0.125x60",
        f"longhaul_collector_cpu_seconds_total{{{B}}}": "0+0.5x60",
        f"longhaul_host_cpu_pressure_seconds_total{{{A}}}": "0+0.125x60",
        f"longhaul_host_cpu_pressure_seconds_total{{{B}}}": "0+0.5x60",
    }
    for title in ("What observing costs", "Waiting for a core"):
        evaluate(of(title).expr, series, {IN_A: 0.125, IN_B: 0.125}, tmp_path)


def _seeds(values: dict[str, tuple[str, str, float]], more: str = SETTING) -> dict[str, str]:
    """Runs by name: (compressor, seed, time to target)."""
    series = {}
    for run, (compressor, seed, seconds) in values.items():
        common = f'run="{run}",topo="wan1g",compressor="{compressor}"'
        info = f'{ALIKE},{more},seed="{seed}",dilation="1",verdict="{"invalid" if run == "bad" else "valid"}"'
        series[f"longhaul_run_info{{{common},{info}}}"] = "1x30"
        series[f'longhaul_run_time_to_target_seconds{{{common},name="accuracy"}}'] = f"_x20 {seconds}"
    return series


RUNS = _seeds(
    {
        "n1": ("none", "1", 20),
        "n2": ("none", "2", 12),
        "t1": ("topk", "1", 2),
        "t1-again": ("topk", "1", 6),
        "t2": ("topk", "2", 12),
        "bad": ("topk", "3", 1000),
        "lone": ("int8", "1", 4),
    }
)


def group(compressor: str, more: str = SETTING) -> str:
    return f'{{compressor="{compressor}",topo="wan1g",{ALIKE},{more}}}'


def test_speed_up_is_over_runs_without_compression_and_leaves_invalid_ones_out(tmp_path: Path) -> None:
    expected = {group("none"): 1, group("topk"): 2, group("int8"): 4}
    evaluate(of("Speed-up over no compression").expr, RUNS, expected, tmp_path)


def test_a_seed_that_ran_twice_counts_once(tmp_path: Path) -> None:
    evaluate(of("Over seeds", "A").expr, RUNS, {group("none"): 2, group("topk"): 2, group("int8"): 1}, tmp_path)
    evaluate(of("Over seeds", "C").expr, RUNS, {group("none"): 16, group("topk"): 8, group("int8"): 4}, tmp_path)


@pytest.mark.parametrize(
    "more", ['kind="measured",setting="ab"', 'kind="emulated",setting="cd"', f'{SETTING},parameters="density=0.1"']
)
def test_what_was_asked_otherwise_or_is_of_another_kind_is_never_averaged_with_it(more: str, tmp_path: Path) -> None:
    alike = _seeds({"n1": ("none", "1", 20), "t1": ("topk", "1", 4)})
    other = _seeds({"n2": ("none", "2", 30), "t2": ("topk", "2", 3)}, more)
    expected = {group("none"): 20, group("topk"): 4, group("none", more): 30, group("topk", more): 3}
    evaluate(of("Over seeds", "C").expr, alike | other, expected, tmp_path)
    speed_up = {group("none"): 1, group("topk"): 5, group("none", more): 1, group("topk", more): 10}
    if "parameters" not in more:  # `none` has none, so it would be none of a sweep's
        evaluate(of("Speed-up over no compression").expr, alike | other, speed_up, tmp_path)


def test_the_deviation_is_a_sample_s_and_a_single_seed_has_none(tmp_path: Path) -> None:
    """Of 2, 2, 2 and 10: 4, where the deviation of a whole population would be the root of 12."""
    series = _seeds({"s1": ("topk", "1", 2), "s2": ("topk", "2", 2), "s3": ("topk", "3", 2), "s4": ("topk", "4", 10)})
    lone = _seeds({"lone": ("int8", "1", 4)})
    evaluate(f"round({of('Over seeds', 'E').expr}, 0.0625)", series | lone, {group("topk"): 4}, tmp_path)


STUDENT_T = [(2, 12.7062), (3, 4.30265), (4, 3.18245), (6, 2.57058), (11, 2.22814)]


@pytest.mark.parametrize(("count", "student_t"), STUDENT_T)
def test_the_interval_is_student_s(count: int, student_t: float, tmp_path: Path) -> None:
    """Half the seeds at 8 and half at 16, and one in the middle if they are odd in number."""
    times = [8.0] * (count // 2) + [12.0] * (count % 2) + [16.0] * (count // 2)
    series = _seeds({f"s{n}": ("topk", str(n), value) for n, value in enumerate(times)})
    deviation = (sum((value - 12) ** 2 for value in times) / (count - 1)) ** 0.5
    half = student_t * deviation / count**0.5
    found = of("Over seeds", "D").expr
    # promtool compares exactly: that it lies within 0.2% is what is asked.
    evaluate(f"(abs({found}) / {half} - 1) < bool 0.002", series, {group("topk"): 1}, tmp_path)
    evaluate(f"(1 - abs({found}) / {half}) < bool 0.002", series, {group("topk"): 1}, tmp_path)


def test_promtool_finds_a_wrong_value(tmp_path: Path) -> None:
    promtool("--version")
    with pytest.raises(AssertionError, match="FAILED"):
        evaluate(of("Time to target").expr, RUNS, {'{compressor="none",run="n1"}': 21}, tmp_path)
