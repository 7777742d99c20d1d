"""From the axes of a file or of the command line to the points of a grid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.core.errors import InputError
from testbed.orchestrator.config.config import resolve
from testbed.orchestrator.search.sweep import files
from testbed.orchestrator.search.sweep.grid import MAX_RUNS, Grid

CONTENT: dict[str, Any] = {
    "axes": ["topo=lan,wan1g", "compressor=none,topk,int8", "seed=range(2)", "steps=4"],
    "when": [{"if": "compressor=topk", "axes": ["compressor.density=0.01,0.1"]}],
    "exclude": ["topo=lan compressor=int8", "compressor.density=0.1 topo=lan"],
    "max_hours": 1.5,
}


def written(tmp_path: Path, content: Any) -> str:
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(content))
    return str(path)


def labels(grid: Grid) -> list[str]:
    return [point.label for point in grid.points()]


def faults(tmp_path: Path, *words: str, **changes: Any) -> list[str]:
    with pytest.raises(InputError) as caught:
        files.asked([written(tmp_path, CONTENT | changes), *words]).points()
    return list(caught.value.faults)


def test_a_file_s_grid_has_conditional_axes_and_lacks_what_is_excluded(tmp_path: Path) -> None:
    grid = files.asked([written(tmp_path, CONTENT)])
    assert (grid.name, grid.max_hours) == ("own", 1.5)
    of_a_seed = [
        "topo=lan compressor=none",
        "topo=lan compressor=topk {} compressor.density=0.01",
        "topo=wan1g compressor=none",
        "topo=wan1g compressor=topk {} compressor.density=0.01",
        "topo=wan1g compressor=topk {} compressor.density=0.1",
        "topo=wan1g compressor=int8",
    ]
    expected = [
        words.format(f"seed={seed}") if "{}" in words else f"{words} seed={seed}"
        for seed in range(2)
        for words in of_a_seed
    ]
    assert labels(grid) == expected, "the first seed of all before the second"
    assert grid.points()[1].overrides == [
        *("topo=lan", "compressor=topk", "seed=0", "steps=4", "compressor.density=0.01")
    ]


def test_the_command_line_replaces_an_axis_wherever_it_is_and_adds_others(tmp_path: Path) -> None:
    name = written(tmp_path, CONTENT)
    grid = files.asked([name, "compressor.density=0.5", "seed=7", "workers=2,4", "compressor=none,topk"])
    assert grid.name.startswith("own-") and grid.name != files.asked([name, "seed=7"]).name
    assert labels(grid) == [
        f"topo={topo} {words}"
        for topo in ("lan", "wan1g")
        for words in (
            *("compressor=none workers=2", "compressor=none workers=4"),
            *("compressor=topk workers=2 compressor.density=0.5", "compressor=topk workers=4 compressor.density=0.5"),
        )
    ]


def test_axes_alone_are_a_sweep_and_one_point_is_one() -> None:
    grid = files.asked(["topo=lan", "seed=range(2)"])
    assert labels(grid) == ["seed=0", "seed=1"] and grid.name.startswith("grid-")
    assert labels(files.asked(["topo=lan"])) == ["the run"]


def test_conditions_that_can_never_hold_are_faults(tmp_path: Path) -> None:
    assert faults(tmp_path, exclude=["compressor=top", "topology=lan"], when=[]) == [
        "own: exclude compressor=top: compressor is never top; it takes int8, none, topk",
        "own: exclude topology=lan: unknown axis; did you mean topo? known: compressor, seed, steps, topo",
    ]
    labels(files.asked([written(tmp_path, CONTENT), "compressor=none"]))  # as the command line has it they may


def test_keys_that_would_be_given_twice_are_faults(tmp_path: Path) -> None:
    when = [{"if": "compressor=topk", "axes": ["steps=5"]}]
    assert faults(tmp_path, when=when, exclude=[]) == ["own: when compressor=topk: steps has a value already"]
    when = [{"if": "compressor=topk", "axes": ["seed=5"]}]
    assert "seed is an axis of all runs or of none" in faults(tmp_path, when=when, exclude=[])[0]


def test_too_many_runs_and_none_are_faults(tmp_path: Path) -> None:
    assert f"{MAX_RUNS} at most" in faults(tmp_path, "steps=range(1,201)")[0]
    when = [{"if": "compressor=topk", "axes": ["steps.x=range(400)"]}]
    assert f"more than {MAX_RUNS} runs" in faults(tmp_path, when=when, exclude=[])[0]
    assert faults(tmp_path, exclude=["steps=4"]) == ["own: `exclude` leaves no run"]


def test_every_fault_of_a_file_at_once(tmp_path: Path) -> None:
    content = {
        "axes": ["topo=1,1", "seed"],
        "axis": [],
        "when": [{"if": "x"}, {"if": "", "axes": []}],
        "exclude": "compressor=none",
        "max_hours": 0,
    }
    found = faults(tmp_path, **content)
    for part in (
        "axis: unknown key; did you mean axes?",
        "axes: topo=1,1: 1: given more than once",
        "axes: seed: not of the form key=value",
        "when, entry 1: must hold `if` and `axes`",
        "when, entry 2: if: a condition is empty",
        "when, entry 2: axes: is empty",
        "exclude: must be a list",
        "max_hours: 0: must be a number above 0, of hours",
    ):
        assert sum(part in fault for fault in found) == 1, part
    assert len(found) == 8


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "name one, or give axes"),
        (["smokey"], "sweep smokey: unknown sweep; did you mean smoke?"),
        (["smoke", "densities"], "one at a time"),
        (["no/where.yaml"], "cannot be read"),
    ],
)
def test_a_sweep_that_is_not_there_is_refused(words: list[str], why: str) -> None:
    with pytest.raises(InputError) as caught:
        files.asked(words)
    assert why in caught.value.faults[0] and len(caught.value.faults) == 1


@pytest.mark.parametrize("text", ["[", "- 1", "\x00"])
def test_what_is_no_sweep_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"own\.yaml"):
        files.asked([str(path)])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("axes: [topo=lan]\nmax_hours: 1:30\n", "line 2: max_hours: 1:30: must be a number above 0"),
        ("axes: [topo=lan]\nmax_hours: 2_0\n", "line 2: max_hours: 2_0: must be a number above 0"),
        (
            "axes: [topo=lan]\nworkers: 2\naxes: [topo=wan1g]\n",
            "line 3: the key 'axes' is there twice, first in line 1",
        ),
        ("axes:\n  - topo=lan\n  - seed: 3\n", "line 3: axes, entry 2: "),
        ("axes:\n  - topo=lan\n  - seed=" + "[" * 500, "line 3: axes, entry 2: "),
        ("axes:\n  - topo=lan\n  - seed=" + "1," * 20_000, "line 3: axes, entry 2: "),
        ("axes: [topo=lan]\nwhen:\n  - {if: a=1, axes: [b=1], iff: 2}\n", "line 3: when, entry 1: must hold"),
        (
            "axes: [topo=lan]\nexecutors:\n  slurm: {parttion: x}\n",
            "line 3: executors: slurm: parttion: unknown option",
        ),
        ("axes: [topo=lan]\nexecutors:\n  slurm:\n    jobs: 0\n", "line 4: executors: slurm: jobs: 0: must be a whole"),
        ("axes: [topo=lan]\nexecutors: {local: {a: 1}}\n", "line 2: executors: local: a: this executor has no options"),
    ],
)
def test_a_fault_of_any_section_has_its_line(tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        files.asked([str(path)])
    (fault,) = caught.value.faults
    assert fault.startswith(f"{path}, {line}") and "\n" not in fault


def test_lines_of_a_file_are_text_as_written(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("\ufeffaxes:\r\n  - workload.x=010,no\r\n  - topo=lan\r\n", encoding="utf-8", newline="")
    assert [value.plain for value in files.asked([str(path)]).axes[0].values] == ["010", "no"]


@pytest.mark.tier("all")
@pytest.mark.parametrize("name", files.known())
def test_sweeps_of_the_tree_resolve(name: str) -> None:
    points = files.asked([name]).points()
    assert name != "smoke" or len(points) == 8
    by_parts = {tuple(text for text in point.overrides if not text.startswith("seed=")): point for point in points}
    for point in by_parts.values():
        assert resolve(point.overrides).faults == (), point.label


def test_files_of_one_name_have_folders_of_their_own(tmp_path: Path) -> None:
    grids = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        grids.append(files.asked([written(tmp_path / folder, CONTENT)]))
    assert [grid.name for grid in grids] == ["own", "own"] and grids[0].folder != grids[1].folder
    again = files.asked([str(tmp_path / "b" / ".." / "a" / "own.yaml")])
    assert again.folder == grids[0].folder, "the same file"
    assert files.asked([str(files.FOLDER / "smoke.yaml")]).folder == files.asked(["smoke"]).folder == "smoke"
    given = [files.asked([written(tmp_path / folder, CONTENT), "steps=5"]).folder for folder in ("a", "b")]
    assert len({*given, *(grid.folder for grid in grids)}) == 4


def test_a_value_that_two_branches_spell_in_two_ways_is_one_value(tmp_path: Path) -> None:
    when = [
        {"if": "compressor=topk", "axes": ["topo.rtt='10 ms'"]},
        {"if": "compressor=int8", "axes": ["topo.rtt='0.01 s'"]},
    ]
    points = files.asked([written(tmp_path, CONTENT | {"when": when, "exclude": []})]).points()
    assert {point.plain["topo.rtt"] for point in points if "topo.rtt" in point.plain} == {"10 ms"}
