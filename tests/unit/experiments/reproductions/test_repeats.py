"""Which measurements decide: repeats, paired, the last of each, `valid` ones alone; on invented outcomes."""

from __future__ import annotations

import dataclasses
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.reproductions import outcome, sides
from experiments.reproductions.page import arms_table
from tests.unit.experiments.reproductions.fake_runs import found, system, thrice


def test_a_verdict_comes_with_its_interval() -> None:
    runs = [found(arm, figure, seed=seed) for seed in range(3) for arm, figure in (("new", 1.0), ("slow", 9.0))]
    runs += [found("old", figure, seed=seed) for seed, figure in enumerate((1.38, 1.4, 1.42))]
    content = outcome.result(system(), runs)
    low, high = content["interval"]
    assert content["verdict"] == "partly" and low < 1.4 < high < 1.46 and content["reaches"] == ["reproduced"]
    assert outcome.last_line(system(), content) == (
        f"made: claimed 1.5, emulated 1.4 ({low:.3g} to {high:.3g}), verdict partly"
    )
    assert content["ratios"] == {"0": 1.38, "1": 1.4, "2": 1.42}


def test_repeats_are_paired() -> None:
    """An hour that makes both arms twice as slow says nothing of their ratio."""
    runs = [
        found(arm, figure * (1 + seed), seed=seed) for seed in range(3) for arm, figure in (("new", 1), ("old", 1.4))
    ]
    (one,) = sides.ratios(dataclasses.replace(system(), baselines=("old",)), runs, "emulated")
    assert list(one.by_repeat.values()) == pytest.approx([1.4] * 3)


def test_a_suspect_run_decides_nothing_and_is_shown() -> None:
    runs = thrice([found("new", 1.0), found("old", 1.6), found("slow", 3.0)])
    doubtful = [dataclasses.replace(one, verdict="suspect") if one.trial.arm == "old" else one for one in runs]
    content = outcome.result(system(), doubtful)
    assert content["emulated"] is None and content["repeats"]["counted"] == 0
    assert "suspect: emulated resnet18 (old), 3 seeds" in content["condition"]
    assert "| 1.6 | 3.00 |" not in arms_table(system(), content) and "old (baseline) | 1.6 |" in arms_table(
        system(), content
    )
    one = [dataclasses.replace(one, verdict="suspect") if i == 0 else one for i, one in enumerate(runs)]
    assert outcome.result(system(), one)["standing"] == "two repeats, no verdict"


def test_the_last_measurement_counts_not_the_best() -> None:
    """GRACE was measured as 4.74 and again as 4.18, and the former stood."""
    runs = thrice([found("new", 1.0), found("old", 1.5), found("slow", 3.0)])
    first = next(one for one in runs if one.trial.arm == "old")
    for figure, state, expected in (
        (1.2, "valid", [1.2, 1.5, 1.5]),
        (1.8, "valid", [1.8, 1.5, 1.5]),
        (1.2, "suspect", [1.5, 1.5]),
        (1.2, "invalid", [1.5, 1.5, 1.5]),
    ):
        later = dataclasses.replace(first, run_id="run-z", figure=figure, verdict=state)
        for order in ([*runs, later], [later, *runs]):
            assert list(outcome.result(system(), order)["ratios"].values()) == expected


def test_the_order_of_measurements_does_not_matter() -> None:
    runs = [
        found(arm, figure + seed / 50, seed=seed) for seed in range(4) for arm, figure in (("new", 1.0), ("old", 1.4))
    ]
    runs += thrice([found("slow", 3.0), found("new", 1.0, kind="simulated"), found("old", 1.5, kind="simulated")])
    chance, asked = random.Random(0), system()
    known = outcome.result(asked, runs)
    for _ in range(20):
        chance.shuffle(runs)
        again = outcome.result(asked, runs)
        assert {key: again[key] for key in ("emulated", "interval", "verdict")} == {
            key: known[key] for key in ("emulated", "interval", "verdict")
        }


def test_a_case_with_enough_repeats_is_chosen_before_one_with_a_larger_ratio() -> None:
    runs = thrice([found("new", 1.0), found("old", 1.3), found("slow", 2.0)])
    lucky = [found(arm, figure, case="resnet34") for arm, figure in (("new", 1.0), ("old", 1.6), ("slow", 1.7))]
    content = outcome.result(system(), [*runs, *lucky])
    assert (content["emulated"], content["verdict"]) == (1.3, "partly")


MEASURED = st.tuples(
    st.sampled_from(("new", "old", "slow")),
    st.integers(0, 4),
    st.sampled_from(("valid", "valid", "suspect", "invalid")),
    st.floats(0.5, 3),
    st.integers(1, 9),
)
"""Arm, seed, verdict, figure, and when it was measured."""


def measured(all_of: list[tuple[str, int, str, float, int]]) -> list[sides.Found]:
    """Return one measurement at each place and time; each arm is asked for."""
    never = [dataclasses.replace(found(arm, None, None), run_id=None) for arm in ("new", "old", "slow")]
    unique = {(arm, seed, time): (arm, seed, state, figure, time) for arm, seed, state, figure, time in all_of}
    runs = [
        dataclasses.replace(found(arm, figure, state, seed=seed), run_id=f"run-{time}")
        for arm, seed, state, figure, time in unique.values()
    ]
    return [*runs, *never]


@given(st.lists(MEASURED, max_size=40), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_of_any_measurements_only_the_last_of_each_repeat_matter(
    all_of: list[tuple[str, int, str, float, int]], chance: random.Random
) -> None:
    runs = measured(all_of)
    content = outcome.result(system(), runs)
    shuffled = list(runs)
    chance.shuffle(shuffled)
    again = outcome.result(system(), shuffled)
    for key in ("emulated", "interval", "verdict", "ratios", "repeats", "missing"):
        assert again[key] == content[key]
    last: dict[tuple[str, str, str, str], sides.Found] = {}
    for one in sorted(runs, key=lambda one: one.run_id or ""):
        if one.verdict != "invalid" or one.place not in last:
            last[one.place] = one
    assert outcome.result(system(), list(last.values()))["ratios"] == content["ratios"]
    valid = [one for one in last.values() if one.verdict == "valid"]
    seeds = [{one.place[3] for one in valid if one.trial.arm == arm} for arm in ("new", "old", "slow")]
    assert set(content["ratios"]) == set.intersection(*seeds)


@given(st.lists(MEASURED, max_size=30), st.sampled_from(("new", "old", "slow")), st.integers(0, 4))
@settings(max_examples=60, deadline=None)
def test_a_doubtful_measurement_never_brings_a_verdict_nearer(
    all_of: list[tuple[str, int, str, float, int]], arm: str, seed: int
) -> None:
    runs = measured(all_of)
    before = outcome.result(system(), runs)["repeats"]["counted"]
    for state in ("suspect", "invalid"):
        later = dataclasses.replace(found(arm, 1.0, state, seed=seed), run_id="run-z")
        assert outcome.result(system(), [*runs, later])["repeats"]["counted"] <= before
    sure = dataclasses.replace(found(arm, 1.0, "valid", seed=seed), run_id="run-z")
    assert outcome.result(system(), [*runs, sure])["repeats"]["counted"] >= before
