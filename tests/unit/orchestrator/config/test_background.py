"""The key `background`: what it compiles to, and every fault at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import InputError
from testbed.core.spec.schedule import Background
from testbed.core.spec.topology import Topology, symmetric
from testbed.orchestrator.config.background import compile_background

LINK: dict[str, Any] = {"wan": True, "rtt_s": 0.05, "rate_bit_s": 1e8, "source": "assumed: a test"}
THREE = Topology(
    name="three",
    regions=("a", "b", "c"),
    nodes=(),
    links=(symmetric("a-b", "a", "b", **LINK), symmetric("b-c", "b", "c", **LINK)),
)


def faults(value: Any) -> tuple[str, ...]:
    with pytest.raises(InputError) as caught:
        compile_background(value, THREE)
    return caught.value.faults


def test_a_link_and_a_load_are_both_directions_with_the_runs_seed() -> None:
    assert compile_background("a-b:30%", THREE, seed=7) == (
        Background(link="a-b", source="a", load_ratio=0.3, seed=7),
        Background(link="a-b", source="b", load_ratio=0.3, seed=7),
    )


@pytest.mark.parametrize("nothing", [None, []])
def test_nothing_is_nothing(nothing: Any) -> None:
    assert compile_background(nothing, THREE) == ()


def test_a_list_takes_texts_and_mappings() -> None:
    entry = {"link": "b-c", "from": "c", "load": "150%", "mean_flow": "100 kB", "seed": 3}
    assert compile_background(["a-b:50%", entry], THREE)[1:] == (
        Background(link="a-b", source="b", load_ratio=0.5),
        Background(link="b-c", source="c", load_ratio=1.5, mean_flow_bytes=100_000, seed=3),
    )


def test_one_mapping_needs_no_list() -> None:
    assert [t.source for t in compile_background({"link": "a-b", "load": "10%"}, THREE)] == ["a", "b"]


def test_all_faults_come_at_once() -> None:
    found = faults(
        [
            "a-b",
            "x-y:10%",
            17,
            {"link": "a-b", "laod": "10%", "mean_flow": "100", "seed": -1},
            {"link": "a-b", "from": "c", "load": "10%"},
            {"link": "b-c", "load": "300%"},
            {"link": "b-c", "load": "much"},
        ]
    )
    expected = [
        "background=a-b: not of the form LINK:LOAD",
        "background: link x-y: unknown WAN link; known: a-b, b-c",
        "background=17: must be LINK:LOAD or a mapping",
        "background: link a-b: laod=10%: unknown key; did you mean load?",
        "background: link a-b: load must be given",
        "background: link a-b: mean_flow=100: size '100': no unit",
        "background: link a-b: seed=-1: must be a whole number",
        "background: link a-b from c: this link begins at a or b",
        "background: link b-c from b: load must be above 0 and at most 2 times the capacity, found 3",
        "background: link b-c: load=much: must be a share",
    ]
    assert len(found) == len(expected)
    for fault, start in zip(found, expected, strict=True):
        assert fault.startswith(start)


def test_a_direction_given_twice_is_refused() -> None:
    assert faults(["a-b:10%", {"link": "a-b", "from": "b", "load": "20%"}]) == (
        "background: link a-b from b: given 2 times; give it once",
    )


@pytest.mark.parametrize("load", ["0%", "-10%", "1e999%", True, "30 %%", 0, "0"])
def test_a_load_that_is_none_is_refused(load: Any) -> None:
    assert len(faults({"link": "a-b", "load": load})) == 1


@pytest.mark.parametrize(("load", "readings"), [("2", "2% or 200%"), (0.3, "0.3% or 30%"), ("1", "1% or 100%")])
def test_a_load_without_its_sign_is_refused_with_both_readings(load: Any, readings: str) -> None:
    for asked in ({"link": "a-b", "load": load}, f"a-b:{load}"):
        (line,) = faults(asked)
        assert f"may mean {readings}" in line


def test_a_file_holds_the_list(tmp_path: Path) -> None:
    path = tmp_path / "evening.yaml"
    path.write_text("- a-b:30%\n- link: b-c\n  from: c\n  load: 50%\n  mean_flow: 100 kB\n")
    assert compile_background(str(path), THREE) == compile_background(
        ["a-b:30%", {"link": "b-c", "from": "c", "load": "50%", "mean_flow": "100 kB"}], THREE
    )
    path.write_text("link: a-b\nload: 10%\n")
    assert len(compile_background(str(path), THREE)) == 2


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("- a-b:30\n", "line 1: background: link a-b: load=30: ratio '30': has no %"),
        ("- a-b:30%\n- link: b-c\n  load: 0.5\n", "line 3: background: link b-c: load=0.5: ratio 0.5: has no %"),
        ("- link: b-c\n  load: 5%\n  laod: 5%\n", "line 3: background: link b-c: laod=5%: unknown key"),
        ("- link: no\n  load: 5%\n", "line 1: background: link no: unknown WAN link"),
        ("- link: a-b\n  load: 5%\n  load: 6%\n", "line 3: the key 'load' is there twice"),
        ("- {link: a-b, load: 5%, seed: 1:30}\n", "line 1: background: link a-b: seed=1:30: must be a whole number"),
        ("- [a-b]\n", "line 1: background=['a-b']: must be LINK:LOAD or a mapping"),
    ],
)
def test_a_fault_of_a_file_has_its_line(tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / "evening.yaml"
    path.write_text(text)
    (fault,) = faults(str(path))
    assert fault.startswith(f"background={path}, {line}")
