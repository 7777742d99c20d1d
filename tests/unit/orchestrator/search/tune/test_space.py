"""What `longhaul tune` searches, as it is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from testbed.core.errors import InputError
from testbed.orchestrator.config.config import names, resolve
from testbed.orchestrator.search.tune.space import DEFAULTS, Space, read


class Answers:
    """In place of Optuna: answers what it is told to, and keeps what it was asked."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {key.replace("__", "."): value for key, value in answers.items()}
        self.asked: dict[str, tuple[Any, ...]] = {}

    def suggest_categorical(self, name: str, choices: Sequence[str]) -> Any:
        self.asked[name] = tuple(choices)
        return self.answers.get(name, choices[0])

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        self.asked[name] = (low, high, step, log)
        return int(self.answers.get(name, low))

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        self.asked[name] = (low, high, log)
        return float(self.answers.get(name, low))


def overrides(space: Space, trial: Answers) -> list[str]:
    return space.points(trial)[0].overrides


def test_a_parameter_is_asked_for_only_where_it_is_known() -> None:
    space = read(["compressor=none,topk,int8", "compressor.density=interval(0.001,0.1)", "compressor.block_size=64"])
    none, topk = Answers(), Answers(compressor="topk", compressor__density=0.0123456)
    assert overrides(space, none) == ["compressor=none", "seed=0"] and set(none.asked) == {"compressor"}
    assert overrides(space, topk) == ["compressor=topk", "compressor.density=0.0123", "seed=0"]
    assert "compressor.block_size=64" in overrides(space, Answers(compressor="int8"))
    assert topk.asked["compressor.density"] == (0.001, 0.1, False)


def test_ranges_keep_their_order_and_their_values() -> None:
    space = read(["compressor=powersgd", "compressor.rank=range(1,9,3)", "workload.learning_rate=range(0.1,0.4,0.1)"])
    trial = Answers(compressor__rank=4)
    trial.answers["workload.learning_rate (place)"] = 2
    assert {"compressor.rank=4", "workload.learning_rate=0.3"} < set(overrides(space, trial))
    assert trial.asked == {"compressor.rank": (1, 7, 3, False), "workload.learning_rate (place)": (0, 2, 1, False)}
    trial = Answers(strategy__sync_every=64)
    space = read(["strategy=diloco", "strategy.sync_every=tag(log,range(2,65))"])
    assert "strategy.sync_every=64" in overrides(space, trial)
    assert trial.asked["strategy.sync_every"] == (2, 64, 1, True)


def test_what_is_searched_unasked_is_of_plug_ins_that_are_there_and_fit() -> None:
    space = read(["topo=wan100m"])
    assert {one.key for one in space.searched} == {text.partition("=")[0] for text in DEFAULTS}
    seen: set[str] = set()
    for compressor in ("none", "fp16", "int8", "topk", "powersgd"):
        for strategy in ("ddp", "local_sgd", "diloco"):
            trial = Answers(compressor=compressor, strategy=strategy)
            assert resolve(overrides(space, trial)).faults == ()
            seen |= set(trial.asked)
            assert compressor in names("compressor") and strategy in names("strategy")
    assert seen == {one.key for one in space.searched}
    given = read(["compressor=topk"])
    assert {one.key for one in given.searched} == {"compressor.density", "strategy", "strategy.sync_every"}


def test_the_name_is_that_of_what_is_asked_in_whatever_order() -> None:
    words = ["compressor=none,topk", "topo=wan1g"]
    assert read(words).name == read(words[::-1]).name != read(words[:1]).name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("compressor.density=tag(log,interval(0,1))", "begins above 0"),
        ("compressor.density=tag(fast,interval(0.1,1))", "tag fast: unknown; known: log"),
        ("compressor=tag(log,choice(none,topk))", "tag log: is for interval"),
        ("strategy.sync_every=tag(log,range(0,9))", "whole numbers from 1"),
        ("compressor.speed=range(3)", "unknown parameter of topk"),
        ("compressor.density=interval(0.1,", "cannot be read"),
    ],
)
def test_what_cannot_be_searched_is_refused(text: str, said: str) -> None:
    words = [text] if text.startswith("compressor=") else [text, "compressor=topk", "strategy=diloco"]
    with pytest.raises(InputError, match=said):
        read(words)
