"""Placements of a pipeline's ranks by regions."""

from __future__ import annotations

import pytest

from testbed.core.parallelism.plan import Plan
from testbed.worker.methods.pipeline.plan_request import placed


def test_pipelines_cross_regions_or_stay_inside() -> None:
    regions = [[0, 1, 2, 3], [4, 5, 6, 7]]
    across = Plan(
        pp=2, dp=2, tp=2, micro_batch=1, cuts=(0, 1), placement=placed("across", regions, 2, 2), schedule="1f1b"
    )
    assert across.data_groups == ((0, 2), (1, 3), (4, 6), (5, 7))
    assert [across.position_ranks(position) for position in (0, 1)] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    inside = Plan(
        pp=2, dp=2, tp=2, micro_batch=1, cuts=(0, 1), placement=placed("inside", regions, 2, 2), schedule="1f1b"
    )
    assert inside.data_groups == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert [inside.position_ranks(position) for position in (0, 1)] == [(0, 1, 4, 5), (2, 3, 6, 7)]
    assert across.tensor_groups == ((0, 1), (2, 3), (4, 5), (6, 7))


def test_what_does_not_fit_regions_is_refused() -> None:
    with pytest.raises(ValueError, match=r"placement=across: 2 ranks of tp=2 .* regions have 3, 1; list"):
        placed("across", [[0, 1, 2], [3]], 1, 2)
    with pytest.raises(ValueError, match=r"placement=inside: 2 ranks of pp=2 x tp=1 .* regions have 3, 1; list"):
        placed("inside", [[0, 1, 2], [3]], 2, 1)
    assert placed("across", [[0, 1, 2], [3]], 2, 1) == (0, 1, 2, 3)
