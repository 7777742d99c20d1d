"""`--fix`: the first offer is taken, and offers that need a run's arguments are added."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from testbed.core.device.device import Paced
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.cli.main import main
from testbed.orchestrator.config.config import compose, resolve
from testbed.orchestrator.config.grammar.offers import Offer, Refused, applied, joined
from testbed.orchestrator.run import run_command
from testbed.orchestrator.run.dilation.first_guess import choose, most_dilation
from testbed.orchestrator.run.offers.taking import completed, taking_first
from tests.unit.orchestrator.run.dilation.test_first_guess import profile

PACED = Offer({"device": "paced", "device.step_s": "0.03"}, "slower")
WORDS = ["topo=two_regions", "topo.rtt=240 ms", "workers=12", "strategy=local_sgd", "device=native"]


def test_what_an_offer_replaces_goes_with_the_parameters_of_the_plug_in_that_goes() -> None:
    words = ["topo=wan1g", "+device=profile", "device.file=a.json", "devices=2", "device.step_s=1"]
    assert applied(words, PACED) == ["topo=wan1g", "devices=2", "device=paced", "device.step_s=0.03"]
    assert applied(words, Offer({"workers": "3"}, ""))[-2:] == ["device.step_s=1", "workers=3"]


def test_of_several_runs_offers_every_key_gets_the_value_that_helps_all() -> None:
    found = joined([PACED, Offer({"device": "paced", "device.step_s": "0.2", "workers": "9"}, "slower"),
                    Offer({"workers": "10", "strategy.sync_every": "8"}, "fewer"),
                    Offer({"strategy.sync_every": "16"}, "")])  # fmt: skip
    assert found.changes == {"device": "paced", "device.step_s": "0.2", "workers": "9", "strategy.sync_every": "16"}


def refusing(texts: Sequence[str], made: list[list[str]]) -> RunSpec:
    """As a run is made: it is refused by what is measured."""
    spec = compose(texts)
    cpu = dataclasses.replace(profile(0.01, 0.01, size_bytes=4_000), cycle_steps=spec.strategy.params["sync_every"])
    choose(spec, cpu, Paced(**spec.device.params).profile(cpu) if spec.device.name == "paced" else cpu, cores=2)
    made.append(list(texts))
    return spec


def test_without_fix_it_is_refused_with_all_that_would_do() -> None:
    with pytest.raises(Refused) as caught:
        taking_first(WORDS, lambda texts: refusing(texts, []), resolve, print, fix=False)
    first, second = caught.value.offers[:2]
    assert list(first.changes) == ["device", "device.step_s"] and list(second.changes) == ["workers"]
    assert [list(offer.changes) for offer in caught.value.offers[2:]] == [["strategy.sync_every"], ["tcp"]]
    assert "the most that fit, at a dilation of " in caught.value.faults[2]
    for offer in caught.value.offers:
        assert refusing(applied(WORDS, offer), []).topo == "two_regions", "what is pasted is made"
    several_more = Offer({"workers": str(int(second.changes["workers"]) + 2)}, "")  # one more is tried perhaps
    with pytest.raises(Refused):
        refusing(applied(WORDS, several_more), [])


def test_fix_takes_the_first_and_says_so() -> None:
    said: list[str] = []
    made: list[list[str]] = []
    spec = taking_first(WORDS, lambda texts: refusing(texts, made), resolve, said.append, fix=True)
    assert spec.device.name == "paced" and spec.workers == 12 and len(made) == 1
    assert "device=native" not in made[0]
    (line,) = said
    step_s = spec.device.params["step_s"]
    assert f"; --fix takes device=paced device.step_s={step_s:g}: " in line and "dilation=auto" in line
    assert most_dilation(spec) < 3


def test_offers_that_the_arguments_do_not_take_are_left_out() -> None:
    """A topology whose regions cannot be fewer, and an offer with a key that is none."""
    words = ["topo=ring", "workers=4"]
    error = Refused("no", [Offer({"device.no_such": "1", "nonsense": "2"}, "x")])
    assert completed(error, words, resolve).offers == ()
    assert completed(error, words, resolve).faults == ("no",)


def test_a_run_that_goes_on_being_refused_ends_with_its_refusal() -> None:
    tries: list[Sequence[str]] = []

    def never(texts: Sequence[str]) -> None:
        tries.append(texts)
        raise Refused("no", [Offer({"workers": "3"}, "x")])

    with pytest.raises(Refused, match="no"):
        taking_first(["topo=lan"], never, resolve, lambda _: None, fix=True)
    assert len(tries) == 6


def test_the_command_takes_the_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[RunSpec] = []

    def supervise(spec: RunSpec, **_: object) -> SimpleNamespace:
        if spec.device.name == "native":
            raise Refused("dilation=auto: no", [PACED])
        made.append(spec)
        summary = {"run_id": "x", "verdict": "valid", "reasons": []}
        return SimpleNamespace(run=SimpleNamespace(path=tmp_path / "x"), summary=summary, exit_status=0)

    monkeypatch.setattr("testbed.orchestrator.run.supervisor.supervise", supervise)
    monkeypatch.setattr(run_command, "checked_spec", lambda resolved, *_, **__: resolved.spec)
    words = ["run", "--quiet", "--runs", str(tmp_path), "topo=lan"]
    assert main(words) == 2 and not made
    assert capsys.readouterr().err.splitlines() == [
        "longhaul: dilation=auto: no; what would do (--fix takes the first):",
        "longhaul:   device=paced device.step_s=0.03: slower",
    ]
    assert main([*words, "--fix"]) == 0
    assert [(spec.device.name, spec.device.params["step_s"]) for spec in made] == [("paced", 0.03)]
    assert "longhaul: dilation=auto: no; --fix takes device=paced device.step_s=0.03: slower" in capsys.readouterr().err
