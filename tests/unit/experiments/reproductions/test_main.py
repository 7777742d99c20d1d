"""`make reproduce`: what it writes, what it makes no more, and how it ends."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from experiments.reproductions import __main__ as command
from experiments.reproductions import runner
from experiments.reproductions.__main__ import Places
from experiments.reproductions.plan import MAX_S, Plan, all_plans, plan_line, plan_of
from experiments.reproductions.runner import Runner
from experiments.reproductions.runs import Kept, TrialRequest, ask_all
from testbed.core.errors import EXIT_INPUT, InputError
from testbed.core.record.run_directory import RunDir
from tests.unit.experiments.reproductions.fake_runs import make_run, regions, reproduce, system, trial

TRIALS = [
    *(trial(arm=arm) for arm in ("new", "old", "slow")),
    *(trial(arm=arm, kind="simulated", seconds=3.0) for arm in ("new", "old")),
    trial(seed=1),
]
PAGE = "# Made\n\n<!-- reproduction: begin -->\nbefore\n<!-- reproduction: end -->\n\n## Question\n"


@pytest.fixture
def places(runs: Path, tmp_path: Path) -> Places:
    (tmp_path / "made.md").write_text(PAGE)
    return Places(runs=runs, results=tmp_path / "results", pages=tmp_path)


def test_with_all_runs_there_none_is_made_and_all_is_written(
    places: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    for one, step_s in zip(TRIALS[:5], (1.0, 1.6, 1.8, 2.0, 2.2), strict=True):
        make_run(places.runs, one, step_s=step_s)
    before = sorted(places.runs.iterdir())
    content, failures = reproduce(system(TRIALS), places, makes_runs=True)
    assert failures == [] and sorted(places.runs.iterdir()) == before
    assert json.loads((places.results / "made" / "result.json").read_text()) == content
    assert (content["emulated"], content["verdict"]) == (1.6, "reproduced")
    page = (places.pages / "made.md").read_text()
    assert "before" not in page and page.endswith("<!-- reproduction: end -->\n\n## Question\n")
    emulated = next(line for line in page.splitlines() if line.startswith("| resnet18 | emulated"))
    assert emulated.split(" | ")[2:] == ["1", "1.6 (1.60)", "1.8 (1.80)", "1.600 (old)", "3", "3 valid |"]
    assert "| resnet18 | simulated | 2 | 2.2 (1.10) | - | 1.100 (old) |" in page
    assert "5 of 5 runs are there" in capsys.readouterr().out


def test_a_page_names_the_machines_that_have_made_its_runs(places: Places) -> None:
    for one, kernel in zip(TRIALS[:5], ("6.9", "6.1", "6.1", "6.1", "6.1"), strict=True):
        make_run(places.runs, one, kernel=kernel)
    reproduce(system(TRIALS), places)
    made = "2 cores (a processor), Linux"
    assert f"\n{made} 6.1; {made} 6.9; 5 runs, the first " in (places.pages / "made.md").read_text()


def test_runs_of_an_earlier_full_call_stay_in_the_result(places: Places) -> None:
    for one in (*TRIALS[:3], TRIALS[5]):
        make_run(places.runs, one, step_s=2.0)
    content, _ = reproduce(system(TRIALS), places)
    assert len(content["runs"]["candidate"]) == 2


def test_a_case_of_an_earlier_full_call_that_lacks_a_baseline_decides_nothing(places: Places) -> None:
    """`slow` of the other model was never made, and might have been the stronger one."""
    full = [trial("resnet34", arm, seed=1) for arm in ("new", "old", "slow")]
    for one, step_s in zip([*TRIALS[:3], *full[:2]], (1.0, 1.6, 1.8, 1.0, 9.0), strict=True):
        make_run(places.runs, one, step_s=step_s)
    asked = [*TRIALS[:3], *full]
    content, _ = reproduce(system(asked), places)
    assert content["emulated"] == 1.6 and "not made: emulated resnet34 (slow)" in content["condition"]
    make_run(places.runs, full[2], step_s=8.0)
    assert reproduce(system(asked), places)[0]["emulated"] == 8.0


@pytest.mark.tier("all")
def test_what_is_invalid_is_made_again_after_all_systems(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def make(one: TrialRequest, runs_root: Path, **_: object) -> RunDir:
        made.append(f"{one.trial.case} {one.trial.arm}")
        verdict = "invalid" if made.count(made[-1]) < (4 if made[-1] == "resnet18 new" else 1) else "valid"
        return make_run(runs_root, one.trial, verdict=verdict)

    monkeypatch.setattr(runner, "make", make)
    monkeypatch.setattr(command, "_write_overview", lambda _: None)
    (tmp_path / "other.md").write_text(PAGE)
    first = system([trial(arm="new"), trial(arm="old")])
    other = dataclasses.replace(system([trial("resnet50", arm=arm) for arm in ("new", "old")]), name="other")
    kept = Kept(places.runs)
    plans = [plan_of(one, kept, most_s=None) for one in (first, other)]
    held = Runner(places.runs, None, lambda _: None)
    ended = command.carry_out_all(plans, places, kept, held, 3)
    assert made[:5] == ["resnet18 new", "resnet18 old", "resnet18 new", "resnet50 new", "resnet50 old"]
    assert made[5:] == ["resnet18 new"] * 2, "until it is well"
    assert {name: one.failures for name, one in ended.items()} == {"made": [], "other": []}


def test_what_is_left_for_the_next_call_leaves_the_page_as_it_is(
    places: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    for one, step_s in zip(TRIALS[:3], (1.0, 1.6, 1.8), strict=True):
        make_run(places.runs, one, step_s=step_s)
    before, _ = reproduce(system(TRIALS[:3]), places)
    more = [*TRIALS[:3], *(trial("resnet34", arm) for arm in ("new", "old", "slow"))]
    content, _ = reproduce(system(more), places)
    assert (before["verdict"], content["verdict"]) == ("reproduced", None)
    assert json.loads((places.results / "made" / "result.json").read_text()) == before
    assert "3 runs that decide are not made yet" in capsys.readouterr().out


def test_all_seeds_of_the_usual_arms_can_be_asked_for(places: Places, capsys: pytest.CaptureFixture[str]) -> None:
    unusual = trial(arm="slow", kind="simulated", seed=1)
    for one in TRIALS:
        make_run(places.runs, one, step_s=2.0)
    reproduce(system([*TRIALS, unusual]), places, seeds=True)
    assert f"{len(TRIALS)} of {len(TRIALS)} runs are there" in capsys.readouterr().out


def test_what_lacks_is_told_in_runs_times_seconds() -> None:
    asked = ask_all(TRIALS[:5])
    assert plan_line(asked[1:], 5) == (
        "1 of 5 runs are there; to make: 2 emulated x 7 s + 2 simulated x 3 s = about 20 s"
    )
    assert plan_line([], 5) == "5 of 5 runs are there"


@pytest.mark.tier("all")
def test_what_is_there_is_made_no_more_unless_asked(places: Places) -> None:
    for one in TRIALS[:4]:
        make_run(places.runs, one)
    kept = Kept(places.runs)
    assert [one.trial for one in plan_of(system(TRIALS), kept).lacking] == TRIALS[4:5]
    assert [one.trial for one in plan_of(system(TRIALS), kept, again=True).lacking] == TRIALS[:5]


def test_all_systems_are_told_before_the_first_begins() -> None:
    asked = ask_all(TRIALS[:3])
    long = ask_all([trial(seconds=500.0), trial(arm="old", seconds=400.0)])
    plans = [Plan(system(), asked, asked[:1], MAX_S), Plan(system(), long, long, MAX_S)]
    assert all_plans(plans).splitlines() == [
        "made: 2 of 3 runs are there; to make: 1 emulated x 7 s = about 7 s",
        "made: 0 of 2 runs are there; to make: 2 emulated x 450 s = about 900 s",
        "all 2 systems: 2 of 5 runs are there; to make: 3 emulated x 302 s = about 907 s,"
        " of which this call makes about 607 s",
    ]
    assert all_plans([Plan(system(), asked, (), None)]) == "made: 3 of 3 runs are there"


def test_a_plan_makes_and_writes_nothing(places: Places, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["dear", "--plan", "--runs", str(places.runs), "--results", str(places.results)]) == 0
    assert list(places.runs.iterdir()) == [] and not places.results.exists()
    assert "to make:" in capsys.readouterr().out


def test_a_page_without_its_region_is_named(places: Places) -> None:
    (places.pages / "made.md").write_text("# Made\n")
    with pytest.raises(InputError, match=r"made\.md.*reproduction"):
        reproduce(system(TRIALS), places)


def test_an_unknown_system_ends_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["nothing"]) == EXIT_INPUT
    known = capsys.readouterr().err.removeprefix("reproduce: SYSTEM=nothing: unknown; known: ").strip().split(", ")
    assert known == sorted(known) and {"dear", "slamb"} <= set(known)


@pytest.mark.tier("all")
def test_the_last_line_says_system_claimed_emulated_verdict(places: Places, capsys: pytest.CaptureFixture[str]) -> None:
    (places.pages / "fedbuff.md").write_text(PAGE)
    table, artifact = places.pages / "reproductions.md", places.pages / "artifact.md"
    table.write_text(regions("reproductions"))
    artifact.write_text(regions("claims", "figures"))
    where = ["--runs", str(places.runs), "--results", str(places.results), "--pages", str(places.pages)]
    where += ["--table", str(table), "--artifact", str(artifact)]
    assert command.main(["fedbuff", "--tables", *where]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "fedbuff: claimed 3.3, emulated -, verdict -"
    assert "| 3.30 | - | - |" in table.read_text() and "fedbuff: 3.3 times" in artifact.read_text()
