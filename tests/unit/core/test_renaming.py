"""A member with an old name has the new one too, and its class says so once."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import ClassVar

import pytest

from testbed.core.renaming import Renamed


class Base(Renamed):
    renamed: ClassVar[dict[str, str]] = {"faults": "validate", "draws": "draws_batches"}
    draws_batches: bool = False

    def validate(self) -> Iterator[str]:
        yield "base"


def test_an_old_name_works_and_warns_by_the_name_of_the_class() -> None:
    told = r"test_renaming\..*Old: faults is validate now, draws is draws_batches now; the old name"
    with pytest.warns(FutureWarning, match=told):

        class Old(Base):
            draws = True

            def faults(self) -> Iterator[str]:
                yield from super().faults()  # type: ignore[misc]
                yield "old"

    assert list(Old().validate()) == ["base", "old"] and Old().draws_batches is True


def test_a_new_name_warns_of_nothing_and_is_reached_by_the_old_one() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        class New(Base):
            def validate(self) -> Iterator[str]:
                yield from super().validate()
                yield "new"

        class Below(New):
            pass

    assert list(Below().validate()) == list(Below().faults()) == ["base", "new"]  # type: ignore[attr-defined]


def test_where_both_are_defined_the_new_one_counts() -> None:
    class Both(Base):
        def validate(self) -> Iterator[str]:
            yield "new"

        def faults(self) -> Iterator[str]:
            yield "old"

    assert list(Both().validate()) == ["new"]
