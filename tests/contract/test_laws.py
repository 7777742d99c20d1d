"""Every member of the catalogue against every law. A new one is held to them by its configuration."""

from __future__ import annotations

import importlib
import inspect

import pytest
import torch

from compressors.base.compressor import Compressor
from testbed.worker.laws import judge
from testbed.worker.laws.cases.registry import BOOK, Case, Law
from testbed.worker.laws.cases.steps import ranks_of, take_step
from testbed.worker.laws.cases.variants import LATER
from tests.contract.catalogue import CASES, CONF, LAYOUT, NAMES, gradients, make

LAWS = judge.laws()
MANY_TRIES = ("zeros", "unbiased", "contraction", "peers", "other-buckets", "rounds", "in-place")
"""Laws that try many sizes or seeds, half of the time of all; the others are the first tier's."""


def _cases() -> list[object]:
    """`-k NAME` chooses a member, `-k LAW` a law."""
    return [
        pytest.param(
            law,
            case,
            id="-".join([law.name, name, *filter(None, [case.variant, case.route.value if law.per_route else ""])]),
            marks=[
                *([pytest.mark.gpu] if "cuda" in law.needs else []),
                *([pytest.mark.tier("all")] if law.name in MANY_TRIES else []),
            ],
        )
        for law in LAWS
        for name in NAMES
        for case in judge.cases_of(law, CASES[name])
    ]


@pytest.mark.parametrize(("law", "case"), _cases())
def test_law(law: Law, case: Case) -> None:
    law.check(case)


def test_what_comes_later_is_looked_at_too() -> None:
    assert set(LATER) <= {case.target for case in CASES.values()}
    adam, adaptive = CASES["onebit_adam"], CASES["adaptive"]
    assert [case.called for case in judge.cases_of(BOOK["resume"], adam)] == [
        "onebit_adam",
        "onebit_adam after its warm-up",
    ]
    signs = judge.cases_of(BOOK["bytes"], adam)[-1]
    tally = take_step(signs, ranks_of(signs, 2), gradients(LAYOUT, 2))[2]
    assert tally.sent_bytes < LAYOUT.numel  # of two ranks; dense would be 16 times as many
    sums = judge.cases_of(BOOK["bytes"], CASES["zeroone_adam"])[-1]
    ranks = ranks_of(sums, 2)
    sent = [take_step(sums, ranks, gradients(LAYOUT, 2), step=step)[2].sent_bytes for step in range(4)]
    assert [bool(count) for count in sent] == [True, False, True, False]
    linked = judge.cases_of(BOOK["bytes"], adaptive)[-1]
    assert linked.sums_in is torch.bfloat16
    ranks = linked.make(), linked.make()
    sent = [take_step(linked, ranks, gradients(LAYOUT, 2), step=step)[2].sent_bytes for step in range(4)]
    assert len(set(sent)) == 4


def test_every_law_says_what_it_is() -> None:
    assert len(LAWS) >= 40
    for law in LAWS:
        assert law.says.endswith(".") and law.name == law.name.lower().replace(" ", "-")
        assert any(judge.cases_of(law, case) for case in CASES.values()) or "cuda" in law.needs, law.name


def test_every_compressor_file_has_a_configuration() -> None:
    used = [type(make(name)) for name in NAMES]
    for path in (CONF.parents[2] / "compressors").glob("*.py"):
        module = importlib.import_module(f"compressors.{path.stem}")
        own = [c for c in vars(module).values() if isinstance(c, type) and c.__module__ == module.__name__]
        members = [c for c in own if issubclass(c, Compressor) and not inspect.isabstract(c)]
        if path.stem not in ("feedback", "wrapper"):
            for member in members:
                assert any(issubclass(kind, member) for kind in used), f"{path.name}: {member.__name__} has none"
