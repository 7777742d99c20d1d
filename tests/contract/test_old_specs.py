"""Specs that were recorded before files moved are still read, and have the hash that their runs are known by."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
from collections.abc import Iterator
from typing import Any

import pytest

from testbed.core.spec.redirects import ADDED
from testbed.core.spec.run_spec import PROGRAMS, RunSpec
from testbed.worker.plugins import compressor_catalogue
from tests.oracles import read, resolved

WORDS: dict[str, list[str]] = {
    **{f"specs/{name}.json": words for name, words in read("specs/words.json").items()},
    **{f"strategies/{name}/spec.json": words for name, words in read("strategies/words.json").items()},
}
"""What each recorded spec was made of, by its file."""


def _targets(value: Any) -> Iterator[str]:
    """Every class that is named in it, however deep."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("target", "_target_") and isinstance(inner, str):
                yield inner
            else:
                yield from _targets(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _targets(inner)


def _without_targets(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_targets(inner) for key, inner in value.items() if key not in ("target", "_target_")}
    return [_without_targets(inner) for inner in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("file", WORDS)
def test_an_old_spec_has_the_hash_it_was_recorded_with(file: str) -> None:
    recorded = read(file)
    assert RunSpec.from_json(recorded).hash == recorded["hash"]


@pytest.mark.parametrize("file", WORDS)
def test_an_old_spec_comes_back_from_json_as_it_was(file: str) -> None:
    recorded = read(file)
    spec = RunSpec.from_json(recorded)
    written = json.loads(json.dumps(spec.to_json()))
    assert RunSpec.from_json(written) == spec
    known = {key: value for key, value in recorded.items() if key in written}
    assert _without_targets(written) == _without_targets(known)
    assert set(recorded) - set(known) <= {"code_hash"}, "a field of the spec is gone"


@pytest.mark.parametrize("file", WORDS)
def test_the_words_of_an_old_spec_come_to_the_same_hash(file: str) -> None:
    """But for the hash of data, which a run adds when it begins, and a script's environment, which nobody recorded."""
    recorded = read(file)
    spec = dataclasses.replace(resolved(WORDS[file]), data_hash=recorded["data_hash"])
    spec.workload.params.pop("environment", None)
    assert spec.hash == recorded["hash"]


@pytest.mark.parametrize("file", WORDS)
def test_every_class_that_an_old_spec_names_is_there(file: str) -> None:
    targets = set(_targets(RunSpec.from_json(read(file)).to_json())) - set(PROGRAMS)
    assert len(targets) >= 3
    for target in targets:
        module, _, name = target.rpartition(".")
        assert isinstance(getattr(importlib.import_module(module), name), type), target


def test_a_parameter_that_came_later_changes_no_hash_until_it_is_given() -> None:
    recorded = read("runs/20261127T201340Z-two_regions-local_sgd-powersgd-49f8e94e/spec.json")
    assert "start_step" not in recorded["compressor"]["params"]
    spec = RunSpec.from_json(recorded)
    now = dataclasses.replace(spec, compressor=compressor_catalogue.part("powersgd"))
    assert now.compressor.params["start_step"] == 0 and now.hash == spec.hash == recorded["hash"]
    later = dataclasses.replace(spec, compressor=compressor_catalogue.part("powersgd", {"start_step": 2}))
    assert later.hash != spec.hash


@pytest.mark.parametrize("target", ADDED)
def test_a_parameter_that_came_later_has_its_default_as_before(target: str) -> None:
    module, _, name = target.rpartition(".")
    parameters = inspect.signature(getattr(importlib.import_module(module), name)).parameters
    assert {key: parameters[key].default for key in ADDED[target]} == ADDED[target]
