"""`make reproduce`: what it writes, what it makes no more, and how it ends."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from pathlib import Path

import pytest

from experiments.common.papers.declaration import seed_of, with_seed
from experiments.reproductions import __main__ as command
from experiments.reproductions import outcome, runner
from experiments.reproductions.__main__ import Places
from experiments.reproductions.plan import MAX_S, Plan, all_plans, plan_line, plan_of
from experiments.reproductions.runner import Runner
from experiments.reproductions.runs import Kept, TrialRequest, ask_all
from testbed.core.errors import EXIT_INPUT, InputError
from testbed.core.record.run_directory import RunDir
from tests.unit.experiments.reproductions.fake_runs import found, make_run, regions, reproduce, system, thrice, trial

TRIALS = [
    *(trial(arm=arm) for arm in ("new", "old", "slow")),
    *(trial(arm=arm, kind="simulated", seconds=3.0) for arm in ("new", "old")),
    trial(seed=1),
]
PAGE = (
    f"# Made\n{regions('claim', 'set_up')}<!-- reproduction: begin -->\nbefore\n<!-- reproduction: end -->\n\n## End\n"
)


@pytest.fixture
def places(runs: Path, tmp_path: Path) -> Places:
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "made.md").write_text(PAGE)
    return Places(runs=runs, results=tmp_path / "results", pages=pages)


def test_with_all_runs_of_a_repeat_there_none_is_made_and_all_is_written(
    places: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    for one, step_s in zip(TRIALS[:5], (1.0, 1.6, 1.8, 2.0, 2.2), strict=True):
        make_run(places.runs, one, step_s=step_s)
    before = sorted(places.runs.iterdir())
    content, failures = reproduce(system(TRIALS), places, makes_runs=True, repeat=0)
    assert failures == [] and sorted(places.runs.iterdir()) == before
    assert json.loads((places.results / "made" / "result.json").read_text()) == content
    assert (content["emulated"], content["verdict"], content["standing"]) == (1.6, None, "one repeat, no verdict")
    page = (places.pages / "made.md").read_text()
    assert "before" not in page and page.endswith("<!-- reproduction: end -->\n\n## End\n")
    assert "| resnet18 | 1 (new) | 1.6 (old) | 1.600 of 1 | 6 not made, 3 valid |" in page
    all_rows = (places.pages.parent / "tables" / "made-cases.csv").read_text()
    assert ",resnet18,simulated,-,2 (new),2.2 (old),1.100 of 1,2 valid," in all_rows
    assert 'Configurations,resnet18,emulated,,,,,"2 not made, 1 valid",slow (baseline),1.8,-,3' in all_rows
    assert "repeat 1 of 3: 5 of 5 runs are there" in capsys.readouterr().out


def test_three_calls_make_three_repeats_and_then_there_is_a_verdict(
    places: Places, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[str] = []

    def make(one: TrialRequest, runs_root: Path, **_: object) -> RunDir:
        made.append(f"{one.trial.arm} {seed_of(one.trial)}")
        return make_run(runs_root, one.trial, step_s=1.0 if one.trial.arm == "new" else 1.6, now_s=1.8e9 + len(made))

    monkeypatch.setattr(runner, "make", make)
    monkeypatch.setattr(runner, "machine_lock", lambda **_: contextlib.nullcontext())
    monkeypatch.setattr(runner.os, "geteuid", lambda: 0)
    asked = system(TRIALS[:3])
    standings = []
    for repeat in range(4):
        made.clear()
        content, failures = reproduce(asked, places, makes_runs=True)
        standings.append(content["standing"])
        assert failures == [] and made == ([] if repeat == 3 else [f"{arm} {repeat}" for arm in ("new", "old", "slow")])
    assert standings == ["one repeat, no verdict", "two repeats, no verdict", "reproduced", "reproduced"]
    out = capsys.readouterr().out
    assert "repeat 2 of 3: 3 of 6 runs are there" in out and "repeat 3 of 3: 9 of 9 runs are there" in out


def test_a_call_that_was_killed_goes_on_with_its_repeat(places: Places) -> None:
    """One run of the second repeat is there: the next call makes the others of it, and none of the third."""
    for one in (*TRIALS[:3], with_seed(TRIALS[0], 1)):
        make_run(places.runs, one)
    plan = plan_of(system(TRIALS[:3]), Kept(places.runs))
    assert [(one.trial.arm, seed_of(one.trial)) for one in plan.lacking] == [("old", "1"), ("slow", "1")]


def test_what_is_undecided_of_earlier_repeats_is_made_after_what_was_never_made(places: Places) -> None:
    for one in TRIALS[:3]:
        make_run(places.runs, one, verdict="suspect" if one is TRIALS[1] else "valid")
    plan = plan_of(system(TRIALS[:3]), Kept(places.runs))
    made = [(one.trial.arm, seed_of(one.trial)) for one in plan.lacking]
    assert made == [("new", "1"), ("old", "1"), ("slow", "1"), ("old", "0")]


def test_a_repeat_that_decides_nothing_is_a_failure_that_says_why(places: Places) -> None:
    for one in TRIALS[:3]:
        make_run(places.runs, one, verdict="suspect")
    kept = Kept(places.runs)
    plan = plan_of(system(TRIALS[:3]), kept, repeat=0)
    ended = command.carry_out(dataclasses.replace(plan, lacking=()), places, kept, Runner(places.runs, None, print))
    assert not ended.is_repeat_there and ended.content["standing"] == "no repeats, no verdict"
    assert ended.failures == [
        "made: repeat 1 is not there: 0 runs are not made yet, 3 came out suspect or invalid;"
        " call it again, and it goes on"
    ]


def test_a_verdict_stands_until_as_many_repeats_are_made_of_this_code(
    places: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(3):
        for one, step_s in zip(TRIALS[:3], (1.0, 1.6, 1.8), strict=True):
            make_run(places.runs, with_seed(one, seed), step_s=step_s, code_hash="0" * 16 if seed else None)
    path = places.results / "made" / "result.json"
    path.parent.mkdir(parents=True)
    runs = thrice([found("new", 1.0), found("old", 1.5), found("slow", 1.8)])
    path.write_text(json.dumps(outcome.result(system(), runs)))
    content, _ = reproduce(system(TRIALS[:3]), places)
    assert (content["verdict"], content["emulated"]) == ("reproduced", 1.5)
    assert "one repeat, no verdict of this code; what stands has 3, and stays" in capsys.readouterr().out
    for seed in (1, 2):
        for one, step_s in zip(TRIALS[:3], (1.0, 1.04, 1.8), strict=True):
            make_run(places.runs, with_seed(one, seed), step_s=step_s)
    for one, step_s in zip(TRIALS[:3], (1.0, 1.04, 1.8), strict=True):
        make_run(places.runs, one, step_s=step_s, now_s=1.9e9)
    assert reproduce(system(TRIALS[:3]), places)[0]["verdict"] == "not", "the last counts, not the best"


def test_a_damaged_result_is_named(places: Places) -> None:
    path = places.results / "made" / "result.json"
    path.parent.mkdir(parents=True)
    for text in ("{", "[]", '{"emulated": 1}'):
        path.write_text(text)
        with pytest.raises(InputError, match=r"result\.json.*put it back, or remove it"):
            reproduce(system(TRIALS[:3]), places)


def test_a_page_names_the_machines_that_have_made_its_runs(places: Places) -> None:
    for one, kernel in zip(TRIALS[:5], ("6.9", "6.1", "6.1", "6.1", "6.1"), strict=True):
        make_run(places.runs, one, kernel=kernel)
    reproduce(system(TRIALS), places)
    made = "2 cores (a processor), Linux"
    assert f"\n{made} 6.1; {made} 6.9; 5 runs that count: [" in (places.pages / "made.md").read_text()


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
    assert content["emulated"] == 1.6 and "emulated resnet34 (slow)" in content["condition"]
    make_run(places.runs, full[2], step_s=8.0)
    assert reproduce(system(asked), places)[0]["emulated"] == 8.0


@pytest.mark.tier("all")
def test_what_is_invalid_is_made_again_after_all_systems(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def make(one: TrialRequest, runs_root: Path, **_: object) -> RunDir:
        made.append(f"{one.trial.case} {one.trial.arm}")
        verdict = "invalid" if made.count(made[-1]) < (3 if made[-1] == "resnet18 new" else 1) else "valid"
        return make_run(runs_root, one.trial, verdict=verdict)

    monkeypatch.setattr(runner, "make", make)
    monkeypatch.setattr(command, "_write_overview", lambda _: None)
    (places.pages / "other.md").write_text(PAGE)
    first = system([trial(arm="new"), trial(arm="old")])
    other = dataclasses.replace(system([trial("resnet50", arm=arm) for arm in ("new", "old")]), name="other")
    kept = Kept(places.runs)
    plans = [plan_of(one, kept, most_s=None, repeat=0) for one in (first, other)]
    held = Runner(places.runs, None, lambda _: None)
    ended = command.carry_out_all(plans, places, kept, held, 2)
    assert made[:5] == ["resnet18 new", "resnet18 old", "resnet18 new", "resnet50 new", "resnet50 old"]
    assert made[5:] == ["resnet18 new"], "until it is well"
    assert {name: one.failures for name, one in ended.items()} == {"made": [], "other": []}


def test_all_repeats_can_be_asked_for_at_once(places: Places) -> None:
    kept, asked = Kept(places.runs), system(TRIALS)
    seeds = plan_of(asked, kept, seeds=True)
    assert (len(seeds.lacking), seeds.most_s) == (3 * 3 + 2, None), "simulated once"
    assert len(plan_of(asked, kept, full=True).lacking) == 3 * 3 + 2, "what FULL has beyond is among them"
    unusual = trial("resnet34", "slow", seed=1)
    assert len(plan_of(system([*TRIALS, unusual]), kept, full=True).lacking) == 3 * 3 + 3


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
    make_run(places.runs, with_seed(TRIALS[0], 1))
    again = plan_of(system(TRIALS), kept, again=True).lacking
    assert [one.trial for one in again] == [with_seed(one, 1) for one in TRIALS[:3]], "the last repeat that is there"
    assert len(plan_of(system(TRIALS), kept, again=True, seeds=True).lacking) == 3 * 3 + 2


def test_all_systems_are_told_before_the_first_begins() -> None:
    asked = ask_all(TRIALS[:3])
    long = ask_all([trial(seconds=500.0), trial(arm="old", seconds=400.0)])
    plans = [Plan(system(), asked, asked[:1], MAX_S, 0), Plan(system(), long, long, MAX_S, 0)]
    assert all_plans(plans).splitlines() == [
        "made: repeat 1 of 3: 2 of 3 runs are there; to make: 1 emulated x 7 s = about 7 s",
        "made: repeat 1 of 3: 0 of 2 runs are there; to make: 2 emulated x 450 s = about 900 s",
        "all 2 systems: 2 of 5 runs are there; to make: 3 emulated x 302 s = about 907 s,"
        " of which this call makes about 607 s",
    ]
    assert all_plans([Plan(system(), asked, (), None)]) == "made: all 3 repeats: 3 of 3 runs are there"


def test_a_plan_makes_and_writes_nothing(places: Places, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["dear", "--plan", "--runs", str(places.runs), "--results", str(places.results)]) == 0
    assert list(places.runs.iterdir()) == [] and not places.results.exists()
    assert "to make:" in capsys.readouterr().out


def test_a_page_without_its_region_is_named(places: Places) -> None:
    (places.pages / "made.md").write_text("# Made\n")
    with pytest.raises(InputError, match=r"made\.md.*claim"):
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
    artifact.write_text(regions("figures"))
    readme = places.pages / "README.md"
    readme.write_text(regions("ledger"))
    where = ["--runs", str(places.runs), "--results", str(places.results), "--pages", str(places.pages)]
    where += ["--table", str(table), "--artifact", str(artifact), "--readme", str(readme)]
    assert command.main(["fedbuff", "--tables", *where]) == 0
    last = "fedbuff: claimed 3.3, emulated -, verdict - (no repeats, no verdict; 3 repeats missing)"
    assert capsys.readouterr().out.splitlines()[-1] == last
    assert "13 systems, 13 without a verdict" in table.read_text()
    assert "| 3.30 | - | - | 0 |" in readme.read_text()
    assert "`grace` (" in artifact.read_text()


def test_a_call_for_all_makes_the_first_repeat_that_any_system_lacks(
    places: Places, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """So that one which was killed half-way goes on there, and does not begin with another repeat of those it had."""
    for one in TRIALS[:3]:
        make_run(places.runs, one)
    other = dataclasses.replace(system([trial("resnet34", arm) for arm in ("new", "old")]), name="other")
    monkeypatch.setattr(command, "find_systems", lambda name: [system(TRIALS[:3]), other][: 1 if name else 2])
    assert command.main(["--dry-run", "--runs", str(places.runs)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "made: repeat 1 of 3: 3 of 3 runs are there"
    assert said[1].startswith("other: repeat 1 of 3: 0 of 2 runs are there; to make: 2 emulated")
    assert command.main(["made", "--plan", "--runs", str(places.runs)]) == 0
    assert "made: repeat 2 of 3: 3 of 6 runs are there" in capsys.readouterr().out
    assert command.main(["--plan", "--seeds", "--runs", str(places.runs)]) == 0
    assert "made: all 3 repeats: 3 of 9 runs are there" in capsys.readouterr().out
