"""`result.json` as it is recorded: older ones are one repeat, and all are judged by the terms as they are now."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from experiments.common.papers.claim import OWN, Claim
from experiments.common.papers.declaration import FOLDER, find_systems
from experiments.reproductions import outcome
from tests.unit.experiments.reproductions.fake_runs import found, system, thrice

OLD = {
    "system": "made",
    "claim": "a claim",
    "source": "nowhere",
    "baseline": "old and slow",
    "runs": {"baseline": ["b"], "candidate": ["c"]},
    "emulated": 1.6,
    "verdict": "reproduced",
    "condition": "made up; suspect: emulated resnet18 (old)",
}
"""As `make reproduce` wrote it before the ledger."""


@pytest.mark.parametrize(
    ("changed", "standing", "emulated"),
    [
        ({}, "one repeat, no verdict", 1.6),
        ({"emulated": None, "verdict": "not"}, "one repeat, no verdict", None),
        ({"emulated": None, "verdict": None}, "no repeats, no verdict", None),
    ],
)
def test_a_result_older_than_the_ledger_is_one_repeat(
    changed: dict[str, object], standing: str, emulated: float | None
) -> None:
    content = outcome.judged_again(system(), OLD | changed)
    assert (content["standing"], content["emulated"], content["verdict"]) == (standing, emulated, None)
    assert (content["runs"], content["condition"]) == (OLD["runs"], OLD["condition"])
    assert outcome.judged_again(system(), content) == content


def test_what_is_recorded_is_judged_by_the_terms_as_they_are_now() -> None:
    runs = thrice([found("new", 1.0), found("old", 1.5), found("slow", 3.0)])
    content = outcome.result(system(), runs)
    assert outcome.judged_again(system(), content) == content
    weak = dataclasses.replace(system(), terms=Claim(kind=OWN, weaker_baseline="it waits"))
    again = outcome.judged_again(weak, content)
    assert (again["verdict"], again["class"]) == ("partly", OWN)
    held = system(reference="slow", quality=lambda run: None)
    runs = [found(arm, 4.0, quality=quality) for arm, quality in (("slow", 86.0), ("old", 86.0), ("new", 80.0))]
    low = outcome.result(held, thrice(runs))
    assert outcome.judged_again(held, low) == low and low["verdict"] == "not"


@pytest.mark.parametrize("changed", [{"baseline": "old and slow, streamed"}, {"setting": "made up anew"}])
def test_a_result_of_other_arms_counts_no_repeat(changed: dict[str, str]) -> None:
    content = outcome.result(system(), thrice([found("new", 1.0), found("old", 1.5), found("slow", 3.0)]))
    assert content["verdict"] == "reproduced"
    for recorded in (OLD, content):
        again = outcome.judged_again(dataclasses.replace(system(), **changed), recorded)
        assert (again["standing"], again["emulated"], again["ratios"]) == ("no repeats, no verdict", None, {})


def test_results_that_are_recorded_are_what_the_ledger_says_of_them() -> None:
    for one in find_systems(None):
        path: Path = FOLDER / one.folder / "result.json"
        recorded = json.loads(path.read_text())
        assert outcome.judged_again(one, recorded) == recorded, f"{path}: run `make reproduce REPRODUCE=--tables`"
