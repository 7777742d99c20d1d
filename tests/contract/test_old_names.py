"""A compressor with the names of version 1 works as before, and is told the new ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from compressors.base.compressor import Traits
from compressors.none import Uncompressed


def test_a_compressor_with_old_names_works_and_is_told_the_new_ones() -> None:
    with pytest.warns(FutureWarning, match="Old: faults is validate now, usual_feedback is default_feedback now, "):

        class Old(Uncompressed):
            usual_feedback = "momentum"
            sends_some = True

            def faults(self, world_size: int) -> Iterator[str]:
                yield from super().faults(world_size)  # type: ignore[misc]
                yield f"not among {world_size}"

    assert list(Old(feedback="on").validate(3)) == ["not among 3"], "momentum is for what is sparse, as it is"
    assert Old(feedback="on").feedback_kind == "momentum"


def test_traits_with_the_old_name_of_rounds_have_the_new_one() -> None:
    with pytest.warns(FutureWarning, match="Traits: most_rounds is max_rounds now"):
        traits = Traits(own_rounds=True, most_rounds=lambda ranks: 2 * ranks)
    assert traits.rounds_among(3) == 6
    assert dataclasses.replace(traits, max_world=4).rounds_among(3) == 6
