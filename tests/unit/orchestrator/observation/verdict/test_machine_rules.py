"""Cores that were short for a part of a run: the mean forgives it, the seconds do not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from testbed.orchestrator.machine.host_counters import parse_softnet
from testbed.orchestrator.observation.verdict.link_rules import Event, Finding
from testbed.orchestrator.observation.verdict.machine_rules import Backlogs, Cores

CALM = (0.85, 0.05)
"""Idle time and pressure of a second of `wan1g` that had this machine for itself."""
BUSY = (0.45, 0.27)
"""The worst second of such runs of `wan100m`."""
STARVED = (0.0, 0.99)
CROWDED = (0.01, 0.3)
"""Another program had the cores, and workers waited for a part of the time."""


def hosts(seconds: Sequence[tuple[float, float]], *, knows_pressure: bool = True) -> list[Event]:
    found: list[Event] = []
    pressure_s = 0.0
    for number, (idle, pressure) in enumerate(seconds):
        pressure_s += pressure
        figures = {"cpu_idle_ratio": idle, "cpu_pressure_s": pressure_s if knows_pressure else None}
        rest = {"steal_s": 0.0, "interval_s": 1.0, "sampler_late_s": 0.0}
        found.append({"event": "host", "t_s": number + 0.8, **figures, **rest})
    return found


def findings(seconds: Sequence[tuple[float, float]], *, knows_pressure: bool = True) -> list[Finding]:
    cores = Cores()
    for event in hosts(seconds, knows_pressure=knows_pressure):
        cores.add(event)
    return list(cores.findings())


@pytest.mark.parametrize("healthy", [CALM, BUSY])
def test_a_machine_that_does_its_work_is_no_finding(healthy: tuple[float, float]) -> None:
    assert findings([healthy] * 60) == []


def test_twenty_starved_seconds_of_sixty_are_invalid() -> None:
    (found,) = findings([CALM] * 20 + [STARVED] * 20 + [CALM] * 20)
    assert found[0]
    assert "20 of 60 s, first at 21 s" in found[1] and "above 85% in 20 s" in found[1]


def test_some_starved_seconds_are_suspect() -> None:
    (found,) = findings([STARVED] * 8 + [CALM] * 52)
    assert not found[0] and "8 of 60 s" in found[1]


def test_no_idle_time_with_little_waiting_is_cause_for_doubt_only() -> None:
    (found,) = findings([CROWDED] * 30 + [CALM] * 30)
    assert not found[0] and "30 of 60 s" in found[1] and "above 85% in 0 s" in found[1]


def test_without_pressure_figures_idle_time_alone_gives_doubt() -> None:
    (found,) = findings([STARVED] * 20 + [CALM] * 40, knows_pressure=False)
    assert not found[0] and "20 of 60 s" in found[1]


def test_a_hiccup_is_no_finding() -> None:
    assert findings([*[CALM] * 10, STARVED]) == [], "one second of eleven"
    assert findings([*[CALM] * 54, *[STARVED] * 6]) == [], "10% of the seconds"


def test_what_came_before_the_first_step_is_not_held_against_training() -> None:
    """Pressure counts up, so the first second in training must not bear what was before."""
    cores = Cores()
    for event in hosts([STARVED] * 10 + [CALM] * 20):
        cores.add({**event, "t_s": event["t_s"] - 10})
    assert not any("short" in reason for _, reason in cores.findings())


def test_a_backlogs_drops_are_a_loss_nobody_asked_for() -> None:
    backlogs = Backlogs()
    for dropped in (None, 0):
        backlogs.add({"event": "host", "t_s": 1.0, "softnet_dropped": dropped})
    assert list(backlogs.findings()) == []
    backlogs.add({"event": "host", "t_s": 2.0, "softnet_dropped": 7})
    ((is_grave, reason),) = backlogs.findings()
    assert is_grave and "7 packets" in reason


def test_softnet_is_summed_over_the_processors() -> None:
    text = "0000000a 00000001 0000000f 00000000\n000000ff 00000002 00000010 00000000 00000001\n"
    found = parse_softnet(text)
    assert (found.processed, found.dropped, found.squeezed) == (265, 3, 31)
