"""The laws of real groups of 2, 3 and 4 ranks over gloo, for every member of the catalogue; and that they can break."""

from __future__ import annotations

import copy
import fcntl
import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from compressors.base.compressor import Route
from compressors.base.feedback import EF21, MomentumFeedback
from testbed.core.spec.run_spec import Part
from testbed.worker.laws import distributed, process_group
from testbed.worker.laws.cases import catalogue
from testbed.worker.laws.cases.registry import Case, LawBroken
from testbed.worker.laws.cases.variants import variants
from testbed.worker.laws.distributed import GROUP_LAWS, Group
from testbed.worker.laws.process_group import Found
from testbed.worker.plugins import compressor_catalogue

NAMES = compressor_catalogue.names()
SAMPLE = ("fp16", "onebit_adam", "powersgd", "topk")
"""One of each way to exchange."""
Outcomes = dict[str, dict[str, tuple[str, str]]]


@pytest.fixture(scope="session")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """By member and law, for the members whose tests were chosen; once, whatever number of processes runs tests."""
    chosen = {item.callspec.params.get("member") for item in request.session.items if hasattr(item, "callspec")}
    names = [name for name in NAMES if name in chosen]
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with (shared / "group-laws.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = shared / "group-laws.json"
        if not kept.exists():
            kept.write_text(json.dumps(_judge(names)))
        found: Outcomes = json.loads(kept.read_text())
    return found


def _judge(names: list[str]) -> Outcomes:
    judged = distributed.judge_groups([compressor_catalogue.part(name) for name in names])
    return {name: {row.law: (row.outcome, row.detail) for row in rows} for name, rows in judged.items()}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "member", [pytest.param(name, marks=pytest.mark.tier("test") if name in SAMPLE else ()) for name in NAMES]
)
def test_real_ranks_obey_the_laws_of_groups(member: str, outcomes: Outcomes) -> None:
    assert outcomes[member].keys() == GROUP_LAWS.keys()
    broken = {law: detail for law, (outcome, detail) in outcomes[member].items() if outcome == "broken"}
    assert not broken
    averages = catalogue.case(compressor_catalogue.part(member)).traits.averages
    assert outcomes[member]["group-nothing-lost"][0] == ("holds" if averages else "does not apply")


def test_groups_reduce_as_a_run_does_and_what_comes_later(found: list[dict[str, Found]]) -> None:
    case = catalogue.case(compressor_catalogue.part("dgc"))
    assert isinstance(process_group.member(case, "as in a run"), MomentumFeedback)
    assert process_group.feedbacks_of(case, 2) == ["as in a run", "plain"]
    assert process_group.feedbacks_of(case, 3) == ["as in a run", "plain", "ef21"]
    assert isinstance(process_group.member(case, "ef21"), EF21)
    adam = variants(catalogue.case(compressor_catalogue.part("onebit_adam")))[-1]
    assert (
        process_group.key_of(adam, "as in a run", 2)
        == "onebit_adam after its warm-up, own, feedback as in a run, 2 ranks"
    )
    sent = _group(found, adam, 2).sent()
    assert set(sent) == {2 * (4 * 3 + 340)}  # scales of 3 blocks, 2713 signs


@pytest.fixture(scope="module")
def found() -> list[dict[str, Found]]:
    """By rank and key, of groups of two and three."""
    return process_group.run_group(
        [compressor_catalogue.part(name) for name in ("topk", "powersgd", "onebit_adam")], [2, 3]
    )


def _group(found: list[dict[str, Found]], case: Case, world_size: int) -> Group:
    key = process_group.key_of(case, "as in a run", world_size)
    return Group(case, "as in a run", [rank[key] for rank in found[:world_size]])


@pytest.fixture(scope="module")
def sound(found: list[dict[str, Found]]) -> Group:
    """Two ranks with top-k."""
    return _group(found, replace(catalogue.case(compressor_catalogue.part("topk")), chosen=Route.GATHER), 2)


def _other_mean(found: Group) -> None:
    found.ranks[1]["means"][2][7] += 1e-6


def _same_other_mean(found: Group) -> None:
    for rank in found.ranks:
        rank["means"][1] *= 1.001


def _one_byte(found: Group) -> None:
    found.ranks[0]["sent"][0] += 1


def _no_residual(found: Group) -> None:
    found.ranks[0]["residual"].zero_()


def _another_end(found: Group) -> None:
    found.ranks[1]["resumed_means"][-1][0] += 1


FLAWS: dict[str, Callable[[Group], None]] = {
    "group-same-mean": _other_mean,
    "group-lockstep": _same_other_mean,
    "group-bytes": _one_byte,
    "group-nothing-lost": _no_residual,
    "group-resume": _another_end,
}


@pytest.mark.parametrize("law", GROUP_LAWS)
def test_a_flaw_in_what_ranks_did_is_found(law: str, sound: Group) -> None:
    assert GROUP_LAWS[law].looks_at(sound)
    GROUP_LAWS[law].check(sound)
    flawed = copy.deepcopy(sound)
    FLAWS[law](flawed)
    with pytest.raises(LawBroken):
        GROUP_LAWS[law].check(flawed)


def test_lockstep_is_asked_of_own_rounds_of_three_ranks_too(found: list[dict[str, Found]]) -> None:
    three = _group(found, catalogue.case(compressor_catalogue.part("powersgd")), 3)
    assert not three.lockstep.exact
    GROUP_LAWS["group-lockstep"].check(three)
    flawed = copy.deepcopy(three)
    _same_other_mean(flawed)
    with pytest.raises(LawBroken, match="of the order of sums"):
        GROUP_LAWS["group-lockstep"].check(flawed)


def test_a_compressor_that_ends_a_rank_is_named_and_the_others_are_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ending.py").write_text(
        "from compressors.none import Uncompressed\n"
        "class Ending(Uncompressed):\n"
        "    def encode(self, tensor, context):\n"
        "        raise RuntimeError('the end') if context.rank and context.step == 1 else ValueError('the beginning')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    judged = distributed.judge_groups([Part("ending", "ending.Ending", {}), compressor_catalogue.part("fp16")], [2])
    assert {row.outcome for row in judged["ending"]} == {"broken"}
    key = "ending, reduce_sum, feedback plain, 2 ranks"  # in a run its tensors are summed as they are
    assert f"{key}: ValueError: the beginning" in judged["ending"][0].detail
    assert {row.outcome for row in judged["fp16"]} == {"holds"}


def test_a_group_in_which_nothing_happens_is_ended_and_laid_to_whose_turn_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_group, "STALL_S", 0.5)
    (tmp_path / "0.log").write_text(
        "fp16, reduce_sum, feedback plain, 2 ranks\ntopk, gather, feedback plain, 2 ranks\n"
    )
    with subprocess.Popen(["sleep", "60"], text=True) as rank, pytest.raises(process_group._Ended) as raised:
        process_group._finish(rank, tmp_path, ["fp16", "topk"])
    assert raised.value.name == "topk"
    assert "nothing new for 0.5 s; topk, gather" in str(raised.value)


def test_lockstep_takes_the_steps_that_ranks_take(sound: Group) -> None:
    assert len(sound.lockstep.means) == len(sound.ranks[0]["means"]) == process_group.STEPS
    assert torch.isfinite(sound.lockstep.means[-1]).all()
