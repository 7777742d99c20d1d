"""Plug-ins by the paths of their YAML files, and paths that are no override grammar."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.orchestrator.config.config import resolve
from testbed.orchestrator.search.sweep import files
from testbed.orchestrator.search.sweep.axes import read_axes
from testbed.orchestrator.search.tune.space import read as read_space

SIGNS = "_target_: signs.Signs\nfeedback: auto\nblock: {size: 1, kind: no}\n"
NETWORK = "regions: {a: 1, b: 1}\nlinks: [{a: a, b: b, rate: 10 Mbit/s, rtt: 10 ms, source: 'assumed: a test'}]\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _written(path: str, text: str = SIGNS) -> str:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)
    return path


@pytest.mark.parametrize("group", ["compressor", "strategy", "transform", "workload", "device"])
def test_a_part_is_read_from_its_file_and_the_command_line_counts_more(group: str, here: Path) -> None:
    path = _written("plugins/signs.yaml")
    given = ["steps=1"] if group == "workload" else []
    spec = resolve([f"{group}=./{path}", f"{group}.block.size=3", *given]).spec
    part = getattr(spec, group)
    assert (part.name, part.target) == ("signs", "signs.Signs")
    assert part.params == {"feedback": "auto", "block": {"size": 3, "kind": "no"}}
    assert part.folders == (str(here / "plugins"), str(here))


def test_what_a_workloads_file_recommends_counts() -> None:
    _written("mine.yaml", "_target_: mine.Mine\nrun: {steps: 7, batch_size: 3}\n")
    spec = resolve(["workload=mine.yaml"]).spec
    assert (spec.steps, spec.batch_size, spec.workload.params) == (7, 3, {})


def test_folders_are_no_part_of_the_hash_and_ours_need_none(here: Path) -> None:
    _written("one/signs.yaml")
    _written("two/signs.yaml")
    one, two = (resolve([f"compressor=./{folder}/signs.yaml"]).spec for folder in ("one", "two"))
    assert one.hash == two.hash and one.compressor.folders != two.compressor.folders
    assert resolve(["compressor=topk"]).spec.module_folders == ()
    assert resolve(["compressor._target_=signs.Signs"]).spec.module_folders == (str(here),)
    inner = "compressor.inner={_target_: mine.Inner}"
    assert resolve(["compressor=deepreduce", inner]).spec.module_folders == (str(here),)


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("signs.yaml", "feedback: auto\n", "line 1: must hold _target_"),
        ("signs.yaml", "- 1\n", "line 1: must hold _target_"),
        ("signs.yaml", "_target_: a.B\n_target_: c.D\n", "line 2: the key '_target_' is there twice"),
        ("signs.yaml", "_target_: Signs\n", "'Signs' is not of the form package.module.Class"),
        ("signs.yaml", "_target_: a.B\nx: [1\n", "line 2: is not YAML: a bracket is not closed"),
        ("my signs.yaml", SIGNS, "the compressor is called as its file, 'my signs', and a name must be 22 letters"),
        ("a,b.yaml", SIGNS, "the compressor is called as its file, 'a,b', and a name must be 22 letters"),
        ("no,ne.yaml", None, "cannot be read: No such file or directory"),
        ("topk.yaml", SIGNS, "topk is the name of compressors.topk.TopK"),
        ("gone.yaml", None, "cannot be read: No such file or directory"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(name: str, text: str | None, fault: str) -> None:
    if text is not None:
        _written(name, text)
    (line,) = resolve([f"compressor=./{name}"]).faults
    assert line.startswith("compressor=") and fault in line and "\n" not in line


def test_a_copy_of_ours_with_other_values_keeps_its_name() -> None:
    _written("topk.yaml", "_target_: compressors.topk.TopK\ndensity: 0.2\n")
    part = resolve(["compressor=./topk.yaml"]).spec.compressor
    assert (part.name, part.params, part.folders) == ("topk", {"density": 0.2}, ())


@pytest.mark.parametrize("folder", ["a,b", "a=b c", "a [1]{b}", "it's a\"b", "a$b ${oc.env:HOME}", "ü(1)"])
def test_a_path_is_taken_as_it_is_typed(folder: str, here: Path) -> None:
    network = _written(f"{folder}/net.yaml", NETWORK)
    events = _written(f"{folder}/e,v=1.yaml", "- at: 1 s\n  set: all\n  rate: 5 Mbit/s\n")
    signs = _written(f"{folder}/signs.yaml")
    script = _written(f"{folder}/train.py", "")
    for start in ("./", f"{here}/"):
        spec = resolve([f"topo={start}{network}", f"compressor={start}{signs}", f"events={start}{events}"]).spec
        assert (spec.topo, spec.compressor.name, len(spec.events)) == ("net", "signs", 1)
    assert resolve([f"topo={network}"]).spec.topo == "net", "a file that exists needs no ./"
    (axis,) = read_axes([f"topo=./{network}"])
    assert [value.plain for value in axis.values] == [f"./{network}"]
    assert read_space([f"topo=./{network}"]).fixed["topo"].plain == f"./{network}"
    workload = resolve(["workload=script", f"workload.script=./{script}"])
    assert not any("cannot be read: " in fault and "quote" in fault for fault in workload.faults)


def test_a_path_without_a_file_is_said_to_be_none() -> None:
    for path in ("./a,b/net.yaml", "./a=b/net.yaml", "/no[1]/net.yaml"):
        (fault,) = resolve([f"topo={path}"]).faults
        assert "No such file" in fault
    (fault,) = resolve(["./net.yaml"]).faults
    assert fault == "./net.yaml: is a path without a key; give key=path, as in topo=./net.yaml"


def test_several_paths_are_a_sweep() -> None:
    _written("a.yaml", NETWORK)
    for values in ("./a.yaml,lan", "./b.yaml,./a.yaml"):
        assert resolve([f"topo={values}"]).faults == (f"topo={values}: several values are a sweep; a run takes one",)


def test_values_of_a_sweep_are_still_separated_by_commas() -> None:
    _written("a.yaml", NETWORK)
    (axis,) = read_axes(["topo=./a.yaml,./b.yaml,lan"])
    assert [value.plain for value in axis.values] == ["./a.yaml", "./b.yaml", "lan"]


@pytest.mark.parametrize("folder", ["dir with spaces=x", "a=b,c", "a[1]"])
def test_a_sweeps_file_may_lie_anywhere(folder: str) -> None:
    path = _written(f"{folder}/grid.yaml", "axes: [steps=1, seed=1]\n")
    for given in (f"./{path}", path):
        assert [axis.key for axis in files.asked([given, "compressor=none,topk"]).axes] == [
            "steps",
            "seed",
            "compressor",
        ]


def test_a_part_of_a_search_may_be_a_file() -> None:
    _written("signs.yaml", "_target_: signs.Signs\nlevel: 1\n")
    space = read_space(["compressor=./signs.yaml,topk", "compressor.level=1,2", "compressor.density=0.1,0.2"])
    assert set(space.keys) == {"compressor", "compressor.level", "compressor.density"}


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("topology=lan", "topo"),
        ("compresor.density=0.1", "compressor.density"),
        ("density=0.1", "compressor.density"),
        ("rtt=5 ms", "topo.rtt"),
        ("iterations=3", "steps"),
        ("batch=3", "batch_size"),
        ("sync_every=3", "strategy.sync_every"),
        ("network=lan", "topo"),
    ],
)
def test_a_key_that_does_not_exist_suggests_one(given: str, meant: str) -> None:
    (fault,) = resolve([given]).faults
    assert f"unknown key; did you mean {meant}? known: " in fault
