"""Runs in Python: typed frames, one run's record, means over seeds; and what starting a run lacks is said."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import longhaul
from longhaul import starting
from testbed.core.record import run_row

RUNS = Path(__file__).resolve().parents[2] / "data" / "oracles" / "runs"
LOCAL_SGD = "20261127T201340Z-two_regions-local_sgd-powersgd-49f8e94e"
pytestmark = pytest.mark.filterwarnings("ignore:left out. 1 entries.*expected.json")

DDP = "20261127T201206Z-two_regions-ddp-topk-69dc4d3e"


def copied(root: Path, number: int, **changes: Any) -> Path:
    """Return a copy of a run under another name; `changes` go into its summary, `seed` into its spec too."""
    path = root / f"20270102T{number:06d}Z-two_regions-local_sgd-powersgd-{number:08x}"
    shutil.copytree(RUNS / LOCAL_SGD, path)
    for name in ("summary.json", "spec.json"):
        file = json.loads((path / name).read_text())
        told = changes if name == "summary.json" else {key: changes[key] for key in changes.keys() & {"seed"}}
        (path / name).write_text(
            json.dumps({**file, "verdict": "valid", **told} if name == "summary.json" else file | told)
        )
    return path


def test_columns_have_types_and_units() -> None:
    found = longhaul.runs(RUNS)
    assert len(found) == len(list(RUNS.glob("2*")))
    for name in ("status", "verdict", "topo", "workload", "strategy", "compressor", "metric_name"):
        assert isinstance(found[name].dtype, pd.CategoricalDtype), name
    for name in ("seed", "workers", "wan_bytes", "payload_bytes"):
        assert found[name].dtype == "Int64", name
    for name in ("time_s", "metric_best", "metric_last", "step_p50_s", "exchange_p50_s", "time_to_target_s"):
        assert found[name].dtype == "float64", name
    assert str(found["started"].dtype).startswith("datetime64") and found["started"].is_monotonic_increasing
    (run,) = found[found.run_id == DDP].to_dict("records")
    assert (run["strategy"], run["compressor"], run["seed"], run["wan_bytes"]) == ("ddp", "topk", 3, 942614)
    assert Path(run["path"]) == RUNS / DDP


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        ({"strategy": "local_sgd"}, 1),
        ({"compressor": ["topk", "int8"], "seed": 3}, 2),
        ({"seed": (4, 5)}, 2),
        ({"status": "failed"}, 1),
        ({"since": "2026-11-27T20:15:00"}, 2),
        ({"since": datetime(2026, 11, 27, 20, 15, tzinfo=UTC)}, 2),
        ({"topo": "nowhere"}, 0),
    ],
)
def test_filters_all_hold(filters: dict[str, Any], count: int) -> None:
    found = longhaul.runs(RUNS, **filters)
    assert len(found) == count and "time_s" in found


def test_every_fault_of_a_call_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(longhaul.InputError) as error:
        longhaul.runs(tmp_path / "none", status="complete", verdict="ok")
    assert len(error.value.faults) == 3 and "did you mean completed?" in error.value.faults[0]
    with pytest.raises(longhaul.InputError, match="neither an age"):
        longhaul.runs(RUNS, since="yesterday")


def test_what_cannot_be_read_is_left_out_and_said(tmp_path: Path) -> None:
    copied(tmp_path, 1)
    (copied(tmp_path, 2) / "summary.json").write_text("{")
    (tmp_path / "notes").mkdir()
    with pytest.warns(UserWarning, match=r"2 entries .* cannot be read: .*damaged.*notes: foreign"):
        assert len(longhaul.runs(tmp_path)) == 1


def test_a_table_of_runs_reads_each_summary_once_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        copied(tmp_path, number)
    read: list[Path] = []
    real = run_row.read_object
    monkeypatch.setattr(run_row, "read_object", lambda path: read.append(path) or real(path))
    assert len(longhaul.runs(tmp_path)) == 5
    assert len(set(read)) == len(read) == 5 and {path.name for path in read} == {"summary.json"}


def test_settings_are_columns_where_runs_differ() -> None:
    found = longhaul.runs(RUNS, settings=True)
    assert found["device.step_s"].dtype == "float64" and "strategy.attackers" not in found
    assert found.set_index("run_id").loc[LOCAL_SGD, "device.step_s"] == 0.2


def test_a_run_is_found_by_id_and_by_path() -> None:
    for run in (longhaul.Run(LOCAL_SGD, RUNS), longhaul.Run(RUNS / LOCAL_SGD)):
        assert (run.run_id, run.status, run.verdict) == (LOCAL_SGD, "completed", "invalid")
        assert run.reasons and run.spec["seed"] == 4 and (run.summary or {})["workers"] == 2
    with pytest.raises(longhaul.InputError, match=f"did you mean {LOCAL_SGD}"):
        longhaul.Run(LOCAL_SGD[:-1], RUNS)


def test_the_record_of_a_run_is_frames() -> None:
    run = longhaul.Run(LOCAL_SGD, RUNS)
    steps = run.steps()
    assert list(steps.groupby("step").size()) == [2] * 6 and steps["rank"].dtype == "Int64"
    assert (steps[["step_s", "forward_s", "optimizer_s"]] > 0).all(axis=None) and not steps["left_out"].any()
    assert int(steps["payload_bytes"].sum()) == (run.summary or {})["bytes"]["payload"]
    assert run.evaluations()["value"].max() == (run.summary or {})["metric"]["best"]
    links = run.links()
    assert int(links.loc[links.wan, "wire_bytes"].sum()) == (run.summary or {})["bytes"]["wire_wan"]
    assert (links.loc[links.wan, "rtt_target_s"] == 0.02).all()
    events = run.events()
    assert events["t_s"].is_monotonic_increasing and {"step", "link", "evaluation"} <= set(events["event"])
    assert "phase_s.forward" in run.events("step") and run.events("hook").empty
    with pytest.raises(longhaul.InputError, match="did you mean step"):
        run.events("stepp")


def test_a_run_that_has_not_ended_is_read_too(tmp_path: Path) -> None:
    path = copied(tmp_path, 1)
    (path / "summary.json").unlink()
    run = longhaul.Run(path)
    assert (run.verdict, run.summary, run.status) == (None, None, "killed")
    assert len(run.steps()) == 12 and run.links().empty
    assert list(longhaul.runs(tmp_path)["strategy"]) == ["local_sgd"]


def test_means_and_intervals_are_over_seeds(tmp_path: Path) -> None:
    for number, seconds in enumerate((10.0, 11.0, 13.0)):
        copied(tmp_path, number, seed=number, time_s=seconds)
    copied(tmp_path, 9, seed=7, verdict="invalid", time_s=1e6)
    with pytest.warns(UserWarning, match="left out: .*invalid.*allow_invalid=True"):
        (row,) = longhaul.compare(longhaul.runs(tmp_path)).to_dict("records")
    assert (row["strategy"], row["compressor"], row["seeds"]) == ("local_sgd", "powersgd", 3)
    assert row["time_s_mean"] == pytest.approx(34 / 3)
    assert row["time_s_high"] - row["time_s_mean"] == pytest.approx(4.3027 * (7 / 3) ** 0.5 / 3**0.5, rel=1e-4)
    with pytest.warns(UserWarning, match="left out"):
        by_topo = longhaul.compare(longhaul.runs(tmp_path), by="topo")
    assert list(by_topo["time_s_mean"]) == [pytest.approx(34 / 3)]
    with pytest.raises(longhaul.InputError, match="did you mean topo"):
        longhaul.compare(longhaul.runs(tmp_path), by="topology")
    with pytest.raises(longhaul.InputError, match="no column `path`"):
        longhaul.compare(pd.DataFrame({"run_id": [1]}))


def test_a_comparison_of_which_nothing_is_left_has_its_columns(tmp_path: Path) -> None:
    copied(tmp_path, 1, verdict="invalid")
    for by in (None, "topo"):
        with pytest.warns(UserWarning, match="left out"):
            found = longhaul.compare(longhaul.runs(tmp_path), by=by)
        assert found.empty and {"seeds", "time_s_mean", "metric_best_low"} <= set(found.columns)


def test_a_table_and_a_figure_are_written(tmp_path: Path) -> None:
    for number in range(3):
        copied(tmp_path / "runs", number, seed=number)
    found = longhaul.runs(tmp_path / "runs")
    assert longhaul.table(found, tmp_path / "t.tex") == (tmp_path / "t.tex").read_text().rstrip("\n")
    assert r"local\_sgd & powersgd & 3 & 3 valid" in (tmp_path / "t.tex").read_text()
    pytest.importorskip("matplotlib")
    longhaul.plot(found, "accuracy_over_time", tmp_path / "f.pdf")
    assert (tmp_path / "f.pdf").read_bytes().startswith(b"%PDF-")


def test_reading_needs_neither_torch_nor_the_sides_that_run() -> None:
    blocked = (
        "torch",
        "mininet",
        "hydra",
        "omegaconf",
        "rich",
        "testbed.orchestrator",
        "testbed.worker",
        "compressors",
    )
    code = (
        f"import sys\nfor name in {blocked!r}: sys.modules[name] = None\n"
        f"import longhaul\nassert len(longhaul.runs({str(RUNS)!r})) > 3\n"
        f"longhaul.Run({LOCAL_SGD!r}, {str(RUNS)!r}).steps()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_starting_without_a_clone_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(starting.CLONE_VARIABLE, str(tmp_path))
    for start in (longhaul.run, longhaul.sweep):
        with pytest.raises(longhaul.MachineError, match="needs a clone of Longhaul, and root or rootless=True"):
            start(topo="wan1g")
    (tmp_path / "experiments" / "conf").mkdir(parents=True)
    with pytest.raises(longhaul.MachineError, match="run `make setup` there"):
        longhaul.run(topo="wan1g")


CLI = """
import json, sys
arguments, root = sys.argv[1:], sys.argv[sys.argv.index("--runs") + 1]
sys.stderr.write(" ".join(arguments) + "\\n")
if "topo=wan1gg" in arguments:
    sys.stderr.write("topo=wan1gg: unknown topology\\n")
    sys.exit(2)
print(json.dumps(json.load(open(root + "/answer.json"))))
sys.exit(int(open(root + "/status").read()))
"""


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone whose command line answers what stands in `runs/answer.json`."""
    root = tmp_path / "clone"
    (root / "experiments" / "conf").mkdir(parents=True)
    (root / ".venv" / "bin").mkdir(parents=True)
    (root / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (root / "testbed").mkdir()
    (root / "testbed" / "__init__.py").touch()
    (root / "testbed" / "__main__.py").write_text(CLI)
    monkeypatch.setenv(starting.CLONE_VARIABLE, str(root))
    return root


def answers(root: Path, answer: dict[str, Any], status: int = 0) -> None:
    (root / "answer.json").write_text(json.dumps(answer))
    (root / "status").write_text(str(status))


def test_a_run_is_started_by_the_command_line_and_returned(
    clone: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made = copied(tmp_path / "runs", 1)
    answers(tmp_path / "runs", {"run_id": made.name, "reasons": []})
    run = longhaul.run("compressor.density=0.01", root=tmp_path / "runs", fix=True, topo="wan1g", target=None)
    assert run.run_id == made.name
    told = capfd.readouterr().err
    assert told.startswith("run --json --runs ") and "--fix compressor.density=0.01 topo=wan1g target=null" in told


def test_a_run_that_is_invalid_warns_and_one_that_failed_is_an_error(clone: Path, tmp_path: Path) -> None:
    made = copied(tmp_path / "runs", 1, verdict="invalid", reasons=["too busy"])
    answers(tmp_path / "runs", {"run_id": made.name, "reasons": ["too busy"]}, 5)
    with pytest.warns(UserWarning, match="is invalid: too busy"):
        longhaul.run(root=tmp_path / "runs")
    answers(tmp_path / "runs", {"run_id": made.name, "reasons": ["rank 1 fell"]}, 4)
    with pytest.raises(longhaul.RunError, match=f"{made.name}: rank 1 fell"):
        longhaul.run(root=tmp_path / "runs")
    with pytest.raises(longhaul.InputError, match="unknown topology"):
        longhaul.run(root=tmp_path / "runs", topo="wan1gg")


def test_a_sweep_gives_its_runs_and_axes(clone: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    made = [copied(tmp_path / "runs", number, seed=number) for number in range(2)]
    points = [
        {"values": {"compressor.rank": "4", "seed": str(n)}, "run_id": path.name, "outcome": "valid"}
        for n, path in enumerate(made)
    ]
    points.append({"values": {"compressor.rank": "8", "seed": "0"}, "run_id": None, "outcome": "not made"})
    answers(tmp_path / "runs", {"name": "made", "points": points}, 4)
    with pytest.warns(UserWarning, match=r"1 runs do not count: compressor.rank=8 seed=0: not made"):
        found = longhaul.sweep(root=tmp_path / "runs", seed=range(2), **{"compressor.rank": [4, 8]})
    assert "seed=0,1 compressor.rank=4,8" in capfd.readouterr().err
    assert list(found["seed"]) == [0, 1] and list(found["compressor.rank"]) == [4, 4]
