"""Every system that is declared: its page, its runs, and DeAR's own figures."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest

from experiments.common.papers.claim import NOT_STATED, OWN, AtSize, Claim, Setup, claim_faults
from experiments.common.papers.declaration import HEADINGS, PAGES, known_systems, load
from experiments.reproductions.dear.declaration import ARMS, MODELS, SLOWLY
from experiments.reproductions.page import REGIONS
from experiments.reproductions.plan import MAX_S
from experiments.reproductions.runs import ask_all


@pytest.mark.parametrize("name", known_systems())
def test_a_page_has_the_fixed_headings_and_each_region_once(name: str) -> None:
    page = (PAGES / f"{name}.md").read_text()
    assert tuple(re.findall(r"^## (.*)$", page, re.MULTILINE)) == HEADINGS
    for region in REGIONS:
        assert page.count(f"<!-- {region}: begin -->") == page.count(f"<!-- {region}: end -->") == 1


def test_two_classes_and_both_set_ups_are_declared() -> None:
    all_of = {name: load(name).terms for name in known_systems()}
    assert {name for name, terms in all_of.items() if terms.kind == OWN} == {"fedml", "hierarchical"}
    for terms in all_of.values():
        assert any(words != NOT_STATED for words in terms.paper.to_json().values())
        assert all(
            len(words.split()) <= 16 for words in (*terms.paper.to_json().values(), *terms.ours.to_json().values())
        )


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        (Claim(kind="a wish"), "kind 'a wish' is none of: the paper's claim, our own comparison"),
        (Claim(ours=Setup(model="one")), "ours lacks device, workers, network, baseline, metric"),
        (Claim(at_size=(AtSize(("ResNet-9",), 1.2),)), "at_size ['ResNet-9']: no simulated trial is of these cases"),
        (Claim(at_size=(AtSize((), 1.2),)), "at_size: an entry needs cases and a published ratio above 0"),
        (Claim(weaker_baseline=""), "weaker_baseline is empty: state the reason"),
        (Claim(why_above=""), "why_above is empty: state the reason"),
    ],
)
def test_a_declaration_that_does_not_fit_is_named(claim: Claim, said: str) -> None:
    assert any(fault.startswith(said) for fault in claim_faults(claim, ["ResNet-50"]))


@pytest.mark.parametrize("name", known_systems())
def test_a_simulation_that_may_contradict_is_made_unasked(name: str) -> None:
    """Otherwise a verdict would wait for `FULL=1`."""
    system = load(name)
    usual = {(trial.case, trial.arm) for trial in system.trials(False) if trial.kind == "simulated"}
    for case in (case for one in system.terms.at_size for case in one.cases):
        arms = {arm for of, arm in usual if of == case}
        assert arms & set(system.candidates) and arms & set(system.baselines)


@pytest.mark.tier("all")
@pytest.mark.parametrize("name", known_systems())
def test_all_runs_can_be_asked_for_and_differ(name: str) -> None:
    trials = load(name).trials(True)
    assert len({(trial.kind, *trial.overrides) for trial in trials}) == len(trials)
    asked = ask_all(trials)
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
