"""A run gets the shaper it asked for, or a refusal that says what to do."""

from __future__ import annotations

import pytest

from testbed.core.errors import MachineError
from testbed.orchestrator.emulation.shapers import SHAPERS
from testbed.orchestrator.emulation.shapers.shaper_selection import choose
from testbed.orchestrator.machine import checks

BOTH = frozenset({"netem", "nfqueue"})


@pytest.fixture(autouse=True)
def _binding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "has_module", lambda name: True)


@pytest.mark.parametrize(
    ("asked", "features", "chosen"),
    [
        ("auto", BOTH, ("netem", "this kernel has it")),
        ("auto", BOTH - {"netem"}, ("nfqueue", "this kernel has no sch_netem")),
        ("nfqueue", BOTH, ("nfqueue", "asked")),
        ("netem", BOTH, ("netem", "asked")),
    ],
)
def test_what_is_asked_is_what_is_got(asked: str, features: frozenset[str], chosen: tuple[str, str]) -> None:
    assert choose(asked, features) == chosen
    assert chosen[0] in SHAPERS


def test_netem_on_a_kernel_without_it_is_refused_with_both_ways_out() -> None:
    with pytest.raises(MachineError, match=r"shaper=netem: .*modprobe sch_netem.*shaper=nfqueue"):
        choose("netem", frozenset({"nfqueue"}))


def test_nfqueue_without_its_python_binding_is_not_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "has_module", lambda name: False)
    assert choose("auto", BOTH)[0] == "netem"
    with pytest.raises(MachineError, match=r"NetfilterQueue.*shaper=netem"):
        choose("nfqueue", BOTH)


def test_a_kernel_with_neither_is_refused() -> None:
    with pytest.raises(MachineError, match=r"sch_netem.*NetfilterQueue"):
        choose("auto", frozenset())


def test_who_cannot_try_is_told_to_become_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "kernel_features", lambda: None)
    with pytest.raises(MachineError, match="sudo"):
        choose("auto")
