"""Rows over seeds, what is left out and said, and every form of the table."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest

from testbed.analysis.__main__ import main
from testbed.analysis.comparison import tables
from testbed.analysis.comparison.comparison import Comparison, compare, table
from testbed.analysis.record.identity import kind_of
from testbed.analysis.record.record import load
from testbed.core.record.run_directory import RunDir
from testbed.orchestrator.observation.verdict.judge import CLUSTER
from tests.unit.analysis.compared import template, variant

HOSTILE = "=<b>\x1b[31m&_%$\\"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return template(tmp_path_factory.mktemp("template"))


def compared(runs: list[RunDir], **flags: Any) -> Comparison:
    return compare([load(run.path) for run in runs], **flags)


def test_runs_that_differ_by_the_seed_alone_are_one_row(source: RunDir, tmp_path: Path) -> None:
    runs = [variant(source, tmp_path, n, seed=n, time_s=10.0 + n) for n in range(3)]
    runs += [variant(source, tmp_path, 9, seed=2, time_s=14.0), variant(source, tmp_path, 8, compressor="none")]
    comparison = compared(runs[::-1])
    assert [group.method for group in comparison.groups] == ["none", "topk"], "what others are held against is first"
    row = comparison.groups[1]
    assert (row.seeds(), len(row.taken), row.differs) == ([0, 1, 2], 4, "")
    time_s = row.values()["time_s"]
    assert time_s is not None
    assert time_s.mean == pytest.approx((10 + 11 + 13) / 3), "the two runs of seed 2 count once"
    deviation = math.sqrt(sum((value - time_s.mean) ** 2 for value in (10, 11, 13)) / 2)
    assert time_s.half_width == pytest.approx(4.3027 * deviation / math.sqrt(3), rel=1e-4)
    assert comparison.groups[0].values()["time_s"] is None


def test_what_sets_rows_of_one_method_apart_is_said(source: RunDir, tmp_path: Path) -> None:
    runs = [
        variant(source, tmp_path, 1, density=0.01),
        variant(source, tmp_path, 2, density=0.1),
        variant(source, tmp_path, 3, density=0.1, code_hash="0dd5"),
        variant(source, tmp_path, 4, strategy="torch_ddp"),
        variant(source, tmp_path, 5, topo="other"),
    ]
    found = {(group.setting[0], group.label) for group in compared(runs).groups}
    assert found == {
        ("wan", "ddp topk density=0.01 code=feed"),
        ("wan", "ddp topk density=0.1 code=feed"),
        ("wan", "ddp topk density=0.1 code=0dd5"),
        ("wan", "torch_ddp topk"),
        ("other", "ddp topk"),
    }


def test_what_sets_rows_of_several_methods_apart_is_said(source: RunDir, tmp_path: Path) -> None:
    runs = [
        variant(source, tmp_path, 1, compressor="none", steps=20, rtt_s=0.01),
        variant(source, tmp_path, 2, steps=500, rtt_s=0.2),
        variant(source, tmp_path, 3, steps=500, rtt_s=0.2, density=0.1),
        variant(source, tmp_path, 4, steps=500, rtt_s=0.2, code_hash="0dd5", compressor="int8"),
    ]
    comparison = compared(runs)
    assert [group.label for group in comparison.groups] == [
        "ddp none steps=20 topo.rtt=10 ms",
        "ddp int8 steps=500 topo.rtt=200 ms",
        "ddp topk density=0.01 steps=500 topo.rtt=200 ms",
        "ddp topk density=0.1 steps=500 topo.rtt=200 ms",
    ]
    found = table(comparison)
    assert found.headings[:7] == (
        *("strategy", "compressor", "steps", "topo.rtt", "compressor.density", "seeds", "verdicts"),
    )
    assert [row[:5] for row in found.rows] == [
        ("ddp", "none", "20", "10 ms", "0.01"),
        ("ddp", "int8", "500", "200 ms", "0.01"),
        ("ddp", "topk", "500", "200 ms", "0.01"),
        ("ddp", "topk", "500", "200 ms", "0.1"),
    ]


def test_networks_that_are_unlike_in_what_is_not_named_are_told_apart(source: RunDir, tmp_path: Path) -> None:
    runs = [
        variant(source, tmp_path, 1, compressor="none", steps=20),
        variant(source, tmp_path, 2, steps=500, jitter_s=0.001),
    ]
    labels = [group.label for group in compared(runs).groups]
    assert all(" topology=" in label for label in labels) and "steps=500" in labels[1]


def test_a_run_without_a_readable_spec_tells_others_nothing_apart(source: RunDir, tmp_path: Path) -> None:
    runs = [variant(source, tmp_path, 1), variant(source, tmp_path, 2, compressor="none")]
    runs[0].spec.write_text("{}")
    assert [group.label for group in compared(runs).groups] == ["ddp none", "ddp topk"]


def without_summary(run: RunDir, *events: dict[str, Any]) -> str:
    for file in (run.summary, run.network, run.samples):
        file.unlink(missing_ok=True)
    run.events.write_text("".join(json.dumps({"t_s": -1.0, "detail": "", **event}) + "\n" for event in events))
    return kind_of(load(run.path))


def test_the_kind_of_an_unfinished_run_is_what_its_record_says(source: RunDir, tmp_path: Path) -> None:
    one = variant(source, tmp_path, 1, kind="simulated")
    assert kind_of(load(one.path)) == "simulated"
    one.summary.unlink()
    assert kind_of(load(one.path)) == "emulated", "it has a network.json"
    stage = {"event": "schedule", "what": "network"}
    assert without_summary(one, stage) == "emulated"
    assert without_summary(one, stage | {"what": CLUSTER}, stage | {"what": "go"}) == "measured"
    assert without_summary(one) == "unknown"


def test_no_events_are_read_for_a_kind_that_a_summary_says(source: RunDir, tmp_path: Path) -> None:
    one = variant(source, tmp_path, 1)
    record = load(one.path)
    one.events.unlink()
    one.events.mkdir()
    assert kind_of(record) == "emulated" and "events" not in vars(record)


def test_what_may_not_be_believed_is_left_out_and_said(source: RunDir, tmp_path: Path) -> None:
    runs = [
        variant(source, tmp_path, 1, seed=1, time_s=1.0),
        variant(source, tmp_path, 2, seed=2, time_s=100.0, verdict="invalid"),
        variant(source, tmp_path, 3, seed=3, time_s=3.0, verdict="suspect"),
        variant(source, tmp_path, 4, compressor="none", verdict="invalid"),
    ]
    runs[3].summary.unlink()
    comparison = compared(runs)
    (row,) = comparison.groups
    time_s = row.values()["time_s"]
    assert time_s is not None and time_s.mean == 2.0
    text = tables.text(comparison)
    assert "1 invalid, 1 suspect, 1 valid (1 left out)" in text
    assert (
        f"Left out: 2 of 4 runs, invalid or unfinished: {runs[1].run_id} (invalid), {runs[3].run_id} (unfinished)"
        in text
    )
    everything = compared(runs, take_all=True)
    assert len(everything.groups) == 2 and not everything.left_out and "Left out" not in tables.text(everything)


def test_a_value_that_not_all_have_says_so(source: RunDir, tmp_path: Path) -> None:
    metric = {"name": "accuracy", "value": 0.5, "best": 0.5, "target": 0.9, "time_to_target_s": None}
    reached = {**metric, "best": 0.9, "time_to_target_s": 8.0}
    runs = [variant(source, tmp_path, n, seed=n, metric=reached if n else metric) for n in range(3)]
    comparison = compared(runs)
    found = table(comparison)
    assert found.rows[0][found.headings.index("to target (s)")] == "8, 8 (2 of 3)"
    assert "k of the n runs" in tables.text(comparison)


def test_damaged_values_are_missing_ones(source: RunDir, tmp_path: Path) -> None:
    run = variant(source, tmp_path, 1, time_s="long", compression_ratio=True, seed=[1])
    text = run.summary.read_text()
    run.summary.write_text(text.replace('"payload": null', f'"payload": 1e999, "wire_wan": {"9" * 400}'))
    run.spec.write_text("{}")
    comparison = compared([run])
    assert not [
        key
        for key, found in comparison.groups[0].values().items()
        if found and not key.startswith(("metric", "time_to"))
    ]
    json.dumps(tables.to_json(comparison), allow_nan=False)


def test_what_cannot_be_read_is_named_under_the_table(source: RunDir, tmp_path: Path) -> None:
    run = variant(source, tmp_path, 1)
    run.network.write_text("[" * 100_000)
    run.spec.write_text('{"topology": 7}')
    run.samples.unlink()
    run.samples.symlink_to("/etc/passwd")
    lines = tables.text(compared([run])).splitlines()
    for fault in ("network.json is not JSON", "spec.json is no spec", "samples.parquet is no regular file"):
        assert sum(line.startswith(f"{run.run_id}: {fault}") for line in lines) == 1


def test_json_says_all_in_base_units(source: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [variant(source, tmp_path, n, seed=n, time_s=float(n)) for n in (1, 2)]
    runs.append(variant(source, tmp_path, 3, verdict="invalid"))
    assert main(["compare", "--format", "json", *(str(run.path) for run in runs)]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["interval"] == "95 % interval over seeds, Student's t"
    (row,) = found["rows"]
    assert row["run_ids"] == [runs[0].run_id, runs[1].run_id] and row["seeds"] == [1, 2]
    assert row["values"]["time_s"]["mean"] == 1.5
    assert row["values"]["time_s"]["high"] == pytest.approx(1.5 + 12.7062 * 0.5, rel=1e-4)
    assert row["asked"]["compressor.density"] == "0.01" and row["asked"]["topo.rtt"] == "60 ms"
    assert found["left_out"] == [{"run_id": runs[2].run_id, "verdict": "invalid"}]
    assert runs[2].run_id in captured.err


def test_csv_has_a_line_a_row(source: RunDir, tmp_path: Path) -> None:
    runs = [variant(source, tmp_path, n, seed=n, time_s=float(n)) for n in (1, 2)]
    runs.append(variant(source, tmp_path, 3, compressor=HOSTILE))
    rows = list(csv.DictReader(tables.to_csv(compared(runs)).splitlines()))
    found = {row["compressor"]: row for row in rows}
    assert set(found) == {"topk", "'" + HOSTILE.replace("\x1b", "?")} and {row["strategy"] for row in rows} == {"ddp"}
    assert (found["topk"]["seeds"], found["topk"]["valid"], found["topk"]["time_s_mean"]) == ("2", "2", "1.5")
    assert found["topk"]["payload_bytes_mean"] == ""


def test_latex_is_escaped_and_a_booktabs_table(source: RunDir, tmp_path: Path) -> None:
    runs = [variant(source, tmp_path, n, seed=n, time_s=float(n), compressor=HOSTILE) for n in (1, 2)]
    lines = tables.latex(compared(runs)).splitlines()
    body = [line for line in lines if not line.startswith("%")]
    assert body[0] == r"\begin{tabular}{llllrrrrrrrrr}" and body[-1] == r"\end{tabular}"
    assert [line for line in body if line.endswith("rule")] == [r"\toprule", r"\midrule", r"\bottomrule"]
    (row,) = [line for line in body if r"\textless{}b" in line]
    assert row.startswith(r"ddp & =\textless{}b\textgreater{}?[31m\&\_\%\$\textbackslash{} & 2 & 2 valid & 0.9, 0.9 & ")
    assert row.count(" & ") == 12


def test_a_table_does_not_steer_the_terminal(source: RunDir, tmp_path: Path) -> None:
    assert "\x1b" not in tables.text(compared([variant(source, tmp_path, 1, compressor=HOSTILE)]))


def test_nothing_to_compare_is_said(source: RunDir, tmp_path: Path) -> None:
    run = variant(source, tmp_path, 1, verdict="invalid")
    text = tables.text(compared([run]))
    assert "nothing to compare" in text and run.run_id in text
    assert tables.latex(compared([run])) and tables.to_csv(compared([run])).count("\n") == 0


FILES = [{"path": "/data/train.py", "sha256": "1" * 64, "size_bytes": 9, "modified_s": 1.0}]


def hooks(**params: Any) -> list[dict[str, Any]]:
    return [{"name": "topk", "target": "compressors.topk.TopK", "params": params}]


def test_two_versions_of_the_user_s_code_are_never_in_one_row(source: RunDir, tmp_path: Path) -> None:
    runs = [
        variant(source, tmp_path, 1, user_code="a" * 16, used_files=FILES, time_s=1.0),
        variant(source, tmp_path, 2, user_code="a" * 16, used_files=FILES, time_s=3.0, seed=1),
        variant(source, tmp_path, 3, user_code="b" * 16, used_files=FILES, time_s=90.0, seed=2),
    ]
    comparison = compared(runs)
    assert [(group.label, group.seeds()) for group in comparison.groups] == [
        ("ddp topk user_code=aaaaaa", [0, 1]),
        ("ddp topk user_code=bbbbbb", [2]),
    ]
    assert [row["user_code"] for row in tables.to_json(comparison)["rows"]] == ["a" * 16, "b" * 16]
    (alone,) = compared(runs[:2]).groups
    assert alone.label == "ddp topk", "one version need not be told"


def test_a_hook_that_a_script_chose_is_what_rows_are_named_for(source: RunDir, tmp_path: Path) -> None:
    script = {"strategy": "script", "compressor": "none"}
    runs = [
        variant(source, tmp_path, 1, **script, hooks=hooks(density=0.01, feedback="auto")),
        variant(source, tmp_path, 2, **script, hooks=hooks(density=0.1), seed=1),
        variant(source, tmp_path, 3, **script, seed=2),
    ]
    comparison = compared(runs)
    assert {group.method for group in comparison.groups} == {
        "script topk density=0.01",
        "script topk density=0.1",
        "script",
    }
    assert {group.properties()["compressor"] for group in comparison.groups} == {
        "by the script: topk density=0.01",
        "by the script: topk density=0.1",
        "none",
    }


def test_strategy_and_compressor_are_columns_of_their_own(source: RunDir, tmp_path: Path) -> None:
    runs = [variant(source, tmp_path, 1, compressor="none"), variant(source, tmp_path, 2, strategy="local_sgd")]
    runs.append(variant(source, tmp_path, 3, strategy="local_sgd", compressor="none"))
    found = table(compared(runs))
    assert found.headings[:2] == ("strategy", "compressor")
    assert {row[:2] for row in found.rows} == {("ddp", "none"), ("local_sgd", "topk"), ("local_sgd", "none")}


def test_a_column_has_one_unit_and_says_it(source: RunDir, tmp_path: Path) -> None:
    for number, (seconds, sent) in enumerate([(0.11, 5e5), (2.525, 2.0955e9), (0.8, 3e6)]):
        times = {"mean": seconds, "p50": seconds, "p95": seconds, "exchange_p50": 3 * seconds}
        sizes = {"payload": sent, "wire_total": sent, "wire_wan": sent, "dense": sent}
        variant(source, tmp_path, number, density=number / 10 + 0.1, step_time_s=times, bytes=sizes)
    found = table(compare([load(path) for path in sorted(tmp_path.iterdir())]))
    step = found.headings.index("median step (ms)")
    assert found.headings[step + 1] == "median exchange (s)", "steps and exchanges have medians of their own"
    assert [row[step] for row in found.rows] == ["110", "2525", "800"]
    payload = found.headings.index("payload (MB)")
    assert [row[payload] for row in found.rows] == ["0.5", "2096", "3"]


def test_two_seeds_show_both_values_and_three_an_interval(source: RunDir, tmp_path: Path) -> None:
    runs = [variant(source, tmp_path, n, seed=n, time_s=10.0 + n) for n in (2, 1)]
    two = compared(runs)
    time = table(two).headings.index("time (s)")
    assert table(two).rows[0][time] == "11, 12" and "Two values are those of two seeds" in tables.text(two)
    assert tables.to_json(two)["rows"][0]["values"]["time_s"]["values"] == [11.0, 12.0]
    three = compared([*runs, variant(source, tmp_path, 3, seed=3, time_s=13.0)])
    assert table(three).rows[0][time] == "12 ± 2.5"


def test_best_and_last_are_columns_that_say_so(source: RunDir, tmp_path: Path) -> None:
    metric = {"name": "accuracy", "value": 0.4111, "best": 0.4944, "target": None, "time_to_target_s": None}
    run = variant(source, tmp_path, 1, metric=metric)
    found = table(compared([run]))
    named = dict(zip(found.headings, found.rows[0], strict=True))
    assert (named["best accuracy"], named["last accuracy"]) == ("0.4944", "0.4111")
    other = variant(source, tmp_path, 2, topo="other", metric={**metric, "name": "perplexity"})
    found = table(compared([run, other]))
    assert sorted(row[found.headings.index("last metric")] for row in found.rows) == [
        *("accuracy 0.4111", "perplexity 0.4111"),
    ]


def test_parameters_of_a_part_that_another_run_has_not_are_not_told_apart(source: RunDir, tmp_path: Path) -> None:
    runs = [variant(source, tmp_path, n, compressor=name) for n, name in enumerate(("none", "topk"))]
    spec = json.loads(runs[1].spec.read_text())
    spec["device"] |= {"name": "paced", "params": {"step_s": 0.2, "codec_speedup": 1, "work_s": None}}
    runs[1].spec.write_text(json.dumps(spec))
    assert {group.differs for group in compared(runs).groups} == {"device=native", "device=paced"}


def test_exports_have_every_number_of_a_summary(source: RunDir, tmp_path: Path) -> None:
    comparison = compared([variant(source, tmp_path, 1, wall_s=77.0, density=0.5), variant(source, tmp_path, 2)])
    (row, _) = csv.DictReader(tables.to_csv(comparison).splitlines())
    for key in (
        "metric_last",
        "wall_s",
        "step_p95_s",
        "forward_s",
        "exposed_communication_s",
        "wire_bytes",
        "dense_bytes",
    ):
        assert f"{key}_mean" in row and key in tables.to_json(comparison)["rows"][0]["values"]
    assert {one["compressor.density"] for one in csv.DictReader(tables.to_csv(comparison).splitlines())} == {
        "0.5",
        "0.01",
    }
