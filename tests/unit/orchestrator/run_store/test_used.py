"""A kept run counts for a sweep as long as the user's files that it used are as they were."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.core.record.used_files import CLONE, entries
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.config.config import compose
from testbed.orchestrator.run_store.ended import KeptRuns
from testbed.orchestrator.run_store.used import as_here, named_files, used_before, used_by_script
from tests.unit.orchestrator.made_runs import make_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folder with a script, a module next to it, and data."""
    tmp_path.chmod(0o755)
    found = tmp_path / "mine"
    found.mkdir(mode=0o755)
    for name in ("train.py", "helper.py", "config.yaml", "a.csv", "b.csv", "no argument"):
        (found / name).write_text(f"{name}\n")
    return found


def asked(folder: Path, *args: str) -> RunSpec:
    script = f"workload.script={folder / 'train.py'}"
    return compose(["topo=lan", "workers=2", "workload=script", script, f"workload.args={json.dumps(list(args))}"])


def kept(runs: Path, spec: RunSpec, *modules: Path, **values: Any) -> None:
    files = [*(str(path) for path in modules), *named_files(spec)]
    make_run(runs, spec, used_files=entries(files), **values)


ARGS = ("--config", "config.yaml", "--data=a.csv,b.csv", "--epochs", "2")


def test_a_script_s_files_are_itself_and_those_that_arguments_name(folder: Path) -> None:
    found = [Path(path).name for path in named_files(asked(folder, *ARGS))]
    assert found == ["a.csv", "b.csv", "config.yaml", "train.py"]
    assert [Path(path).name for path in named_files(asked(folder, str(folder / "b.csv")))] == ["b.csv", "train.py"]


@pytest.mark.parametrize(
    "argument",
    [
        "a.csv",
        "./a.csv",
        "--data=a.csv",
        "data.path=a.csv",
        "--data=train:a.csv",
        "@a.csv",
        "-fa.csv",
        "file://{folder}/a.csv",
        "x.csv;a.csv",
        '{{"train": "a.csv"}}',
        "[a.csv, x.csv]",
        "{folder}/sub/../a.csv",
    ],
)
def test_an_argument_names_a_file_in_many_ways(argument: str, folder: Path) -> None:
    (folder / "sub").mkdir()
    assert named_files(asked(folder, argument.format(folder=folder)))[0] == str(folder / "a.csv")


@pytest.mark.parametrize("argument", ["sub", "./sub/", "--data=sub", "{folder}/sub", "root:sub", "../mine/sub"])
def test_an_argument_names_a_folder_in_many_ways(argument: str, folder: Path) -> None:
    (folder / "sub").mkdir()
    assert str(folder / "sub") in named_files(asked(folder, argument.format(folder=folder)))


@pytest.mark.parametrize("argument", [".", "..", "/", "/tmp", "/dev/shm", "/proc/self", "~", "{folder}", str(CLONE)])
def test_a_folder_around_the_script_or_of_the_system_is_none_of_a_run(argument: str, folder: Path) -> None:
    assert named_files(asked(folder, argument.format(folder=folder))) == [str(folder / "train.py")]


def test_a_file_in_a_folder_that_an_argument_names_makes_another_run(folder: Path, tmp_path: Path) -> None:
    spec, runs = asked(folder, "--data=sub"), tmp_path / "runs"
    (folder / "sub" / "deep").mkdir(parents=True)
    kept(runs, spec)
    assert len(list(KeptRuns(runs).of(spec))) == 1
    write(folder / "sub" / "deep" / "new.csv")
    assert list(KeptRuns(runs).of(spec)) == []


def test_our_own_workloads_name_none() -> None:
    assert named_files(compose(["compressor=topk", "strategy=local_sgd"])) == []
    assert list(used_before(compose([]))) == []


def write(path: Path) -> None:
    path.write_text("changed\n")


@pytest.mark.parametrize(
    ("name", "change", "is_there"),
    [
        ("train.py", write, False),
        ("helper.py", write, False),
        ("helper.py", Path.unlink, False),
        ("config.yaml", write, False),
        ("a.csv", write, False),
        ("b.csv", Path.unlink, False),
        ("helper.py", Path.touch, True),
        ("no argument", write, True),
    ],
)
def test_a_run_is_there_until_what_it_used_changes(
    name: str, change: Callable[[Path], None], is_there: bool, folder: Path, tmp_path: Path
) -> None:
    spec, runs = asked(folder, *ARGS), tmp_path / "runs"
    kept(runs, spec, folder / "helper.py")
    assert len(list(KeptRuns(runs).of(spec))) == 1
    known = KeptRuns(runs)
    assert len(list(known.of(spec))) == 1
    change(folder / name)
    assert len(list(KeptRuns(runs).of(spec))) == len(list(known.of(spec))) == is_there


def test_runs_that_failed_are_no_attempts_at_another_version(folder: Path, tmp_path: Path) -> None:
    spec, runs = asked(folder), tmp_path / "runs"
    kept(runs, spec, folder / "helper.py", status="failed")
    assert len(list(KeptRuns(runs).of(spec))) == 1
    write(folder / "helper.py")
    assert list(KeptRuns(runs).of(spec)) == []


def test_a_file_that_an_argument_names_only_now_makes_another_run(folder: Path, tmp_path: Path) -> None:
    spec, runs = asked(folder, "later.json"), tmp_path / "runs"
    kept(runs, spec)
    assert len(list(KeptRuns(runs).of(spec))) == 1
    write(folder / "later.json")
    assert list(KeptRuns(runs).of(spec)) == []


def test_a_record_without_files_is_none_of_a_script(folder: Path, tmp_path: Path) -> None:
    spec, runs = asked(folder), tmp_path / "runs"
    make_run(runs, spec)
    assert list(KeptRuns(runs).of(spec)) == []
    ours = compose(["topo=lan", "workers=2", "steps=4"])
    make_run(runs, ours)
    assert len(list(KeptRuns(runs).of(ours))) == 1


def test_a_class_outside_makes_another_run_when_it_changes(folder: Path, tmp_path: Path) -> None:
    spec, runs = compose(["topo=lan", "workers=2", "steps=4", "compressor._target_=helper.Mine"]), tmp_path / "runs"
    kept(runs, spec, folder / "helper.py")
    assert len(list(KeptRuns(runs).of(spec))) == 1
    write(folder / "helper.py")
    assert list(KeptRuns(runs).of(spec)) == []


@pytest.mark.parametrize("shape", ["mine.py", "mine/__init__.py", "mine/deep.py"])
def test_a_class_of_one_name_in_another_folder_makes_another_run(
    shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = "mine.deep.Mine" if "deep" in shape else "mine.Mine"
    runs, specs = tmp_path / "runs", []
    for place in ("one", "two"):
        path = tmp_path / place / shape
        path.parent.mkdir(parents=True)
        path.write_text(f"# {place}\n")
        monkeypatch.chdir(tmp_path / place)
        specs.append(compose(["topo=lan", "workers=2", "steps=4", f"compressor._target_={target}"]))
        assert str(path) in named_files(specs[-1])
    assert specs[0].hash == specs[1].hash, "asked for in the same words"
    kept(runs, specs[0])
    assert [len(list(KeptRuns(runs).of(spec))) for spec in specs] == [1, 0]


def test_what_a_script_made_itself_is_not_what_it_used(folder: Path, tmp_path: Path) -> None:
    listed = tmp_path / "listed"
    listed.write_text(f"{folder / 'helper.py'}\n{folder / 'made_in_the_node.py'}\n{json.__file__}\n_invented.py\n")
    found = used_by_script(1, listed, has_completed=True, since_unix_s=4e9)
    assert [Path(one.path).name for one in found.files] == ["helper.py"]
    event = found.to_json()
    assert as_here(event, 4e9) == event
    (unknown,) = as_here(event, 0.0)["files"]
    assert unknown["sha256"] is unknown["size_bytes"] is None, "edited since the run began"


def test_a_script_that_told_nothing_is_known_never_again(tmp_path: Path) -> None:
    (one,) = used_by_script(3, tmp_path / "none", has_completed=True, since_unix_s=0.0).files
    assert one.size_bytes is None and "rank 3" in one.path
    assert used_by_script(3, tmp_path / "none", has_completed=False, since_unix_s=0.0).files == []


@pytest.mark.parametrize("key", ["topo", "events"])
def test_files_by_path_are_in_the_spec_as_they_were_read(key: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    texts = {
        "topo": "regions: {{a: 1, b: 1}}\nlinks:\n  - {{a: a, b: b, rate: {} Mbit/s, rtt: 20 ms, source: mine}}\n",
        "events": "- {{at: 1 s, set: all, rate: {} Mbit/s}}\n",
    }
    hashes = set()
    for rate in (10, 20):
        path.write_text(texts[key].format(rate))
        more = [] if key == "topo" else ["topo=wan100m"]
        hashes.add(compose([f"{key}={path}", "workers=2", *more]).hash)
    assert len(hashes) == 2


def test_a_trace_is_in_the_spec_as_it_was_read(tmp_path: Path) -> None:
    trace = tmp_path / "link.csv"
    hashes = set()
    for rate in (10, 20):
        trace.write_text(f"t_s,rate\n0,{rate}e6\n5,{rate}e6\n")
        hashes.add(compose(["topo=wan100m", "workers=2", f"events=[{{at: 0 s, trace: all, file: {trace}}}]"]).hash)
    assert len(hashes) == 2
