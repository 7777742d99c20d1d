"""Buckets by every rule, and buckets that change while a training goes on: the same training all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import InputError
from testbed.worker.reduction.data_parallel import FUSIONS
from testbed.worker.reduction.fusion_tuner import MEASURED, SKIPPED, TRIALS
from testbed.worker.training.parts import build_parts
from tests.distributed.harness import Outcome, make_spec, run
from tests.distributed.trainings import Case, play

RING = {"collective": "ring", "bucket_size": "1 MiB"}
WINDOW = SKIPPED + MEASURED + 1


def _run(folder: Path, strategy: str, fusion: str, compressor: str = "none", **given: Any) -> Outcome:
    folder.mkdir()
    outcome = run(make_spec(strategy, compressor, strategy_params={"fusion": fusion} | RING, **given), folder)
    assert set(outcome.status.values()) == {0}, outcome.of("fault")
    return outcome


def test_two_ranks_train_alike_by_every_rule(tmp_path: Path) -> None:
    """A sum of two has one order, whatever shares a bucket."""
    cases = [
        Case(name=f"{strategy} {fusion}", spec={"strategy": strategy, "strategy_params": {"fusion": fusion} | RING})
        for strategy in ("ddp", "dear")
        for fusion in FUSIONS
    ]
    answers = play(cases, 2, tmp_path)
    assert len(answers[0]) == 2 * len(FUSIONS)
    for answer in answers:
        assert len({tuple(one["losses"]) for one in answer.values()}) == 1
    assert len({one["crc32"] for answer in answers for one in answer.values()}) == 1


@pytest.mark.parametrize(("strategy", "compressor"), [("dear", "none"), ("ddp", "topk")])
def test_a_search_changes_buckets_and_not_what_is_learnt(strategy: str, compressor: str, tmp_path: Path) -> None:
    steps = WINDOW * (TRIALS + 1) + 1  # more than it may take
    tuned = _run(tmp_path / "tuned", strategy, "tuned", compressor, steps=steps)
    notes = tuned.of("tuning")
    assert {note["rank"] for note in notes} == {0}
    what = [note["what"] for note in notes]
    first = what.index("chosen")  # what follows is how this machine's other work looks to the search
    trials, chosen = notes[:first], notes[first]
    assert what[:first] == ["trial"] * first
    assert 2 <= len(trials) <= TRIALS
    assert [note["trial"] for note in trials] == list(range(1, len(trials) + 1))
    assert [note["step"] for note in trials] == [WINDOW * index + WINDOW - 1 for index in range(len(trials))]
    assert len({note["size_bytes"] for note in trials}) == len(trials)
    assert len({note["buckets"] for note in trials}) > 1
    assert chosen["step_s"] == min(note["step_s"] for note in trials)
    assert chosen["size_bytes"] in {note["size_bytes"] for note in trials}
    if compressor == "none":  # of others what is sent depends on what shares a bucket
        plain = _run(tmp_path / "plain", "ddp", "size", steps=steps)
        assert tuned.losses(0) == plain.losses(0)
        assert len({e["parameters_crc32"] for outcome in (plain, tuned) for e in outcome.of("done")}) == 1
    else:
        assert len({e["parameters_crc32"] for e in tuned.of("done")}) == 1
        assert tuned.losses(0)[-1] < 0.5 * tuned.losses(0)[0]


@pytest.mark.parametrize(
    ("fusion", "compressor", "why"),
    [
        ("mg_wfbp", "topk", "goes by what sums cost, but TopK sends otherwise"),
        ("tuned", "countsketch", "what CountSketch keeps of buckets cannot move to others"),
        ("twice", "none", "fusion=twice"),
    ],
)
def test_what_does_not_go_together_is_refused(fusion: str, compressor: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        build_parts(make_spec("dear", compressor, strategy_params={"fusion": fusion}))
