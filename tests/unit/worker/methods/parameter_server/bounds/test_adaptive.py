"""What schedules of bounds answer to losses that are told by hand, to damage, and to any sequence of rounds."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.worker.methods.parameter_server.bounds.adaptive import AdaptiveBound
from testbed.worker.methods.parameter_server.bounds.baselines import AdaQuantFL, DAdaQuant, Fixed, LinearDecay
from testbed.worker.methods.parameter_server.bounds.error_bounds import RANGE, UPDATE
from testbed.worker.methods.parameter_server.bounds.rounds import BoundSchedule, ClientFacts, RoundFacts

SCHEDULES: dict[str, Callable[..., BoundSchedule]] = {
    kind.__name__.lower().removesuffix("bound").removesuffix("decay"): kind
    for kind in (AdaptiveBound, Fixed, LinearDecay, AdaQuantFL, DAdaQuant)
}
SMALL: dict[str, dict[str, Any]] = {
    "adaptive": {"patience": 2, "fairness": 0.5},
    "fixed": {},
    "linear": {"rounds": 5},
    "adaquantfl": {"levels": 4, "levels_max": 64},
    "dadaquant": {"patience": 2, "memory": 0.5},
}
LOSSES = st.one_of(st.floats(min_value=0, max_value=10), st.sampled_from([math.nan, math.inf, 0.0]))
ROUNDS = st.lists(st.tuples(LOSSES, st.booleans(), st.integers(0, 4)), max_size=25)


def _advance(schedule: BoundSchedule, losses: Iterable[float], start: int = 0) -> list[dict[str, Any]]:
    """What is noted of each round."""
    notes = []
    for at, loss in enumerate(losses, start):
        schedule.advance(RoundFacts(round=at, train_loss=loss))
        note = schedule.note()
        assert note is not None and note["round"] == at and note["alpha"] == schedule.alpha
        notes.append(note)
    return notes


def _told(notes: Sequence[dict[str, Any]], key: str) -> list[Any]:
    return [note[key] for note in notes]


def _play(schedule: BoundSchedule, rounds: Iterable[tuple[float, bool, int]], start: int = 0) -> list[Any]:
    """Rounds of (loss, whether all is finite, refusals), and all that the schedule says of each."""
    seen = []
    for at, (loss, finite, refusals) in enumerate(rounds, start):
        said: list[Any] = [schedule.alpha, schedule.lossless, schedule.lossless_uplink, schedule.restore]
        for _ in range(refusals if schedule.probes else 0):
            if not schedule.lossless:
                schedule.violated()
                said.append(schedule.alpha)
        schedule.advance(RoundFacts(round=at, train_loss=loss, finite=finite))
        alphas = schedule.client_alphas(_clients((1.0, loss), (3.0, 2.0)))
        seen.append([*said, schedule.note(), schedule.good, schedule.restores, alphas])
    return seen


def _clients(*known: tuple[float, float | None]) -> list[ClientFacts]:
    """Of (weight, loss)."""
    return [ClientFacts(weight=weight, train_loss=loss) for weight, loss in known]


def _lively(**given: Any) -> AdaptiveBound:
    """Which goes up and down within a few rounds."""
    return AdaptiveBound(**{"alpha": 0.3, "alpha_max": 1.0, "increase": 1.25, "window": 3} | given)


def test_a_loss_that_falls_lets_alpha_rise_from_the_third_round_on_to_its_most() -> None:
    notes = _advance(_lively(), [0.9**at for at in range(9)])
    assert _told(notes, "alpha")[:5] == pytest.approx([0.3, 0.3, 0.375, 0.46875, 0.5859375])
    assert _told(notes, "alpha")[7:] == [1.0, 1.0]
    assert _told(notes, "why") == ["steady"] * 2 + ["exploration"] * 6 + ["steady"]
    # 0.7 of the last, 0.3 of the new loss
    assert _told(notes, "running_loss")[:3] == pytest.approx([1.0, 0.97, 0.922])


def test_a_loss_that_stands_still_halves_alpha_once_in_three_rounds() -> None:
    notes = _advance(_lively(), [1.0] * 10)
    halved = [0.1875, 0.1875, 0.1875, 0.09375, 0.09375, 0.09375, 0.046875]
    assert _told(notes, "alpha") == pytest.approx([0.3, 0.3, 0.375, *halved])
    assert [at for at, why in enumerate(_told(notes, "why")) if why == "plateau"] == [3, 6, 9]
    assert _told(_advance(_lively(), [1.0] * 60), "alpha")[-1] == 0.01


@pytest.mark.parametrize(("fall", "why"), [(0.981, "plateau"), (0.979, "exploration")])
def test_two_percent_in_three_rounds_are_no_plateau(fall: float, why: str) -> None:
    notes = _advance(_lively(memory=0.0), [1.0, 1.0, 1.0, fall])
    assert notes[-1]["why"] == why


def test_rounds_that_went_raw_say_nothing_of_alpha_but_where_they_diverge() -> None:
    schedule = _lively(alpha=0.1, patience=1)

    def told(losses: list[float], start: int, *, raw: bool) -> list[float]:
        alphas = []
        for at, loss in enumerate(losses, start):
            schedule.advance(RoundFacts(round=at, train_loss=loss, raw=raw))
            alphas.append(schedule.alpha)
        return alphas

    assert told([8.0, 7.0], 0, raw=False) == pytest.approx([0.125, 0.15625])
    assert told([6.0, 5.0, 5.0, 5.0, 5.0], 2, raw=True) == pytest.approx([0.15625] * 5)
    schedule.violated()
    schedule.advance(RoundFacts(round=7, train_loss=4.0, raw=True))  # it was tried, and was refused
    note = schedule.note()
    assert note is not None and note["why"] == "violation"
    assert told([50.0, 50.0], 8, raw=True)[-1] == 0.01 and schedule.restore


def test_held_out_samples_accept_what_they_hardly_see() -> None:
    schedule = _lively()
    assert [schedule.accepts(1.0, encoded) for encoded in (0.1, 1.0, 1.0209, 1.0211)] == [True, True, True, False]
    assert [schedule.accepts(0.0, encoded) for encoded in (0.0009, 0.0011)] == [True, False]
    assert not any(schedule.accepts(1.0, encoded) for encoded in (math.nan, math.inf, -math.inf))
    assert not schedule.accepts(math.nan, 1.0)


def test_a_broadcast_that_is_refused_is_tightened_and_after_three_times_sent_raw() -> None:
    schedule = _lively()
    assert schedule.lossless and not schedule.lossless_uplink  # no update is known yet
    _advance(schedule, [1.0])
    assert not schedule.lossless
    tried = []
    while not schedule.lossless and not schedule.accepts(1.0, 1.0 + schedule.alpha):
        schedule.violated()
        tried.append(schedule.alpha)
    assert tried == pytest.approx([0.15, 0.075, 0.0375])
    assert schedule.lossless and not schedule.lossless_uplink
    refused, *after = _advance(schedule, [0.8, 0.64, 0.5, 0.4], start=1)
    assert (refused["was"], refused["alpha"], refused["why"]) == (0.3, pytest.approx(0.0375), "violation")
    assert (refused["violations"], refused["lossless"], refused["restore"]) == (3, True, False)
    assert schedule.good and not schedule.lossless  # the parameters themselves are sound
    assert _told(after, "why") == ["steady", "steady", "exploration"]  # counted anew


def test_one_refusal_sends_what_is_accepted_then() -> None:
    schedule = _lively()
    _advance(schedule, [1.0])
    schedule.violated()
    assert (schedule.alpha, schedule.lossless) == (0.15, False)
    schedule.advance(RoundFacts(round=1, train_loss=0.5, probe_loss=0.9, probe_loss_encoded=math.inf, violations=1))
    assert (schedule.alpha, schedule.restore) == (0.15, False)  # what was refused did no harm
    schedule.advance(RoundFacts(round=2, train_loss=0.4, violations=1))  # found by others than the probe
    assert schedule.note() is not None and (schedule.note() or {})["why"] == "violation"


def test_a_running_loss_far_above_its_least_twice_in_a_row_goes_back_raw() -> None:
    schedule = _lively(memory=0.0)
    goods, restores = [], []
    for at, loss in enumerate([1.0, 0.5, 0.8, 0.6, 0.8, 0.9]):  # 0.8 > 1.5 * 0.5, once; then 0.8 and 0.9
        _advance(schedule, [loss], start=at)
        goods.append(schedule.good)
        restores.append(schedule.restore)
    assert goods == [True, True, False, True, False, False]
    assert restores == [False] * 5 + [True]
    assert (schedule.alpha, schedule.lossless, schedule.lossless_uplink) == (0.01, True, True)
    note = schedule.note()
    assert note is not None and (note["why"], note["running_loss"], note["restore"]) == ("divergence", 0.6, True)
    _advance(schedule, [0.55, 0.4, 0.3], start=6)
    assert schedule.good and not schedule.restore and not schedule.lossless and not schedule.lossless_uplink
    assert schedule.alpha == pytest.approx(0.0125)  # three steady rounds


def test_what_went_wrong_is_forgotten_once_it_was_taken_back() -> None:
    schedule = _lively()
    assert _advance(schedule, [1.0, 1.0, 1.0, 1.0, 10.0, 10.0])[-1]["why"] == "divergence"
    assert schedule.restores == 1
    after = _advance(schedule, [1.0, 1.0], start=6)
    assert _told(after, "running_loss") == pytest.approx([1.0, 1.0])
    assert _told(after, "why") == ["plateau", "steady"]  # what was before is not forgotten
    assert (schedule.good, schedule.restores) == (True, 0)


@pytest.mark.parametrize(
    "facts",
    [
        {"train_loss": math.nan},
        {"train_loss": math.inf},
        {"train_loss": 0.5, "finite": False},
        {"train_loss": 0.5, "probe_loss": math.nan},
    ],
)
def test_what_is_not_finite_goes_back_at_once_and_says_how_often_in_a_row(facts: dict[str, Any]) -> None:
    schedule = _lively()
    _advance(schedule, [1.0, 0.9])
    for at in (2, 3):
        schedule.advance(RoundFacts(round=at, **facts))
        assert (schedule.alpha, schedule.restore, schedule.lossless, schedule.lossless_uplink) == (0.01, *[True] * 3)
        assert (schedule.good, schedule.restores) == (False, at - 1)
        assert (schedule.note() or {})["running_loss"] == pytest.approx(0.97)
    _advance(schedule, [0.9], start=4)
    assert (schedule.restore, schedule.restores, schedule.good) == (False, 0, True)


def test_a_loss_near_zero_is_no_divergence() -> None:
    schedule = _lively(memory=0.0)
    assert "divergence" not in _told(_advance(schedule, [1e-5, 5e-4, 9e-4, 2e-4, 8e-4]), "why")
    assert _advance(_lively(memory=0.0, slack=0.0), [1e-5, 5e-4, 9e-4])[-1]["why"] == "divergence"


@given(rounds=ROUNDS)
def test_alpha_stays_within_its_limits_whatever_comes(rounds: list[tuple[float, bool, int]]) -> None:
    schedule = _lively(alpha_min=0.07, alpha_max=0.9, patience=2)
    for said in _play(schedule, rounds):
        alphas = [said[0], *[value for value in said[4:-4] if isinstance(value, float)], said[-4]["alpha"]]
        assert all(0.07 <= alpha <= 0.9 for alpha in alphas)
        if said[-4]["restore"]:
            assert said[-4]["alpha"] == 0.07 and not said[-3]


@pytest.mark.parametrize("name", SCHEDULES)
@given(rounds=ROUNDS, cut=st.integers(0, 25))
@settings(max_examples=40)
def test_a_schedule_goes_on_from_its_state(name: str, rounds: list[tuple[float, bool, int]], cut: int) -> None:
    cut = min(cut, len(rounds))
    one, other = SCHEDULES[name](**SMALL[name]), SCHEDULES[name](**SMALL[name])
    _play(one, rounds[:cut])
    state = json.dumps(one.state_dict(), allow_nan=False)
    other.load_state_dict(json.loads(state))
    assert other.note() is None
    assert repr(_play(one, rounds[cut:], cut)) == repr(_play(other, rounds[cut:], cut))
    other.load_state_dict(json.loads(state))
    assert json.dumps(other.state_dict()) == state  # what came since is gone


@pytest.mark.parametrize(("name", "looser"), [("adaptive", "lower"), ("adaquantfl", "higher"), ("dadaquant", "lower")])
@given(before=st.lists(LOSSES, max_size=12), two=st.tuples(st.floats(0, 10), st.floats(0, 10)))
@settings(max_examples=60)
def test_the_lower_loss_never_tightens_or_never_loosens(
    name: str, looser: str, before: list[float], two: tuple[float, float]
) -> None:
    """What follows training loosens where it goes well; AdaQuantFL spends more as it does."""
    alphas = []
    for loss in sorted(two):
        schedule = SCHEDULES[name](**SMALL[name])
        _advance(schedule, before or [1.0])
        _advance(schedule, [loss], start=len(before or [1.0]))
        alphas.append(schedule.alpha)
    assert (alphas[0] >= alphas[1]) if looser == "lower" else (alphas[0] <= alphas[1])


def test_fixed_is_what_it_was_and_is_raw_before_an_update_is_known() -> None:
    fixed, relative = Fixed(alpha=0.3, basis=UPDATE), Fixed()
    assert (fixed.lossless, relative.lossless, relative.basis, relative.alpha) == (True, False, RANGE, 0.01)
    assert _told(_advance(fixed, [1.0, math.nan, 9.0]), "alpha") == [0.3, 0.3, 0.3]
    assert not fixed.lossless and not fixed.probes and fixed.accepts(1.0, math.nan) and not fixed.restore
    assert fixed.client_alphas(_clients((1, None), (2, 9.0), (3, 0.1))) == [0.3, 0.3, 0.3]
    with pytest.raises(RuntimeError, match=r"Fixed accepts everything"):
        fixed.violated()


def test_a_decay_arrives_and_stays() -> None:
    notes = _advance(LinearDecay(alpha=0.3, alpha_end=0.1, rounds=4), [1.0] * 6)
    assert _told(notes, "alpha") == pytest.approx([0.25, 0.2, 0.15, 0.1, 0.1, 0.1])
    assert _told(notes, "why") == ["decay"] * 4 + ["steady"] * 2


def test_adaquantfl_has_levels_by_the_root_of_the_loss() -> None:
    losses = [math.nan, 1.2, 0.3, 0.075, math.inf, 4.8, 0.6, 0.0]
    notes = _advance(AdaQuantFL(levels=4, levels_max=40), losses)
    # ceil(sqrt(1.2 / F) * 4), where the first loss that counts is 1.2
    assert [round(1 / (2 * alpha)) for alpha in _told(notes, "alpha")] == [4, 4, 8, 16, 16, 2, 6, 40]
    assert _advance(AdaQuantFL(levels=4), [0.27, 0.03])[-1]["alpha"] == 1 / 24  # 9 times less, but for rounding


def test_dadaquant_doubles_where_the_running_loss_stands_and_waits() -> None:
    schedule = DAdaQuant(levels=1, levels_max=6, patience=2, memory=0.0)
    notes = _advance(schedule, [3.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0, math.nan, 1.0, 1.0, 1.0])
    assert [round(1 / (2 * alpha)) for alpha in _told(notes, "alpha")] == [1, 1, 1, 1, 2, 2, 4, 4, 6, 6, 6]
    # 4, 3, 3 by halves: no more than two rounds ago; 4, 2, 4 as they come: no less
    for memory, levels in ((0.5, 1), (0.0, 2)):
        schedule = DAdaQuant(patience=2, memory=memory)
        _advance(schedule, [4.0, 2.0, 4.0 if memory == 0 else 3.0])
        assert schedule.levels == levels


def test_dadaquant_gives_clients_levels_by_the_two_thirds_of_their_weights() -> None:
    # a = 1 + 4, b = (1 + 64) / 64: 2.22 and 8.88 levels
    assert DAdaQuant(levels=8).client_alphas(_clients((1, 5.0), (8, None))) == [1 / 4, 1 / 18]
    assert DAdaQuant(levels=8).client_alphas(_clients(*[(0.25, 1.0)] * 4)) == [1 / 16] * 4
    assert DAdaQuant(levels=1).client_alphas(_clients((1e-9, 1.0), (1.0, 1.0))) == [1 / 2, 1 / 2]  # one at least


def test_clients_that_lag_have_less_and_those_ahead_more() -> None:
    schedule = AdaptiveBound(alpha=0.8, alpha_max=4.0, fairness=2.0)
    # a mean of 1.25: lags of 0.25, 0 and -0.25
    lags = _clients((2, 1.5), (5, 1.25), (2, 1.0))
    assert schedule.client_alphas(lags) == pytest.approx([0.8 * math.exp(-0.5), 0.8, 0.8 * math.exp(0.5)])
    # by weight: a mean of 1.75
    assert schedule.client_alphas(_clients((1, 1.0), (3, 2.0))) == pytest.approx(
        [0.8 * 4, 0.8 * math.exp(-0.5)], rel=1e-12
    )
    assert AdaptiveBound(alpha=0.8).client_alphas(lags) == [0.8] * 3
    assert schedule.client_alphas([]) == []


def test_clients_are_four_times_apart_from_alpha_at_most_and_within_its_limits() -> None:
    far = _clients((1, 0.0), (1, 1e308))
    assert AdaptiveBound(alpha=0.8, alpha_max=4.0, fairness=1e9).client_alphas(far) == [0.8 * 4, 0.8 / 4]
    narrow = AdaptiveBound(alpha=0.8, alpha_min=0.5, alpha_max=0.9, fairness=1.0)
    assert narrow.client_alphas(far) == [0.9, 0.5]


@pytest.mark.parametrize("loss", [None, math.nan, math.inf])
def test_a_client_without_a_finite_loss_has_alpha_and_no_part_in_the_mean(loss: float | None) -> None:
    alphas = AdaptiveBound(alpha=0.8, alpha_max=4.0, fairness=1.0).client_alphas(
        _clients((100, loss), (1, 1.0), (1, 2.0))
    )
    assert alphas == pytest.approx([0.8, 0.8 * math.exp(0.5), 0.8 * math.exp(-0.5)])
    assert AdaptiveBound(alpha=0.8, alpha_max=4.0, fairness=1.0).client_alphas(_clients((1, loss), (3, loss))) == [
        0.8,
        0.8,
    ]


@given(
    known=st.lists(st.tuples(st.floats(1e-3, 1e3), st.none() | LOSSES), min_size=1, max_size=6),
    fairness=st.floats(0, 100),
)
def test_the_higher_a_loss_the_tighter_a_clients_bound(
    known: list[tuple[float, float | None]], fairness: float
) -> None:
    alphas = AdaptiveBound(alpha=0.3, alpha_min=0.1, alpha_max=1.0, fairness=fairness).client_alphas(_clients(*known))
    told = zip((loss for _, loss in known), alphas, strict=True)
    finite = [(loss, alpha) for loss, alpha in told if loss is not None and math.isfinite(loss)]
    assert [alpha for _, alpha in sorted(finite)] == sorted((alpha for _, alpha in finite), reverse=True)
    assert all(0.1 <= alpha <= 1.0 for alpha in alphas)


@pytest.mark.parametrize("name", SCHEDULES)
def test_each_round_is_told_once(name: str) -> None:
    schedule = SCHEDULES[name](**SMALL[name])
    _advance(schedule, [1.0])
    before = schedule.state_dict()
    for wrong in (0, 2):
        with pytest.raises(ValueError, match=rf"round={wrong}: .* it is at 1"):
            schedule.advance(RoundFacts(round=wrong, train_loss=1.0))
    assert schedule.state_dict() == before


@pytest.mark.parametrize("name", ["adaptive", "adaquantfl"])
def test_ratios_of_losses_need_losses_from_zero_up(name: str) -> None:
    with pytest.raises(ValueError, match=r"round 0: train_loss=-1.*use a fixed one"):
        SCHEDULES[name]().advance(RoundFacts(round=0, train_loss=-1.0))


@pytest.mark.parametrize(
    ("name", "params", "faults"),
    [
        ("adaptive", {"alpha": 5, "alpha_min": 0, "increase": 1, "decrease": 1, "patience": 0, "window": 0}, 5),
        ("adaptive", {"alpha": 0.2, "alpha_min": 0.5, "alpha_max": 0.3}, 2),
        ("adaptive", {"tolerance": -1, "slack": math.nan, "memory": 1, "plateau": 1, "divergence": 1}, 5),
        ("adaptive", {"fairness": -0.1, "tolerance": -1}, 2),
        ("adaptive", {"fairness": math.inf}, 1),
        ("fixed", {"alpha": 0, "basis": "norm"}, 2),
        ("linear", {"alpha": 0.1, "alpha_end": 0, "rounds": 0, "basis": 3}, 3),
        ("linear", {"alpha": 0.1, "alpha_end": 0.2}, 1),
        ("adaquantfl", {"levels": 9, "levels_max": 8}, 1),
        ("dadaquant", {"levels": 0, "levels_max": 2**20, "patience": 0, "memory": math.nan}, 4),
    ],
)
def test_all_bad_parameters_are_told_at_once(name: str, params: dict[str, Any], faults: int) -> None:
    with pytest.raises(ValueError, match=r"must be|unknown") as caught:
        SCHEDULES[name](**params)
    assert len(str(caught.value).splitlines()) == faults


def test_facts_are_of_some_round() -> None:
    with pytest.raises(ValueError, match=r"round=-1.*\nviolations=-2"):
        RoundFacts(round=-1, train_loss=1.0, violations=-2)
    for weight in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=r"weight=.*: must be above 0"):
            ClientFacts(weight=weight)
