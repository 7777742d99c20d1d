from __future__ import annotations

import pytest

from testbed.core.parallel.elastic import Move, arranged, averaged_wan_bytes, moves, rescaled_rate
from tests.unit.worker.test_collectives import topology


def test_each_pipeline_gives_way_to_shorter_ones_of_its_own_ranks() -> None:
    begun = arranged(8, 4, [0, 3, 5, 7], 10)
    assert begun.pipelines == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert begun.replicas(1) == (1, 5)
    halved = arranged(8, 4, [0, 6], 10)
    assert halved.pipelines == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert halved.replicas(0) == (0, 2, 4, 6) and halved.length == 2
    assert [halved.stage_of(piece) for piece in (0, 5, 6, 9)] == [0, 0, 1, 1]
    whole = arranged(8, 4, [0], 10)
    assert whole.replicas(0) == tuple(range(8)) == whole.active


def test_what_a_rank_lacks_comes_from_its_own_region_where_somebody_has_it() -> None:
    regions = topology((2, 2))
    before, after = arranged(4, 2, [0, 2], 4), arranged(4, 2, [0], 4)
    found = moves(before, after, regions)
    assert found == [
        Move(0, 0, 1),
        Move(0, 2, 3),
        Move(1, 0, 1),
        Move(1, 2, 3),
        Move(2, 1, 0),
        Move(2, 3, 2),
        Move(3, 1, 0),
        Move(3, 3, 2),
    ]
    assert moves(after, after, regions) == []


def test_one_owner_far_away_gives_to_all_and_several_take_turns() -> None:
    far = moves(arranged(2, 2, [0, 1], 2), arranged(2, 2, [0], 2), topology((1, 1)))
    assert far == [Move(0, 0, 1), Move(1, 1, 0)]
    turns = moves(arranged(4, 2, [0, 1], 2), arranged(4, 2, [0], 2), topology((4,)))
    assert [(move.piece, move.source) for move in turns] == [(0, 0), (0, 2), (1, 1), (1, 3)]


def test_averaged_by_regions_no_more_crosses_however_many_replicas_there_are() -> None:
    regions, size = topology((4, 4)), 1e6
    two, four, eight = (arranged(8, 4, cuts, 8) for cuts in ([0, 2, 4, 6], [0, 4], [0]))

    def crossing(arrangement: object, sizes: list[float], algorithm: str) -> float:
        return averaged_wan_bytes(arrangement, sizes, regions, algorithm)  # type: ignore[arg-type]

    for algorithm in ("hierarchical", "ring"):
        assert crossing(two, [size] * 4, algorithm) == pytest.approx(2 * 4 * size)
    # the same gradients, of two stages and of one
    assert crossing(four, [2 * size] * 2, "hierarchical") == pytest.approx(2 * 4 * size)
    assert crossing(eight, [4 * size], "hierarchical") == pytest.approx(2 * 4 * size)
    assert crossing(four, [2 * size] * 2, "ring") == pytest.approx(1.5 * 2 * 4 * size)
    assert crossing(eight, [4 * size], "ring") == pytest.approx(1.75 * 2 * 4 * size)
    assert averaged_wan_bytes(arranged(4, 4, [0, 1, 2, 3], 4), [size] * 4, topology((2, 2)), "ring") == 0


def test_the_learning_rate_follows_the_batch_as_it_was_asked_to() -> None:
    assert rescaled_rate(0.1, 2, 4) == pytest.approx(0.2)
    assert rescaled_rate(0.1, 2, 8, "sqrt") == pytest.approx(0.2)
    assert rescaled_rate(0.1, 2, 8, "none") == 0.1
    with pytest.raises(ValueError, match="rate=0: must be above 0") as caught:
        rescaled_rate(0, 0, 1, "cubic")
    assert "replicas_before=0" in str(caught.value) and "rule=cubic: unknown" in str(caught.value)


@pytest.mark.parametrize(
    ("ranks", "cuts", "fault"),
    [
        (6, [0, 1], "ranks=6: are not whole pipelines of 4"),
        (8, [0, 1, 2], "3 stages do not divide the 4"),
        (8, [0, 0], "must ascend from 0"),
        (8, [1, 2], "must ascend from 0"),
        (8, [0, 10], "be below 10"),
    ],
)
def test_arrangements_that_cannot_be_are_refused(ranks: int, cuts: list[int], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        arranged(ranks, 4, cuts, 10)
