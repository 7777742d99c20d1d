"""Laws can be broken: for each there is a compressor with the one flaw that it is there to find."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compressors.base.compressor import Compressor
from testbed.worker.laws import judge
from testbed.worker.laws.cases.registry import BOOK, Case, LawBroken
from testbed.worker.laws.cases.variants import LATER, Later, variants
from tests.contract.flawed import (
    AlwaysFeedback,
    BlindToStrides,
    CannotMove,
    ChangesItsInput,
    ClearsFirst,
    EveryoneForThemselves,
    FailsOnSlowLinks,
    FlawedLater,
    FlawedOnSlowLinks,
    GlobalGenerator,
    Halves,
    HidesWhatIsNotFinite,
    Loses,
    Modest,
    NeverEmpty,
    NeverOne,
    NeverZero,
    NoRounds,
    OneByteMore,
    OneRoundMore,
    Overflows,
    OwnRounds,
    PointToPointAfterAll,
    RefusesNothing,
    Repeats,
    RepeatsAfterAnEmptyState,
    Sound,
    Square,
    TakesTheMomentum,
    Varies,
    WrapsAround,
)
from tests.contract.flawed_decoders import (
    Aligned,
    AView,
    BelievesPeers,
    BelievesTheirCounts,
    IgnoresScale,
    RefusesOnly,
    SumsNaNOfOthers,
    TakesAnyLength,
    TakesAnyType,
    TakesNaN,
    TakesNaNOfOthers,
    Trusting,
    TrustsTheSize,
    WritesByAddress,
)

pytestmark = pytest.mark.tier("all")
FOREIGN = [("another", bytes(range(200))), ("none", bytes(1200))]
FLAWS: list[tuple[str, Callable[..., Compressor]]] = [
    ("same-mean", EveryoneForThemselves),
    ("bytes", OneByteMore),
    ("rounds", OneRoundMore),
    ("mean", Loses),
    ("in-place", ClearsFirst),
    ("input-kept", ChangesItsInput),
    ("zeros", NeverZero),
    ("one-element", NeverOne),
    ("empty", NeverEmpty),
    ("nan", HidesWhatIsNotFinite),
    ("infinity", HidesWhatIsNotFinite),
    ("nan", TakesNaN),
    ("infinity", RefusesOnly),
    ("carries", TakesNaN),
    ("carries", RefusesOnly),
    ("damaged", TakesNaNOfOthers),
    ("huge-counts", TakesNaNOfOthers),
    ("peers", SumsNaNOfOthers),
    ("strides", BlindToStrides),
    ("seeds", GlobalGenerator),
    ("sum", Square),
    ("headroom", Overflows),
    ("headroom", WrapsAround),
    ("unbiased", Halves),
    ("contraction", Halves),
    ("lossless", Modest),
    ("sizes", Varies),
    ("declared", NoRounds),
    ("names-itself", PointToPointAfterAll),
    ("no-more-than-given", Repeats),
    ("owns", TakesTheMomentum),
    ("nothing-lost", Loses),
    ("ef21", Loses),
    ("streams", Repeats),
    ("feedback-fits", Halves),
    ("feedback-choice", AlwaysFeedback),
    ("refusals", RefusesNothing),
    ("resume", Repeats),
    ("beginning", RepeatsAfterAnEmptyState),
    ("other-buckets", CannotMove),
    ("payload", AView),
    ("decode", IgnoresScale),
    ("strided-output", WritesByAddress),
    ("unaligned", Aligned),
    ("wrong-length", TakesAnyLength),
    ("wrong-type", TakesAnyType),
    ("other-size", TrustsTheSize),
    ("damaged", Trusting),
    ("huge-counts", Trusting),
    ("random-bytes", Trusting),
    ("foreign", Trusting),
    ("peers", BelievesPeers),
    ("peers", BelievesTheirCounts),
]


def case(kind: Callable[..., Compressor]) -> Case:
    return Case("broken", kind, foreign=lambda: FOREIGN)


@pytest.mark.parametrize("kind", [Sound, OwnRounds])
def test_without_a_flaw_nothing_is_broken(kind: Callable[..., Compressor]) -> None:
    found = {row.law: row.detail for row in judge.judge(case(kind)) if row.outcome == "broken"}
    assert found == {}


@pytest.mark.parametrize(("law", "kind"), FLAWS)
def test_the_flaw_is_found_by_its_law(law: str, kind: Callable[..., Compressor]) -> None:
    assert judge.cases_of(BOOK[law], case(kind)), f"{law} does not look at {kind.__name__}"
    broken = [row for row in judge.judge(case(kind)) if row.outcome == "broken"]
    assert law in [row.law for row in broken]
    assert all(row.detail for row in broken)


def test_flaws_that_show_later_or_on_other_links_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Case("late", FlawedLater, target="tests.contract.flawed.FlawedLater")
    assert _breaches(late) == {}
    monkeypatch.setitem(LATER, late.target, Later("after its warm-up", {"warm_up_steps": 1}, first_step=1))
    variants.cache_clear()
    for found in (_breaches(late), _breaches(Case("links", FlawedOnSlowLinks))):
        assert {"one-element", "unbiased", "feedback-fits"} <= found.keys()
    assert _breaches(late)["unbiased"].startswith("after its warm-up: ")


def test_one_that_fails_on_other_links_is_told_so() -> None:
    found = _breaches(Case("fails", FailsOnSlowLinks))
    assert found["same-mean"].startswith("on other links, gather: ZeroDivisionError: float division by zero")


def _breaches(case: Case) -> dict[str, str]:
    return {row.law: row.detail for row in judge.judge(case) if row.outcome == "broken"}


def test_every_law_has_a_flaw_here_but_that_of_devices() -> None:
    assert {law for law, _ in FLAWS} == BOOK.keys() - {"devices"}


def test_counts_beyond_measure_are_stopped_by_the_memory_limit() -> None:
    with pytest.raises(LawBroken, match=r"huge count \d+: RuntimeError: .*(memory|allocat|negative|shape)"):
        BOOK["huge-counts"].check(case(Trusting))
