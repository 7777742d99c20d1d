"""Every system that is declared: its page, its runs, and DeAR's own figures."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest

from experiments.common.papers.declaration import HEADINGS, PAGES, Trial, known_systems, load
from experiments.reproductions.dear.declaration import ARMS, MODELS, SLOWLY
from experiments.reproductions.plan import MAX_S
from experiments.reproductions.runs import ask_all


@pytest.mark.parametrize("name", known_systems())
def test_a_page_has_the_fixed_headings_and_one_region(name: str) -> None:
    page = (PAGES / f"{name}.md").read_text()
    assert tuple(re.findall(r"^## (.*)$", page, re.MULTILINE)) == HEADINGS
    assert page.count("<!-- reproduction: begin -->") == page.count("<!-- reproduction: end -->") == 1


@pytest.mark.tier("all")
@pytest.mark.parametrize("name", known_systems())
def test_all_runs_can_be_asked_for_and_differ(name: str) -> None:
    """Of seeds that differ in nothing else the first is asked for."""
    trials = load(name).trials(True)
    words = {(trial.kind, *trial.overrides): trial for trial in trials}
    assert len(words) == len(trials)
    of_one_seed: dict[tuple[str, ...], Trial] = {}
    for one, trial in words.items():
        of_one_seed.setdefault(tuple(word for word in one if not word.startswith("seed=")), trial)
    asked = ask_all(tuple(of_one_seed.values()))
    assert len({(one.trial.kind, one.spec.hash) for one in asked}) == len(asked) > 1


@pytest.mark.parametrize("name", known_systems())
def test_what_is_made_unasked_ends_within_ten_minutes_and_compares(name: str) -> None:
    system = load(name)
    trials = system.trials(False)
    assert sum(trial.seconds for trial in trials) <= MAX_S
    emulated = {trial.arm for trial in trials if trial.kind == "emulated"}
    assert emulated & set(system.candidates) and emulated & set(system.baselines)
    assert set(trials) <= set(system.trials(True))


def test_steps_of_one_gpu_are_measured_or_assumed_by_flops() -> None:
    steps = {name: model.step_s for name, model in MODELS.items()}
    assert steps["ResNet-50"] == pytest.approx(64 / 253.1, rel=1e-3)
    assert steps["BERT-large"] == pytest.approx(8 / 49, rel=1e-3)
    assert steps["DenseNet-201"] == pytest.approx(64 / 253.1 / 2 * 8.58 / 8.18, rel=0.01)
    assert steps["Inception-v4"] == pytest.approx(64 / 253.1 * 24.5 / 8.18, rel=0.01)


def test_runs_of_a_case_differ_in_their_strategy_alone() -> None:
    shared = defaultdict(set)
    for trial in load("dear").trials(True):
        before = [word for word in trial.overrides[: -len(ARMS[trial.arm])] if not word.startswith("seed=")]
        shared[trial.kind, trial.case].add(tuple(before))
    assert len(shared) == 3 * len(MODELS) and all(len(each) == 1 for each in shared.values())


def test_without_fusion_is_compared_at_its_own_dilation() -> None:
    unfused = [t for t in load("dear").trials(True) if t.arm == "no fusion" and t.kind == "emulated"]
    assert unfused and all(trial.case.endswith(SLOWLY) for trial in unfused)
    for full in (False, True):  # so that no case has a weak baseline alone
        emulated = [trial for trial in load("dear").trials(full) if trial.kind == "emulated"]
        for case in {trial.case for trial in emulated}:
            assert {"DeAR", "overlapped"} <= {trial.arm for trial in emulated if trial.case == case}
    assert MODELS["ResNet-50"].slow_dilation == pytest.approx(58.75, rel=0.1)  # what dilation=auto came to
