"""KV transfer against fetching all: its arms, their budgets, and what is read from a run's record."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

from experiments.common.papers.declaration import load
from experiments.reproductions.kv import budgets
from experiments.reproductions.kv.declaration import ARMS, CANDIDATES, LINKS, TOKENS, match_percent, own_words, token_s
from experiments.reproductions.runs import ask_all
from testbed.core.record.run_directory import RunDir
from testbed.worker.strategies.kv_transfer import KVTransfer
from testbed.worker.training.parts import build_parts

FOUND = json.loads(budgets.FILE.read_text())


def test_runs_of_a_case_differ_in_their_selector_alone() -> None:
    shared = defaultdict(set)
    for trial in load("kv").trials(True):
        own = own_words(trial.arm)
        assert set(own) <= set(trial.overrides)
        shared[trial.case].add(tuple(w for w in trial.overrides if w not in own and not w.startswith("seed=")))
    assert shared.keys() == LINKS.keys() and all(len(each) == 1 for each in shared.values())


def test_every_run_can_be_built_and_decodes_as_many_tokens_as_its_time_is_of() -> None:
    for asked in ask_all(load("kv").trials(False)):
        parts = build_parts(asked.spec)
        assert isinstance(parts.strategy, KVTransfer)
        sample = parts.workload.batch(0, rank=0, world_size=1, batch_size=1, seed=0).sample(0)
        assert len(sample.steps) == TOKENS


@pytest.mark.parametrize("arm", ARMS)
def test_an_arm_has_a_budget_that_was_measured_to_be_enough(arm: str) -> None:
    selector, setting = ARMS[arm]
    (one,) = [one for one in FOUND[selector] if one["setting"] == setting]
    assert one["token_match"] >= (0.975 if arm in CANDIDATES else budgets.ENOUGH)


def test_the_page_has_the_table_of_budgets() -> None:
    assert budgets.written(FOUND) in budgets.PAGE.read_text()
    assert set(FOUND) == set(budgets.GRID)
    assert all([one["setting"] for one in FOUND[name]] == settings for name, settings in budgets.GRID.items())


def test_figures_are_medians_of_tokens_and_means_of_matches(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    assert token_s(run) is None and match_percent(run) is None
    events = [{"event": "kv_text", "token_s": seconds} for seconds in (0.1, 0.4, 0.2)]
    events += [{"event": "kv_quality", "token_match": share} for share in (0.9, 1.0)]
    run.events.write_text("".join(json.dumps(event) + "\n" for event in events))
    assert token_s(run) == 0.2
    assert match_percent(run) == pytest.approx(95)
