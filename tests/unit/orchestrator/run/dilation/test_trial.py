"""What steps at a dilation say: as the verdict has it, and which dilation follows."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from testbed.orchestrator.observation.verdict.lateness_rules import LATE_MARGIN, LATE_SUSPECT, slowdown_for
from testbed.orchestrator.run.dilation.trial import AIM_LATE, Trial
from testbed.orchestrator.run.dilation.trial_fold import TrialFold
from topologies import two_regions

TOPOLOGY = two_regions.build(workers=2)
LINK = TOPOLOGY.wan_links[0]
CALM = Trial(
    dilation=4.0,
    steps=4,
    step_s=0.5,
    saw_exchange=True,
    late_ratio=0.0,
    late_doubt=0.001,
    late_device_ratio=0.5,
    queued_ratio=0.01,
    computing_ratio=0.5,
    computing_dilation=3.0,
    busy_ratio=0.5,
    others_ratio=0.0,
    delay_line_ratio=0.3,
)


def step(rank: int, number: int, **changed: Any) -> dict[str, Any]:
    times = {"step_s": 1.0, "late_s": 0.0, "behind_s": 0.0, "queued_s": 0.0, "cpu_s": 1.0}
    event = {"event": "step", "rank": rank, "step": number, "payload_bytes": 0, **times}
    return {**event, "phase_s": {"exposed_communication": 0.5}, **changed}


def folded(*events: dict[str, Any], cores: int = 2, dilation: float = 2.0, run_steps: int | None = None) -> TrialFold:
    fold = TrialFold(TOPOLOGY, dilation, cores, 2, run_steps)
    fold.is_running = True
    for event in events:
        fold.add(event)
    return fold


def test_steps_count_once_all_ranks_have_told_them_and_the_first_does_not() -> None:
    fold = folded(step(0, 1), step(1, 1), step(0, 2), step(1, 2), step(0, 3))
    assert (fold.steps, fold.last_step) == (1, 3)
    assert folded(step(0, 1), step(1, 1)).trial() is None


def test_of_the_first_step_waits_are_known_once_all_ranks_have_told_it() -> None:
    late = step(0, 1, queued_s=0.2, step_s=2.0)
    assert folded(late).cold_queued_ratio is None
    assert folded(late, step(1, 1, queued_s=0.4), step(1, 2, queued_s=9.0)).cold_queued_ratio == pytest.approx(0.15)


def test_shares_are_the_verdicts() -> None:
    found = folded(step(0, 2, late_s=0.1, queued_s=0.2), step(1, 2)).trial()
    assert found is not None
    assert (found.late_ratio, found.queued_ratio) == (pytest.approx(0.1), pytest.approx(0.1))
    assert found.computing_ratio == pytest.approx(0.5)


def test_a_rank_that_sends_rarely_is_as_late_as_it_is_behind() -> None:
    """Rank 0 is 0.1 s behind when the trial begins, falls back in each step, and is late when it sends in step 4."""
    behind = {1: 0.1, 2: 0.2, 3: 0.3}
    silent = [step(0, number, behind_s=behind_s) for number, behind_s in behind.items()]
    others = [step(1, number, behind_s=0.05) for number in (1, 2, 3, 4)]
    found = folded(*silent, *others[:3]).trial()
    assert found is not None and found.late_ratio == pytest.approx(0.1)
    fold = folded(*silent, *others, step(0, 4, late_s=0.4, payload_bytes=9))
    found = fold.trial()
    assert found is not None and found.late_ratio == pytest.approx(0.1)
    assert fold.has_exchange and not folded(*silent, *others[:3]).has_exchange


@pytest.mark.parametrize(("cores", "needed"), [(1, 4.0), (2, 2.0), (8, 2.0)])
def test_cores_that_all_threads_share_are_what_computing_needs(cores: int, needed: float) -> None:
    found = folded(step(0, 2), step(1, 2), cores=cores).trial()
    assert found is not None
    assert found.computing_dilation == pytest.approx(needed)


def test_seconds_count_only_while_the_trial_runs() -> None:
    fold = folded(step(0, 2), step(1, 2))
    fold.add({"event": "host", "cpu_idle_ratio": 0.25, "interval_s": 1.0})
    late = {"event": "delay_line", "name": LINK.name, "from": LINK.a, "late_p99_s": 8e-3}
    fold.add(late)
    fold.is_running = False
    fold.add({"event": "host", "cpu_idle_ratio": 0.75, "interval_s": 1.0})
    fold.add({**late, "late_p99_s": 1.0})
    found = fold.trial()
    assert found is not None
    assert (found.busy_ratio, found.delay_line_ratio) == (0.75, pytest.approx(2.0))  # 4 ms emulated, of 2 that may be


@pytest.mark.parametrize(
    ("user_s", "kernel_s", "steal_s", "ratio"),
    [(0.15, 0.3, 0.0, 0.225), (0.0, 0.0, 0.2, 0.1), (0.05, 0.03, 0.0, 0.0), (None, None, 0.4, 0.0)],
)
def test_what_others_take_of_all_cores_counts_from_where_it_is_more_than_noise(
    user_s: float | None, kernel_s: float | None, steal_s: float, ratio: float
) -> None:
    fold = folded(step(0, 2), step(1, 2))
    host = {"event": "host", "cpu_idle_ratio": 0.5, "interval_s": 1.0, "cpu_count": 2, "steal_s": steal_s}
    fold.add({**host, "foreign_cpu_s": user_s, "foreign_kernel_s": kernel_s})
    found = fold.trial()
    assert found is not None and found.others_ratio == pytest.approx(ratio)


@pytest.mark.parametrize(
    ("cycle_steps", "run_steps", "sent_bytes", "saw"),
    [(1, 9, 0, True), (50, 62, 0, False), (50, 62, 9, True), (50, 49, 0, True), (50, None, 0, False)],
)
def test_a_trial_knows_whether_it_has_yet_to_see_an_exchange_of_the_run(
    cycle_steps: int, run_steps: int | None, sent_bytes: int, saw: bool
) -> None:
    fold = TrialFold(TOPOLOGY, 2.0, 2, 2, run_steps, cycle_steps)
    for rank in (0, 1):
        fold.add(step(rank, 2, payload_bytes=sent_bytes))
    found = fold.trial()
    assert found is not None and found.saw_exchange == saw


def test_who_has_seen_no_exchange_does_not_ask_for_a_faster_run() -> None:
    assert dataclasses.replace(CALM, saw_exchange=False).faster() == CALM.dilation
    late = dataclasses.replace(CALM, saw_exchange=False, late_ratio=0.1)
    assert late.slower() == dataclasses.replace(CALM, late_ratio=0.1).slower() > CALM.dilation


@pytest.mark.parametrize(
    ("run_steps", "late", "holds"), [(None, 2, True), (None, 3, False), (10, 0, True), (10, 1, False), (2000, 1, True)]
)
def test_packets_may_leave_late_in_so_many_seconds_that_a_run_of_this_length_is_likely_to_be_valid(
    run_steps: int | None, late: int, holds: bool
) -> None:
    fold = folded(step(0, 2), step(1, 2), run_steps=run_steps)
    for second in range(40):
        late_s = 8e-3 if second < late else 1e-3
        fold.add({"event": "delay_line", "name": LINK.name, "from": LINK.a, "late_p99_s": late_s})
    found = fold.trial()
    assert found is not None and found.delay_line_ratio is not None
    assert (found.delay_line_ratio <= 1) == holds


def test_a_calm_trial_asks_for_a_faster_run_only() -> None:
    assert CALM.holds
    assert CALM.slower() == CALM.dilation
    assert CALM.faster() == pytest.approx(1.15 * 3.0 * 0.5 / 0.508)


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"late_ratio": 0.011}, "phases late"),
        ({"queued_ratio": 0.08}, "messages waited"),
        ({"busy_ratio": 0.9}, "cores idle"),
        ({"delay_line_ratio": 1.5}, "packets left late"),
    ],
)
def test_more_than_half_of_what_is_allowed_asks_for_a_slower_one(changed: dict[str, float], word: str) -> None:
    found = dataclasses.replace(CALM, **changed)
    assert not found.holds
    assert found.slower() > CALM.dilation
    assert word in found.why()


def test_one_that_was_a_little_late_is_not_made_faster() -> None:
    assert dataclasses.replace(CALM, late_ratio=0.008).faster() == CALM.dilation


@pytest.mark.parametrize(("late", "doubt", "sure"), [(0.002, 0.004, True), (0.009, 0.004, False), (0.03, 0.004, True)])
def test_near_what_is_allowed_more_steps_are_wanted(late: float, doubt: float, sure: bool) -> None:
    assert dataclasses.replace(CALM, late_ratio=late, late_doubt=doubt).is_sure is sure


def test_one_step_is_never_sure() -> None:
    found = folded(step(0, 2, late_s=0.1), step(1, 2)).trial()
    assert found is not None and not found.is_sure


@pytest.mark.parametrize(("run_steps", "late"), [(4, 0.03), (8, 0.02), (None, 0.01)])
def test_later_steps_than_the_first_stand_for_those_to_come(run_steps: int | None, late: float) -> None:
    lates = {2: 0.05, 3: 0.05, 4: 0.01, 5: 0.01}
    events = [step(rank, number, late_s=late_s) for number, late_s in lates.items() for rank in (0, 1)]
    found = folded(*events, run_steps=run_steps).trial()
    assert found is not None
    assert (found.late_ratio, found.late_doubt) == (pytest.approx(late), 0.0)


def test_a_slower_run_has_more_time_and_longer_steps() -> None:
    """Computing of 0.5 s and 0.1 s of lateness at 4 need 2.4 s of the wall a step."""
    found = dataclasses.replace(CALM, late_ratio=0.1)
    assert (found.slower() * (0.5 + AIM_LATE)) == pytest.approx(4 * (0.5 + 0.1))


@pytest.mark.parametrize(("told", "ratio"), [({}, 0.4), ({"late_device_s": 0.06}, 0.06), ({"late_device_s": 9.0}, 0.4)])
def test_what_the_device_has_for_late_stretches_is_told_or_all_that_it_computes(told: Any, ratio: float) -> None:
    """Of the latest rank: the other one has more."""
    events = [step(0, 2, late_s=0.1, **told), step(1, 2, late_s=0.02, late_device_s=0.3)]
    found = folded(*events).trial()
    assert found is not None and found.late_device_ratio == pytest.approx(ratio)
    found = folded(*(event | {"late_s": 0.0, "behind_s": 0.1} for event in events)).trial()
    assert found is not None and found.late_device_ratio == pytest.approx(0.5), "a rank that has not sent yet"


@pytest.mark.parametrize("device", [0.0, 0.02, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("late", [0.012, 0.03, 0.06, 0.15])
def test_a_slower_run_is_hardly_late_or_a_quarter_slower_than_it_must_be(late: float, device: float) -> None:
    """Late by `needed / times - device` of a step that stays as long: times is what is asked for."""
    times = slowdown_for(late, device)
    remains = (late + device) / times - device
    least = max(1.0, (late + device) / (device + LATE_SUSPECT))
    assert times <= max(1.0, LATE_MARGIN * least) * (1 + 1e-9) and remains <= 0.8 * LATE_SUSPECT + 1e-9
    assert times == pytest.approx(LATE_MARGIN * least) or remains == pytest.approx(AIM_LATE) or times == 1.0


def test_what_cannot_be_mended_by_a_little_is_let_be() -> None:
    """Late by 1.2 %, of stretches that the device has no time for: a run 1.5 times as slow would have 0.8 %."""
    assert dataclasses.replace(CALM, late_ratio=0.012, late_device_ratio=0.0).holds
    assert not dataclasses.replace(CALM, late_ratio=0.018, late_device_ratio=0.0).holds


def test_its_event_says_what_was_seen_and_what_followed() -> None:
    event = CALM.to_event(3.5, "would do at 3.5")
    assert (event["event"], event["dilation"], event["next_dilation"]) == ("pilot", 4.0, 3.5)
    assert event["cpu_idle_ratio"] == 0.5
