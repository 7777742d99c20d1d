"""The rule of a verdict, and what a ratio is of."""

from __future__ import annotations

import dataclasses

import pytest

from experiments.reproductions import outcome, sides
from experiments.reproductions.page import cases_table
from tests.unit.experiments.reproductions.made_up import found, system


@pytest.mark.parametrize(
    ("claimed", "emulated", "verdict"),
    [
        (1.83, 2.5, "reproduced"),
        (1.83, 1.7471, "reproduced"),
        (1.83, 1.7469, "partly"),
        (1.83, 1.0501, "partly"),
        (1.83, 1.05, "not"),
        (1.83, 0.7, "not"),
        (1.04, 1.045, "reproduced"),
        (1.83, None, None),
    ],
)
def test_the_verdict_is_of_the_gain(claimed: float, emulated: float | None, verdict: str | None) -> None:
    assert outcome.verdict_of(claimed, emulated) == verdict


def test_the_best_baseline_of_each_case_counts_and_the_largest_case_decides() -> None:
    runs = [
        *(found("new", 1.0), found("old", 1.2), found("slow", 3.0)),
        *(found("new", 2.0, case="resnet34"), found("old", 2.8, case="resnet34"), found("slow", 2.6, case="resnet34")),
    ]
    best = sides.largest(system(), runs, "emulated")
    assert best is not None and (best.case, best.baseline.arm) == ("resnet34", "slow")
    assert best.value == pytest.approx(1.3)
    assert outcome.result(system(), runs)["emulated"] == pytest.approx(1.3)
    assert outcome.result(system(), runs)["verdict"] == "partly"


def test_a_case_that_the_claim_is_not_about_is_told_and_decides_nothing() -> None:
    far = {"case": "resnet50"}
    runs = [found("new", 1.0), found("old", 0.9), found("slow", 2.0)]
    runs += [found("new", 1.0, **far), found("old", 3.0, **far), found("slow", 4.0, **far)]
    assert outcome.result(system(), runs)["emulated"] == 3.0
    content = outcome.result(dataclasses.replace(system(), claimed_cases=("resnet18",)), runs)
    assert (content["emulated"], content["verdict"]) == (0.9, "not")
    assert "beside the claim: 3.00 times for resnet50, best other old" in content["condition"]


def test_what_is_better_when_larger_is_the_other_way_round() -> None:
    runs = [found("new", 3.0), found("old", 2.0), found("slow", 1.0)]
    (one,) = sides.ratios(system(higher_is_better=True), runs, "emulated")
    assert (one.baseline.arm, one.value) == ("old", 1.5)


def test_an_invalid_run_counts_for_nothing_and_is_named() -> None:
    """Nor does its case: the baseline that is left may be a weak one."""
    runs = [found("new", 1.0), found("old", 1.2, "invalid"), found("slow", 3.0, "suspect")]
    content = outcome.result(system(), runs)
    assert (content["emulated"], content["verdict"]) == (None, None)
    assert content["runs"] == {"baseline": ["run-resnet18-slow"], "candidate": ["run-resnet18-new"]}
    other = [found("new", 1.0, case="resnet34"), found("old", 1.3, case="resnet34")]
    assert outcome.result(system(), [*runs, *other])["emulated"] == 1.3
    assert "invalid: emulated resnet18 (old)" in content["condition"]
    assert "suspect: emulated resnet18 (slow)" in content["condition"]


def test_runs_that_differ_by_their_seeds_alone_are_named_once() -> None:
    runs = [
        found("old", 1.2, "suspect"),
        found("new", 1.0),
        found("old", 1.3, "suspect"),
        found("slow", 3.0, "suspect"),
    ]
    condition = outcome.result(system(), runs)["condition"]
    assert condition.endswith("suspect: emulated resnet18 (old), 2 seeds; emulated resnet18 (slow)")


def test_nothing_is_said_before_every_run_that_decides_is_made() -> None:
    """A case that is there already might not be the one with the largest ratio."""
    there = [found("new", 1.0), found("old", 1.04), found("slow", 3.0)]
    assert outcome.result(system(), there)["verdict"] == "not"
    left = dataclasses.replace(found("old", None, None, case="resnet34"), run_id=None)
    assert outcome.result(system(), [*there, left])["verdict"] is None
    beside = dataclasses.replace(system(), baselines=("slow",), beside=("old",))
    assert outcome.result(beside, [*there, left])["verdict"] == "reproduced"
    assert [trial.case for trial in outcome.left(system(), [*there, left])] == ["resnet34"]


def test_a_simulated_run_decides_nothing_and_is_listed() -> None:
    runs = [found(arm, figure, kind="simulated") for arm, figure in (("new", 1.0), ("old", 9.0))]
    content = outcome.result(system(), runs)
    assert (content["emulated"], content["verdict"]) == (None, None)
    assert content["runs"] == {"baseline": ["run-resnet18-old"], "candidate": ["run-resnet18-new"]}
    assert sides.ratios(system(), [*runs, found("old", 2.0)], "emulated") == []


def test_of_repeats_the_median_counts() -> None:
    runs = [found("new", 1.0), *(found("old", figure) for figure in (1.4, 1.1, 9.0))]
    (one,) = sides.ratios(system(), runs, "emulated")
    assert one.value == 1.4


HELD = system(reference="slow", quality=lambda run: None)
GOOD = [found("slow", 9.0, quality=quality, seed=seed) for seed, quality in enumerate((86.0, 88.0))]


def _new_over_old(*qualities: float, old: float = 86.0) -> sides.Ratio | None:
    new = [found("new", 2.0, quality=quality, seed=seed) for seed, quality in enumerate(qualities)]
    return sides.ratio(HELD, [*GOOD, found("old", 4.0, quality=old), *new], "resnet18", "emulated")


@pytest.mark.parametrize(
    ("qualities", "counts"),
    [((85.5,), True), ((85.4,), False), ((85.0, 88.1), True), ((85.0, 87.9), False), ((), False)],
)
def test_an_arm_counts_only_where_it_is_about_as_good_as_the_reference(
    qualities: tuple[float, ...], counts: bool
) -> None:
    """Over the seeds that both have."""
    best = _new_over_old(*qualities)
    assert (best is not None) == counts
    assert best is None or (best.baseline.arm, best.value) == ("old", 2.0)


def test_a_baseline_that_is_not_as_good_is_left_out_and_named() -> None:
    best = _new_over_old(86.0, old=80.0)
    assert best is not None and (best.baseline.arm, best.value) == ("slow", 4.5)
    runs = [*GOOD, found("old", 4.0, quality=80.0), found("new", 2.0, quality=87.0)]
    table = cases_table(HELD, runs)
    assert "87.00 ± 12.71" in table and "80.00, too low" in table
    said = outcome.result(HELD, runs)["condition"]
    assert "qualities of 1 seed;" in said and "too low, so that it does not count: resnet18 (old)" in said


def test_a_claim_whose_quality_no_candidate_holds_is_not_met_and_what_it_gained_is_said() -> None:
    old, new = found("old", 4.0, quality=86.0), found("new", 2.0, quality=80.0)
    content = outcome.result(HELD, [*GOOD, old, new])
    assert (content["emulated"], content["verdict"]) == (None, "not")
    assert "2.00 times for resnet18, at a lower quality, so that it does not count" in content["condition"]
    assert "| 4 (2.00) |" in cases_table(HELD, [*GOOD, old, new])
    elsewhere = [found(arm, figure, quality=86.0, case="other") for arm, figure in (("slow", 9.0), ("new", 6.0))]
    assert outcome.result(HELD, [*GOOD, old, new, *elsewhere])["verdict"] == "reproduced"
    for lacking in (
        [*GOOD, old],
        [*GOOD, new, found("old", None, None)],
        [old, new],
        [*GOOD, new, found("old", 4.0, quality=90.0)],
    ):
        assert outcome.result(HELD, lacking)["verdict"] is None


@pytest.mark.parametrize(
    ("new", "why"),
    [
        (found("new", 2.0), "new: no quality"),
        (found("new", 2.0, quality=80.0, seed=7), "new: no seed that slow has too"),
    ],
)
def test_qualities_that_were_not_compared_are_no_lower_ones(new: sides.Found, why: str) -> None:
    """So that nothing is said, but for why."""
    runs = [*GOOD, found("old", 4.0, quality=86.0), new]
    content = outcome.result(HELD, runs)
    assert (content["emulated"], content["verdict"]) == (None, None)
    assert f"not compared in quality, so that it does not count: resnet18 ({why})" in content["condition"]
    assert "too low" not in content["condition"] and "lower quality" not in content["condition"]
    assert "too low" not in cases_table(HELD, runs)
    elsewhere = [found("new", 2.0, quality=80.0, case="other")]
    elsewhere += [found(arm, 4.0, quality=86.0, case="other") for arm in ("slow", "old")]
    assert outcome.result(HELD, [*runs, *elsewhere])["verdict"] == "not", "of the case that was compared"


def test_a_reference_without_a_quality_compares_nothing() -> None:
    content = outcome.result(
        HELD, [found("slow", 9.0), found("old", 4.0, quality=86.0), found("new", 2.0, quality=1.0)]
    )
    assert content["verdict"] is None
    assert "resnet18 (new: slow has no quality), resnet18 (old: slow has no quality)" in content["condition"]


def test_nothing_counts_where_another_baseline_is_better_than_the_reference() -> None:
    assert _new_over_old(86.0, old=86.5) is not None
    assert _new_over_old(86.0, old=86.6) is None


def test_an_arm_beside_is_shown_and_decides_nothing() -> None:
    runs = [found("new", 2.0), found("old", 3.0)]
    beside = dataclasses.replace(system(), baselines=("old",), beside=("slow",))
    for figure in (1.0, 9.0):
        best = sides.ratio(beside, [*runs, found("slow", figure)], "resnet18", "emulated")
        assert best is not None and (best.baseline.arm, best.value) == ("old", 1.5)
    content = outcome.result(beside, [*runs, found("slow", 1.0)])
    assert content["runs"] == {"baseline": ["run-resnet18-old"], "candidate": ["run-resnet18-new"]}
    assert "1 (0.50)" in cases_table(beside, [*runs, found("slow", 1.0)])


def test_nothing_is_asked_of_what_simulated_runs_learn() -> None:
    held = system(reference="slow", quality=lambda run: None)
    runs = [found(arm, figure, kind="simulated") for arm, figure in (("new", 1.0), ("old", 9.0), ("slow", 8.0))]
    best = sides.ratio(held, runs, "resnet18", "simulated")
    assert best is not None and best.value == 8.0


def test_a_result_has_exactly_the_keys_of_the_interface() -> None:
    runs = [found("new", 1.0), found("old", 1.5), found("slow", None, None)]
    content = outcome.result(system(), runs)
    assert list(content) == ["system", "claim", "source", "baseline", "runs", "emulated", "verdict", "condition"]
    assert content["condition"].endswith("not made: emulated resnet18 (slow)")
    assert outcome.last_line(system(), content) == "made: claimed 1.5, emulated -, verdict -"
    content = outcome.result(system(), [found("new", 1.0), found("old", 1.5), found("slow", 1.6)])
    assert outcome.last_line(system(), content) == "made: claimed 1.5, emulated 1.5, verdict reproduced"
