"""Specs that name classes as they were called before: read, run, and hashed as then."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
from typing import Any

import pytest

from testbed.core.device.profile import LayerTimes, Profile
from testbed.core.spec import redirects
from testbed.core.spec.redirects import MODULES, first_published, in_params, in_part_text, present
from testbed.core.spec.run_spec import Part, RunSpec
from topologies import two_regions

RECORDED: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "testbed.core.bound_baselines.Fixed": ("strategy", "bound", {"alpha": 0.01}, "64c0269f70d8d7d2"),
    "testbed.core.bound_schedules.AdaptiveBound": ("strategy", "bound", {}, "7214e94cb639340b"),
    "testbed.core.break_even.Gate": ("strategy", "gate", {"margin": 1.1}, "b7992896c297707a"),
    "testbed.core.federated.availability.Alternating": (
        *("strategy", "availability", {"present_s": 60, "absent_s": 30}),
        "44477a79bb6737f2",
    ),
    "testbed.core.federated.oort.Oort": ("strategy", "selection", {}, "a0322dc1a32198a7"),
    "testbed.core.federated.partitions.Dirichlet": ("workload", "partition", {"alpha": 0.3}, "e7a52a53b8fd98d9"),
    "testbed.worker.federated.attacks.SignFlip": ("strategy", "attack", {}, "a88255308ee9ac5f"),
    "testbed.worker.federated.robust.Krum": ("strategy", "defence", {"most_liars": 1}, "2ba57a893c490341"),
    "testbed.worker.federated.secure.Secure": (
        *("strategy", "secure", {"privacy": 1, "dropouts": 1}),
        "28d5f38320caf695",
    ),
}
"""Of each module that moved a class, the parameter it is given as, and the hash that version 1.0.0 recorded."""
OLD, NEW = "testbed.core.federated.partitions.Dirichlet", "testbed.worker.data.partitions.Dirichlet"
OWN = "mine.testbed.core.federated.partitions.Dirichlet"


def spec(**changes: Part) -> RunSpec:
    parts = {
        "workload": Part("digits", "testbed.worker.workloads.digits.Digits"),
        "strategy": Part("federated", "testbed.worker.strategies.federated.Federated"),
        "compressor": Part("none", "compressors.none.Uncompressed"),
        "device": Part("native", "testbed.core.device.Native"),
    }
    return RunSpec(topology=two_regions.build(workers=4), steps=10, **(parts | changes))


def spec_with(target: str) -> RunSpec:
    """With the class given by this name, which may be any it has had."""
    part, key, params, _ = RECORDED[first_published(target)]
    given: Part = getattr(spec(), part)
    return spec(**{part: Part(given.name, given.target, {key: {"_target_": target, **params}})})


def test_each_module_that_moved_has_a_recorded_hash() -> None:
    assert sorted(MODULES) == sorted(target.rpartition(".")[0] for target in RECORDED)


@pytest.mark.parametrize("target", RECORDED)
def test_a_spec_has_the_hash_it_was_recorded_with_by_either_name(target: str) -> None:
    assert present(target) != target
    old, new = spec_with(target), spec_with(present(target))
    assert old.hash == new.hash == RECORDED[target][-1]
    assert old == new


@pytest.mark.parametrize("target", RECORDED)
def test_a_recorded_spec_is_read_and_written_by_present_names(target: str) -> None:
    recorded = json.dumps(spec_with(target).to_json()).replace(present(target), target)
    assert target in recorded
    found = RunSpec.from_json(json.loads(recorded))
    written = found.to_json()
    assert written["hash"] == json.loads(recorded)["hash"] == RECORDED[target][-1]
    assert present(target) in json.dumps(written) and target not in json.dumps(written)


@pytest.mark.parametrize(("first", "now"), MODULES.items())
def test_what_moved_is_at_its_present_name_alone(first: str, now: str) -> None:
    """A module under an old name would never be imported."""
    assert importlib.util.find_spec(now) is not None
    with contextlib.suppress(ModuleNotFoundError):  # the folder that it lay in is gone too
        assert importlib.util.find_spec(first) is None


def test_names_lead_there_and_back_in_one_step() -> None:
    assert len(set(MODULES.values())) == len(MODULES)
    for first, now in MODULES.items():
        assert present(f"{first}.X") == present(f"{now}.X") == f"{now}.X"
        assert first_published(f"{first}.X") == first_published(f"{now}.X") == f"{first}.X"


@pytest.mark.parametrize(
    "target",
    [
        OWN,
        "testbed.core.federated.partitions_of_mine.Dirichlet",
        "testbed.core.federated.Dirichlet",
        "testbed.core.device.Native",
        "compressors.topk.TopK",
        "partitions.Dirichlet",
        "Dirichlet",
        "",
    ],
)
def test_other_targets_are_left_alone(target: str) -> None:
    assert present(target) == first_published(target) == target


def test_the_longest_prefix_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(redirects.MODULES, "a.b", "other")
    monkeypatch.setitem(redirects.MODULES, "a.b.c", "deeper.one")
    assert [present(name) for name in ("a.b.X", "a.b.c.X", "a.b.c.d.X", "a.bc.X")] == [
        *("other.X", "deeper.one.X", "deeper.one.d.X", "a.bc.X")
    ]


def test_targets_are_found_however_deep_they_lie_and_nothing_else_changes() -> None:
    params = {"a": [{"b": {"_target_": OLD, "c": [{"_target_": OLD}, OWN, 1, None]}}], "_target_": OWN, "text": OLD}
    found = in_params(params, present)
    assert found == {
        "a": [{"b": {"_target_": NEW, "c": [{"_target_": NEW}, OWN, 1, None]}}],
        "_target_": OWN,
        "text": OLD,
    }
    assert in_params(found, first_published) == params
    assert params["a"][0]["b"]["_target_"] == OLD, "what a user gave is not written to"
    assert in_params(({"_target_": OLD},), present) == ({"_target_": NEW},)
    assert in_params({"_target_": 3}, present) == {"_target_": 3}


def test_the_class_of_a_part_is_redirected_as_those_among_its_parameters() -> None:
    part = Part("x", OLD, {"inner": {"_target_": OLD}})
    assert (part.target, part.params) == (NEW, {"inner": {"_target_": NEW}})
    assert dataclasses.replace(part, params={"_target_": OLD}).params == {"_target_": NEW}
    assert spec(workload=part).hash == spec(workload=Part("x", NEW, {"inner": {"_target_": NEW}})).hash


def test_a_users_own_class_counts_by_its_own_name() -> None:
    own = spec(workload=Part("x", OWN))
    assert own.workload.target == OWN
    assert own.hash != spec(workload=Part("x", OLD)).hash


def profile(text: str) -> Profile:
    """Measured with `text` as its workload and its strategy."""
    return Profile(
        workload=text,
        compressor="c.C {}",
        batch_size=8,
        layers=(LayerTimes(name="a", parameters=1, forward_s=1.0, backward_s=1.0),),
        forward_s=1.0,
        backward_s=1.0,
        optimizer_s=1.0,
        provenance={"strategy": text},
    )


def test_a_profile_from_before_is_of_the_same_training() -> None:
    old, new = (f'w.W {{"partition": {{"_target_": "{target}", "alpha": 0.3}}}}' for target in (OLD, NEW))
    found = Profile.from_json(json.loads(json.dumps(profile(old).to_json())))
    assert not list(found.mismatches(profile(new)))
    assert found.provenance["strategy"] == new


@pytest.mark.parametrize("text", ["", "bert", "a model of mine {", 'w.W {"b": 1,  "a": 2}', "w.W null"])
def test_what_a_profile_says_in_other_words_is_left_alone(text: str) -> None:
    assert in_part_text(text) == text
