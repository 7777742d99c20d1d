"""Parameters that a constructor declares: what it refuses, in which words, and what is known of them as data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, Unpack

import pytest
from pydantic import TypeAdapter, ValidationError

from testbed.core.declaration import OPTIONAL, REQUIRED, Declared, checked, declaration
from testbed.core.kinds import Choice, Kind, ListOf, Number, Part, PathOf, PowerOfTwo, Settings, Text, Whole
from testbed.core.parameters import Count, CountOrZero, Duration, Flag, Fraction, Positive, Rate, Ratio, Share, Size

if TYPE_CHECKING:
    from decimal import Decimal

SPEEDS = ListOf(Number(above=0, most=1), "a number for each worker", most=3)


class Base(Declared):
    """Base of what follows.

    Args:
        feedback: Kind of feedback,
            on two lines.
    """

    def __init__(self, *, feedback: Annotated[str, Choice(("auto", "off"))] = "auto") -> None:
        self.feedback = feedback


class Codec(Base):
    """A codec.

    Args:
        first, second: Two of a kind.
        levels: Levels.

    Raises:
        ValueError: a parameter is wrong.
    """

    def __init__(
        self,
        first: Share,
        second: Share | None = None,
        *,
        levels: Annotated[int, Whole(1, 255)] = 15,
        plain: int = 3,
        feedback: Annotated[str, Choice(("auto", "off"))] = "auto",
    ) -> None:
        super().__init__(feedback=feedback)
        self.given = first, second, levels, plain


@checked
@dataclass(frozen=True, kw_only=True)
class Settled:
    """A dataclass."""

    step: Positive = 1.0
    """Step between
    two values."""
    seed: CountOrZero | None = None
    """Seed."""


def faults(make: Any, *values: object, **given: object) -> list[str]:
    with pytest.raises(ValueError, match="=") as caught:
        make(*values, **given)
    return str(caught.value).splitlines()


def test_all_faults_come_at_once_in_the_order_of_the_signature() -> None:
    assert faults(Codec, feedback="zz", levels=True, second="1", first=5) == [
        "first=5: must be in (0, 1]",
        "second=1: must be in (0, 1], or null",
        "levels=True: must be a whole number, at least 1 and at most 255",
        "feedback=zz: unknown; known: auto, off",
    ]
    assert faults(Codec, 0) == ["first=0: must be in (0, 1]"]
    assert faults(Settled, step=0, seed=-1) == [
        "step=0: must be above 0 and below inf",
        "seed=-1: must be a whole number, at least 0, or null",
    ]


def test_a_constructor_gets_what_was_given_and_not_another_number() -> None:
    made = Codec(1, None, levels=255, plain="any")  # type: ignore[arg-type]
    assert made.given == (1, None, 255, "any")
    assert type(made.given[0]) is int
    with pytest.raises(TypeError, match="unexpected keyword argument 'other'"):
        Codec(first=0.5, other=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="first"):
        Codec()  # type: ignore[call-arg]


def test_a_type_that_is_not_there_at_run_time_is_named() -> None:
    class Lacking(Declared):
        def __init__(self, *, amount: Decimal) -> None: ...

    with pytest.raises(
        TypeError, match=r"Lacking.__init__: cannot read the types.*'Decimal' is not defined; import it"
    ):
        Lacking(amount=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("hint", "good", "bad", "told"),
    [
        (Fraction, [0, 0.5], [1, -0.1, math.nan, "0"], "must be in [0, 1)"),
        (Positive, [1e-300, 10**400], [0, math.inf, math.nan, True, None], "must be above 0 and below inf"),
        (Count, [1, 2**62], [0, 1.0, True, "1", None, 10**5000], "must be a whole number, at least 1"),
        (Flag, [True, False], [0, 1, "true", None], "must be true or false"),
        (Annotated[int, Whole(8, 64, multiple_of=8)], [8, 64], [12, 72], "must be a multiple of 8, at least 8"),
        (Annotated[int, PowerOfTwo(2, 16)], [2, 16], [1, 3, 32], "must be a power of two, at least 2 and at most 16"),
        (Annotated[int, Choice((1, 2))], [1], [3, True, [], None], "unknown; known: 1, 2"),
        (Annotated[str, Text()], ["", "a"], [1, None], "must be text"),
        (Size, ["4 MiB"], ["0 B", "4 MB/s", 4, "4", None], ""),
        (Rate, ["1 Gbit/s"], ["1 GB", "1", True], ""),
        (Duration, ["67 ms", 0], ["67", "1 GB"], ""),
        (Ratio, ["1%", 0], ["101%", 2, 0.5], ""),
        (Annotated[str, PathOf("a CSV file")], ["/a.csv"], ["a.csv", 1], "must be the absolute path of a CSV file"),
        (Annotated[str, PathOf("a profile", absolute=False)], ["a", "/a"], [1], "must be the path of a profile"),
        (Annotated[Mapping[str, Any], Settings()], [{}], [[], "a"], "must be parameters by their names"),
        (Annotated[Base, Part(Base, "a base")], [Base()], [Base, 1], "must be a base, given as {_target_: …}"),
    ],
)
def test_kinds_allow_what_they_say(hint: Any, good: list[Any], bad: list[Any], told: str) -> None:
    class One(Declared):
        def __init__(self, *, x: hint) -> None: ...

    One.__init__.__wrapped__.__annotations__["x"] = hint  # type: ignore[attr-defined]
    for value in good:
        One(x=value)
    for value in bad:
        (line,) = faults(One, x=value)
        assert line.startswith("x=")
        assert told in line
        assert len(line) < 300


def test_lists_have_a_line_for_each_element_that_is_wrong() -> None:
    class Listing(Declared):
        def __init__(self, *, speeds: Annotated[Sequence[float], SPEEDS] | None = None) -> None: ...

    Listing(speeds=[1, 0.5])
    Listing(speeds=None)
    assert faults(Listing, speeds=[1, 2, 0]) == [
        "speeds[1]=2: must be above 0 and at most 1",
        "speeds[2]=0: must be above 0 and at most 1",
    ]
    for wrong in ([1] * 4, "1", 1):
        (line,) = faults(Listing, speeds=wrong)
        assert line.endswith(": must be a number for each worker, or null")


def test_what_a_class_declares_is_known_as_data() -> None:
    first, second, levels, plain, feedback = declaration(Codec)
    assert (first.name, first.default, first.sentence) == ("first", REQUIRED, "Two of a kind.")
    assert (first.type_text, first.values_text) == ("number", "in (0, 1]")
    assert (second.null, second.default, second.values_text) == (True, None, "in (0, 1], or null")
    assert (levels.type_text, levels.values_text, levels.default) == ("whole number", "at least 1 and at most 255", 15)
    assert (plain.kind, plain.type_text, plain.values_text) == (None, "", "")
    assert feedback.sentence == "Kind of feedback, on two lines."
    step, seed = declaration(Settled)
    assert (step.sentence, step.values_text) == ("Step between two values.", "above 0")
    assert seed.values_text == "at least 0, or null"


class Others(TypedDict, total=False):
    """Parameters of every family."""

    loss: Ratio
    """Share of lost packets."""


def test_functions_and_what_they_take_by_two_stars_declare_too() -> None:
    def build(*, rate: Rate = "1 Gbit/s", **others: Unpack[Others]) -> None:
        """Build it.

        Args:
            rate: Rate of each link.
        """

    (rate,) = declaration(build)
    assert (rate.name, rate.type_text, rate.sentence) == ("rate", "rate as text with a unit", "Rate of each link.")
    (loss,) = declaration(Others)
    assert (loss.default, loss.sentence) == (OPTIONAL, "Share of lost packets.")


def test_a_kind_of_ones_own_says_its_faults() -> None:
    @dataclass(frozen=True)
    class Even(Kind):
        type_text = "an even number"

        def allows(self, value: object) -> bool:
            return isinstance(value, int) and value % 2 == 0

    assert list(Even().faults("x", 3)) == ["x=3: must be an even number"]


@dataclass(frozen=True)
class Event:
    share: Share
    count: Count | None = None


def test_pydantic_checks_by_the_same_types() -> None:
    adapter = TypeAdapter(Event)
    assert adapter.validate_json('{"share": 1, "count": 2}') == Event(1, 2)
    with pytest.raises(ValidationError) as caught:
        adapter.validate_python({"share": True, "count": 0})
    assert [error["loc"] for error in caught.value.errors()] == [("share",), ("count",)]
    assert "must be in (0, 1]" in caught.value.errors()[0]["msg"]
