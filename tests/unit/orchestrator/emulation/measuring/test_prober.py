"""Links are measured again before a run is refused: a neighbour's burst passes, a link that is wrong stays wrong."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.core.errors import RunError
from testbed.orchestrator.emulation.measuring import prober
from testbed.orchestrator.emulation.measuring.prober import (
    BURST_CORES_SHARE,
    LONG_BURST_S,
    PAUSES_S,
    LinksNotFilled,
    Prober,
)

NAMES = ("a-b", "b-c")


class Found:
    """What a measurement says of links: those that are wrong."""

    def __init__(self, names: Collection[str], wrong: Collection[str], steal_ratio: float) -> None:
        self.wrong = {name: name in wrong for name in names}
        self.steal_ratio, self.tries = steal_ratio, 1

    def update(self, later: Found) -> None:
        self.wrong.update(later.wrong)
        self.steal_ratio, self.tries = later.steal_ratio, self.tries + 1

    def add_longer(self, later: Found) -> None:
        self.update(later)

    def is_below_rates(self, ports: list[Any]) -> bool:
        return any(self.wrong.values())

    def faults(self, ports: list[Any]) -> list[str]:
        return [f"link {port.link.name}: too slow" for port in ports if self.wrong[port.link.name]]


class Scripted(Prober):
    """Each further measurement finds the next of `wrong`, and of `steal_ratios` if there are any left."""

    def __init__(self, wrong: list[tuple[str, ...]], *steal_ratios: float, stage: str = "idle") -> None:
        ports = [SimpleNamespace(link=SimpleNamespace(name=name)) for name in NAMES]
        self.network: Any = SimpleNamespace(ports=ports)
        self._stage, self._steal_ratios = stage, list(steal_ratios)
        self._coming, self.asked, self.shares = wrong, list[Collection[str] | None](), list[float]()
        self.bursts_s: list[float | None] = []

    def measure(
        self,
        stage: str,
        *,
        access: bool,
        only: Collection[str] | None = None,
        share: float = BURST_CORES_SHARE,
        burst_s: float | None = None,
    ) -> Any:
        assert (stage, access) == (self._stage, stage == "idle")
        self.asked.append(only)
        self.shares.append(share)
        self.bursts_s.append(burst_s)
        steal_ratio = self._steal_ratios.pop(0) if self._steal_ratios else 0.0
        return Found(NAMES if only is None else only, self._coming.pop(0), steal_ratio)


@pytest.fixture
def paused_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    paused: list[float] = []
    monkeypatch.setattr(prober, "time", SimpleNamespace(sleep=paused.append))
    return paused


def test_links_that_are_right_are_measured_once(paused_s: list[float]) -> None:
    prober = Scripted([()])
    prober.measure_or_refuse()
    assert prober.asked == [None] and not paused_s


def test_only_what_was_wrong_is_measured_again_and_later_each_time(paused_s: list[float]) -> None:
    prober = Scripted([NAMES, ("b-c",), ("b-c",), ()])
    prober.measure_or_refuse()
    assert prober.asked == [None, set(NAMES), {"b-c"}, {"b-c"}]
    assert paused_s == list(PAUSES_S[:3]) == sorted(paused_s)
    assert prober.shares == [BURST_CORES_SHARE / 2**tried for tried in range(4)], "fewer links at once each time"


def test_the_last_try_counts(paused_s: list[float]) -> None:
    Scripted([NAMES] * len(PAUSES_S) + [()]).measure_or_refuse()
    assert paused_s == list(PAUSES_S)


def test_a_link_that_stays_wrong_is_refused_by_name(paused_s: list[float]) -> None:
    with pytest.raises(RunError) as refused:
        Scripted([NAMES] + [("b-c",)] * len(PAUSES_S)).measure_or_refuse()
    first, cure = str(refused.value).splitlines()
    assert first == f"link b-c: too slow; the last of {len(PAUSES_S) + 1} tries"
    assert "free its cores, lower the rate, or slow everything down (dilation=)" in cure
    assert "another machine" not in cure


def test_a_link_that_is_not_filled_is_refused_as_such_after_the_tries_that_were_asked_for(
    paused_s: list[float],
) -> None:
    with pytest.raises(LinksNotFilled, match="the last of 2 tries"):
        Scripted([NAMES] * 2).measure_or_refuse(PAUSES_S[:1])
    assert paused_s == list(PAUSES_S[:1])


def test_a_refusal_tells_what_another_machine_took(paused_s: list[float]) -> None:
    tries = len(PAUSES_S) + 1
    with pytest.raises(RunError, match=r"for these links \(another machine took 31% of a core meanwhile\): free"):
        Scripted([NAMES] * tries, *[0.31] * tries).measure_or_refuse()


def test_busy_links_are_measured_again_while_another_machine_takes_cores(paused_s: list[float]) -> None:
    prober = Scripted([NAMES, ("b-c",), ()], 0.4, 0.2, stage="busy")
    assert prober.measure_busy().tries == 3
    assert prober.asked == [None, set(NAMES), {"b-c"}] and paused_s == list(PAUSES_S[:2])
    assert set(prober.shares) == {BURST_CORES_SHARE}, "as many links at once as the first time"


def test_what_this_machine_alone_does_to_busy_links_is_measured_once_more_for_longer(paused_s: list[float]) -> None:
    prober = Scripted([NAMES, ("b-c",)], stage="busy")
    measured: Any = prober.measure_busy()
    assert measured.wrong == {"a-b": False, "b-c": True} and prober.asked == [None, set(NAMES)] and not paused_s
    assert prober.bursts_s == [None, LONG_BURST_S]


def test_a_longer_burst_beside_another_machine_does_not_count(paused_s: list[float]) -> None:
    prober = Scripted([NAMES, NAMES, ()], 0.0, 0.3, stage="busy")
    measured: Any = prober.measure_busy()
    assert measured.wrong == dict.fromkeys(NAMES, False)
    assert prober.bursts_s == [None, LONG_BURST_S, None] and len(paused_s) == 1


def test_busy_links_are_not_waited_for_forever(paused_s: list[float]) -> None:
    tries = len(PAUSES_S) + 1
    measured: Any = Scripted([NAMES] * tries, *[0.5] * tries, stage="busy").measure_busy()
    assert measured.wrong == dict.fromkeys(NAMES, True)
    assert paused_s == list(PAUSES_S)
