"""Values of axes, in Hydra's syntax, and what is refused of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.core.errors import InputError
from testbed.orchestrator.config.config import names
from testbed.orchestrator.search.sweep.axes import Value, read_axes, read_condition


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("compressor=none,topk", ["none", "topk"]),
        ("compressor=choice(none,topk)", ["none", "topk"]),
        ("seed=range(3)", ["0", "1", "2"]),
        ("seed=range(3,0,-2)", ["3", "1"]),
        ("compressor.density=range(0,0.3,0.1)", ["0.0", "0.1", "0.2"]),
        ("compressor.density=range(0.1,0.35,0.1)", ["0.1", "0.2", "0.3"]),
        ("workers=sort(4,2,3)", ["2", "3", "4"]),
        ("steps=20", ["20"]),
        ("events=null,./x.yaml", ["null", "./x.yaml"]),
        ("topo.rate='50 Mbit/s','10 Mbit/s'", ["50 Mbit/s", "10 Mbit/s"]),
        ("strategy.overlap=true,false", ["True", "False"]),
    ],
)
def test_values_are_those_that_hydra_gives(text: str, expected: list[str]) -> None:
    (axis,) = read_axes([text])
    assert [value.plain for value in axis.values] == expected


def test_a_glob_is_of_the_names_of_a_group() -> None:
    (axis,) = read_axes(["topo=glob(wan*,exclude=wan10*)"])
    expected = [name for name in names("topo") if name.startswith("wan") and not name.startswith("wan10")]
    assert [value.plain for value in axis.values] == expected != []


def test_a_quoted_value_stays_quoted_where_an_override_takes_it() -> None:
    (axis,) = read_axes(["topo.rate='50 Mbit/s'"])
    assert axis.values == (Value("'50 Mbit/s'", "50 Mbit/s"),)


def test_all_that_cannot_be_an_axis_is_told_at_once() -> None:
    wrong = {
        "a": "not of the form key=value",
        "~b": "nothing can be removed",
        "c=1,2,1": "1: given more than once",
        "d=interval(0,1)": "an interval",
        "seed=shuffle(range(3))": "another order at each call",
        "e=glob(*)": "glob is for names",
        "f=range(0,1,0)": "a step other than 0",
        "g=range(0,inf)": "finite bounds",
        "h=range(1000000)": "1000000 values",
        "i=range(3,0)": "has no value",
        "j=1,range(3)": "stand alone",
        "k=[1": "cannot be read",
    }
    with pytest.raises(InputError) as caught:
        read_axes([*wrong, "l=1", "l=2"])
    assert len(caught.value.faults) == len(wrong) + 1
    for fault, (text, why) in zip(caught.value.faults, wrong.items(), strict=False):
        assert fault.startswith(f"{text}: ") and why in fault
    assert caught.value.faults[-1] == "l: given 2 times; give it once"


def test_a_condition_holds_where_all_of_it_does() -> None:
    condition = read_condition("compressor=topk,dgc topo.rate='50 Mbit/s' compressor.density=0.10")
    values = {axis.key: axis.values[0] for axis in read_axes(["compressor=dgc", "compressor.density=0.1"])}
    assert not condition.holds(values), "of a key without a value nothing holds"
    values["topo.rate"] = Value('"50 Mbit/s"', "50 Mbit/s")
    assert condition.holds(values)
    assert not condition.holds({**values, "compressor": Value("none", "none")})
    with pytest.raises(InputError, match="empty"):
        read_condition(" ")
    with pytest.raises(InputError, match="No closing quotation"):
        read_condition("topo.rate='50")


@pytest.mark.parametrize(
    "text",
    [
        "steps=3,3.0",
        "topo.rtt='10 ms','0.01 s'",
        "topo.rate='1 Gbit/s','1000 Mbit/s'",
        "topo.rate='0.1 Gbit/s','1e5 kbit/s'",
        "strategy.bucket_size='1 MiB','1024 KiB'",
        "topo.loss='1%','1.0 %'",
        "target=1e-3,0.001",
        "device.step_s=0.03,'30 ms'",
        "strategy.wait={limit_s: 1},{limit_s: '1000 ms'}",
        "strategy.overlap=true,True",
        "compressor.levels=[1,2.0],[1.0,2]",
        "memory_limit={a: '1 GB'},{a: '1000 MB'}",
        "compressor.inner={_target_: x.Y, k: [1e1]},{k: [10], _target_: 'x.Y'}",
        "compressor=topk,'topk'",
        "workload.args=[--lr,1],['--lr',1]",
        'workload.args=[a, "b c"],["a","b c"]',
        "compressor=\"topk\",'topk'",
    ],
)
def test_one_value_in_two_spellings_is_given_twice(text: str) -> None:
    with pytest.raises(InputError, match="given more than once") as caught:
        read_axes([text])
    assert len(caught.value.faults) == 1


@pytest.mark.parametrize(
    "text",
    [
        "topo.rate='8 Mbit/s','1 MB'",
        "topo.rtt='1 s',1",
        "strategy.overlap=true,1",
        "events=null,0",
        "workload.args=['--lr=1e-3'],['--lr=0.001']",
        "workload.args=[1],[1.0]",
        "workload.args=[null],[None]",
        "seed=9007199254740993,9007199254740992",
    ],
)
def test_values_that_differ_stay_apart(text: str) -> None:
    (axis,) = read_axes([text])
    assert len(axis.meanings) == 2


def test_two_ways_to_one_file_are_one_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.yaml").touch()
    (tmp_path / "b.yaml").symlink_to("a.yaml")
    monkeypatch.chdir(tmp_path)
    for other in ("./a.yaml", f"{tmp_path}/a.yaml", "b.yaml"):
        with pytest.raises(InputError, match="given more than once"):
            read_axes([f"topo=a.yaml,{other}"])


def test_a_condition_holds_for_each_spelling() -> None:
    values = {axis.key: axis.values[0] for axis in read_axes(["topo.rtt='10 ms'", "steps=3"])}
    assert read_condition("topo.rtt='0.01 s' steps=3.0").holds(values)
    assert not read_condition("topo.rtt='0.1 s'").holds(values)
