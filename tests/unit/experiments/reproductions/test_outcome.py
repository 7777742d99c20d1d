"""What a ratio is of, which runs decide, and what `result.json` says of invented outcomes."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from experiments.common.papers.claim import AtSize, Claim
from experiments.reproductions import outcome, sides
from experiments.reproductions.page import arms_table, cases_table, result_region
from tests.unit.experiments.reproductions.fake_runs import found, system, thrice

KEYS = ["system", "claim", "source", "baseline", "runs", "emulated", "verdict", "condition"]
"""Of the interface before the ledger, which stay in this order."""


def verdict(content: dict[str, Any]) -> tuple[float | None, str | None]:
    return content["emulated"], content["verdict"]


def test_the_best_baseline_of_each_case_counts_and_the_largest_case_decides() -> None:
    runs = thrice(
        [
            *(found("new", 1.0), found("old", 1.2), found("slow", 3.0)),
            *(found("new", 2.0, case="resnet34"), found("old", 2.8, case="resnet34")),
            found("slow", 2.6, case="resnet34"),
        ]
    )
    best = sides.largest(system(), runs, "emulated")
    assert best is not None and (best.case, best.baseline.arm) == ("resnet34", "slow")
    assert best.value == pytest.approx(1.3) and sorted(best.by_repeat) == ["0", "1", "2"]
    assert verdict(outcome.result(system(), runs)) == (pytest.approx(1.3), "partly")


def test_one_repeat_has_a_ratio_and_no_verdict() -> None:
    content = outcome.result(system(), [found("new", 1.0), found("old", 1.5), found("slow", 1.6)])
    assert verdict(content) == (1.5, None)
    assert content["standing"] == "one repeat, no verdict"
    assert content["repeats"] == {"counted": 1, "needed": 3, "missing": 2}
    said = "made: claimed 1.5, emulated 1.5, verdict - (one repeat, no verdict; 2 repeats missing)"
    assert outcome.last_line(system(), content) == said


def test_a_case_that_the_claim_is_not_about_is_told_and_decides_nothing() -> None:
    runs = thrice([found("new", 1.0), found("old", 0.9), found("slow", 2.0)])
    runs += thrice([found(arm, figure, case="resnet50") for arm, figure in (("new", 1.0), ("old", 3.0), ("slow", 4.0))])
    assert outcome.result(system(), runs)["emulated"] == 3.0
    content = outcome.result(dataclasses.replace(system(), claimed_cases=("resnet18",)), runs)
    assert verdict(content) == (0.9, "not")
    assert "beside the claim: 3.00 times for resnet50, best other old" in content["condition"]


def test_what_is_better_when_larger_is_the_other_way_round() -> None:
    runs = [found("new", 3.0), found("old", 2.0), found("slow", 1.0)]
    (one,) = sides.ratios(system(higher_is_better=True), runs, "emulated")
    assert (one.baseline.arm, one.value) == ("old", 1.5)


def test_an_invalid_run_counts_for_nothing_and_is_named() -> None:
    """Nor does its case: the baseline that is left may be a weak one."""
    runs = thrice([found("new", 1.0), found("old", 1.2, "invalid"), found("slow", 3.0)])
    content = outcome.result(system(), runs)
    assert verdict(content) == (None, None) and content["standing"] == "no repeats, no verdict"
    assert content["runs"]["baseline"] == ["run-resnet18-slow"] * 3
    other = [found(arm, figure, case="resnet34") for arm, figure in (("new", 1.0), ("old", 1.3))]
    assert outcome.result(system(), [*runs, *thrice(other)])["emulated"] == 1.3
    assert "invalid: emulated resnet18 (old), 3 seeds" in content["condition"]


def test_nothing_is_said_before_every_run_that_decides_is_made() -> None:
    """A case that is there already might not be the one with the largest ratio."""
    there = thrice([found("new", 1.0), found("old", 1.04), found("slow", 3.0)])
    assert outcome.result(system(), there)["verdict"] == "not"
    left = dataclasses.replace(found("old", None, None, case="resnet34"), run_id=None)
    content = outcome.result(system(), [*there, left])
    assert (content["verdict"], content["missing"]) == (None, ["1 runs that decide"])
    beside = dataclasses.replace(system(), baselines=("slow",), beside=("old",))
    assert outcome.result(beside, [*there, left])["verdict"] == "reproduced"
    assert [trial.case for trial in outcome.left(system(), [*there, left])] == ["resnet34"]


def test_a_simulated_run_supports_nothing() -> None:
    runs = thrice([found(arm, figure, kind="simulated") for arm, figure in (("new", 1.0), ("old", 9.0))])
    content = outcome.result(system(), runs)
    assert verdict(content) == (None, None) and content["repeats"]["counted"] == 0
    assert sides.ratios(system(), [*runs, found("old", 2.0)], "emulated") == []


@pytest.mark.parametrize(("simulated", "said"), [(1.5, "reproduced"), (1.2, "partly"), (None, None)])
def test_a_simulation_of_the_paper_s_size_may_contradict(simulated: float | None, said: str | None) -> None:
    """A suspect one too: outside of the validated range all are."""
    asked = dataclasses.replace(system(), terms=Claim(at_size=(AtSize(("resnet18",), 1.5),)))
    runs = thrice([found("new", 1.0), found("old", 1.5), found("slow", 3.0)])
    if simulated is not None:
        runs += [
            found(arm, f, "suspect", kind="simulated") for arm, f in (("new", 1.0), ("old", simulated), ("slow", 9))
        ]
    content = outcome.result(asked, runs)
    assert content["verdict"] == said
    assert content["simulated"] == [
        {"cases": ["resnet18"], "published": 1.5, "ratio": simulated, "agrees": said and said == "reproduced"}
    ]


HELD = system(reference="slow", quality=lambda run: None)


def good(*seeds: int) -> list[sides.Found]:
    return [found("slow", 9.0, quality=86.0 + 2 * (seed % 2), seed=seed) for seed in seeds or range(3)]


def _new_over_old(*qualities: float, old: float = 86.0) -> sides.Ratio | None:
    new = [found("new", 2.0, quality=quality, seed=seed) for seed, quality in enumerate(qualities)]
    olds = [found("old", 4.0, quality=old + 2 * (seed % 2), seed=seed) for seed in range(2)]
    return sides.ratio(HELD, [*good(0, 1), *olds, *new], "resnet18", "emulated")


@pytest.mark.parametrize(
    ("qualities", "counts"),
    [((85.5,), True), ((85.4,), False), ((85.0, 88.1), True), ((85.0, 87.9), False), ((), False)],
)
def test_an_arm_counts_only_where_it_is_about_as_good_as_the_reference(
    qualities: tuple[float, ...], counts: bool
) -> None:
    """Over the repeats that both have, which are those of its ratio."""
    best = _new_over_old(*qualities)
    assert (best is not None) == counts
    assert best is None or (best.baseline.arm, best.value, len(best.by_repeat)) == ("old", 2.0, len(qualities))


def test_a_baseline_that_is_not_as_good_is_left_out_and_named() -> None:
    best = _new_over_old(86.0, old=80.0)
    assert best is not None and (best.baseline.arm, best.value) == ("slow", 4.5)
    runs = [*good(), *thrice([found("old", 4.0, quality=80.0), found("new", 2.0, quality=87.0)])]
    content = outcome.result(HELD, runs)
    assert "too low, so that it does not count: resnet18 (old)" in content["condition"]
    assert content["quality"]["difference"] == pytest.approx(1 / 3, abs=0.001)
    assert content["quality"]["interval"] == pytest.approx([1 / 3 - 2.868, 1 / 3 + 2.868], abs=0.002)
    assert "+0.33 points (-2.54 to +3.20); held" in result_region(HELD, content)


def test_a_claim_whose_quality_no_candidate_holds_is_not_met_after_three_repeats() -> None:
    runs = [*good(), *thrice([found("old", 4.0, quality=86.5), found("new", 2.0, quality=80.0)])]
    content = outcome.result(HELD, runs)
    assert verdict(content) == (None, "not") and not content["quality"]["held"]
    assert "2.00 times for resnet18, at a lower quality, so that it does not count" in content["condition"]
    elsewhere = [found(arm, figure, quality=86.0, case="other") for arm, figure in (("slow", 9.0), ("new", 6.0))]
    assert outcome.result(HELD, [*runs, *thrice(elsewhere)])["verdict"] == "reproduced"
    one = [found("slow", 9.0, quality=86.0), found("old", 4.0, quality=86.0), found("new", 2.0, quality=80.0)]
    assert outcome.result(HELD, one)["standing"] == "one repeat, no verdict"
    for lacking in (
        [one for one in runs if one.trial.arm != "new"],
        [one for one in runs if one.trial.arm != "slow"],
        [dataclasses.replace(one, figure=None) if one.trial.arm == "old" else one for one in runs],
        [dataclasses.replace(one, quality=90.0) if one.trial.arm == "old" else one for one in runs],
    ):
        assert outcome.result(HELD, lacking)["verdict"] is None


@pytest.mark.parametrize(
    ("new", "why"),
    [
        ([found("new", 2.0)], "new: no quality"),
        ([found("new", 2.0, quality=80.0, seed=7)], "new: no seed that slow has too"),
    ],
)
def test_qualities_that_were_not_compared_are_no_lower_ones(new: list[sides.Found], why: str) -> None:
    """So that nothing is said, but for why."""
    content = outcome.result(HELD, [*good(), *thrice([found("old", 4.0, quality=86.5)]), *new])
    assert verdict(content) == (None, None)
    assert f"not compared in quality, so that it does not count: resnet18 ({why})" in content["condition"]
    assert "too low" not in content["condition"] and "lower quality" not in content["condition"]


def test_a_reference_without_a_quality_compares_nothing() -> None:
    runs = [found("slow", 9.0), found("old", 4.0, quality=86.0), found("new", 2.0, quality=1.0)]
    content = outcome.result(HELD, thrice(runs))
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
    assert "slow (beside) | 1 |" in arms_table(beside, content)


def test_nothing_is_asked_of_what_simulated_runs_learn() -> None:
    runs = [found(arm, figure, kind="simulated") for arm, figure in (("new", 1.0), ("old", 9.0), ("slow", 8.0))]
    best = sides.ratio(HELD, runs, "resnet18", "simulated")
    assert best is not None and best.value == 8.0


def test_a_result_keeps_the_keys_of_the_interface_and_gains_those_of_the_ledger() -> None:
    content = outcome.result(system(), [found("new", 1.0), found("old", 1.5), found("slow", None, None)])
    assert list(content)[: len(KEYS)] == KEYS
    assert list(content)[len(KEYS) :] == [
        *("class", "claimed", "standing", "repeats", "ratios", "interval", "reaches", "quality", "not_made", "missing"),
        *("caps", "above_claim", "explanation", "simulated", "set_ups", "cases", "machines"),
    ]
    assert json.loads(json.dumps(content)) == content
    assert content["condition"].endswith("not made: emulated resnet18 (slow)")


def test_a_row_of_a_case_has_seven_columns_at_most() -> None:
    content = outcome.result(system(), thrice([found("new", 1.0), found("old", 1.5), found("slow", 1.6)]))
    assert cases_table(content).splitlines()[2] == (
        "| resnet18 | emulated | - | 1 (new) | 1.5 (old) | 1.500 of 3 | 9 valid |"
    )
    assert all(
        line.count("|") <= 8
        for line in (*cases_table(content).splitlines(), *arms_table(system(), content).splitlines())
    )
