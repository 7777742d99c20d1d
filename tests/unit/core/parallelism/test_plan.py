"""Plans of hybrid parallelism: groups told by hand, and all that is wrong with one at once."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from testbed.core.parallelism.plan import GPIPE, INTERLEAVED, Plan, schedule_fault


def _plan(**changes: Any) -> Plan:
    values: dict[str, Any] = {"pp": 2, "dp": 2, "tp": 2, "micro_batch": 2, "cuts": (0, 3), "placement": tuple(range(8))}
    return Plan(**{**values, **changes})


def _pipelines(plan: Plan) -> tuple[tuple[int, ...], ...]:
    """The ranks of each in the order of positions; by replica, then shard."""
    pairs = itertools.product(range(plan.dp), range(plan.tp))
    return tuple(tuple(plan.rank(p, d, t) for p in range(plan.pp)) for d, t in pairs)


def test_groups_of_a_plan_whose_ranks_are_not_in_order() -> None:
    plan = _plan(placement=(7, 6, 5, 4, 3, 2, 1, 0))
    assert _pipelines(plan) == ((7, 3), (6, 2), (5, 1), (4, 0))
    assert plan.data_groups == ((7, 5), (6, 4), (3, 1), (2, 0))
    assert plan.tensor_groups == ((7, 6), (5, 4), (3, 2), (1, 0))
    assert plan.position_ranks(1) == (3, 2, 1, 0)
    assert plan.coordinates(4) == (0, 1, 1) and plan.rank(0, 1, 1) == 4
    assert plan.stages_of(4) == (0,) and plan.stages_of(0) == (1,)


@pytest.mark.parametrize(("pp", "dp", "tp"), [d for d in itertools.product((1, 2, 3, 4), repeat=3) if 1 < sum(d) < 9])
def test_each_kind_of_group_has_every_rank_once(pp: int, dp: int, tp: int) -> None:
    size = pp * dp * tp
    plan = _plan(pp=pp, dp=dp, tp=tp, cuts=tuple(range(pp)), placement=tuple(reversed(range(size))))
    for groups, length in ((_pipelines(plan), pp), (plan.data_groups, dp), (plan.tensor_groups, tp)):
        assert sorted(itertools.chain(*groups)) == list(range(size))
        assert all(len(group) == length for group in groups)
    for rank in range(size):
        assert plan.rank(*plan.coordinates(rank)) == rank


def test_stages_may_be_uneven_and_a_position_may_have_several() -> None:
    assert [list(_plan().layers_of_stage(stage, 5)) for stage in (0, 1)] == [[0, 1, 2], [3, 4]]
    plan = _plan(schedule=INTERLEAVED, cuts=(0, 1, 4, 5))
    assert plan.stages == 4 and plan.chunks == 2
    assert plan.stages_of(0) == (0, 2) and plan.stages_of(7) == (1, 3)
    assert list(plan.layers_of_stage(3, 8)) == [5, 6, 7]


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ValueError, match="schedule=zb: unknown") as found:
        _plan(micro_batch=0, cuts=(0, 2, 2), schedule="zb")
    assert "micro_batch=0: must be a whole number" in str(found.value)
    assert "cuts=(0, 2, 2): must begin at 0 and rise, so that no stage is empty" in str(found.value)
    with pytest.raises(ValueError, match="3 stages, but pp=2") as found:
        _plan(cuts=(0, 2, 3), placement=(0, 1, 2, 3, 4, 5, 6, 6))
    assert "must be each of the 8 ranks of pp=2 x dp=2 x tp=2 once" in str(found.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"cuts": (1, 3)},
        {"cuts": ()},
        {"cuts": (0, 2, 4, 6)},  # only interleaved plans have two stages a position
        {"schedule": INTERLEAVED},
        {"schedule": INTERLEAVED, "cuts": (0, 2, 4)},
        {"schedule": INTERLEAVED, "pp": 1, "cuts": (0, 2), "placement": (0, 1, 2, 3)},
        {"placement": tuple(range(1, 9))},
        {"dp": 1},
    ],
)
def test_faults_of_a_plan_alone(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"cuts=|placement="):
        _plan(**changes)


def test_what_does_not_fit_ranks_layers_and_batch() -> None:
    plan = _plan(schedule=GPIPE)
    plan.check(world_size=8, layers=4, global_batch=4)
    assert plan.micro_batches(24) == 6
    with pytest.raises(ValueError, match="8 ranks, but there are 4") as found:
        plan.check(world_size=4, layers=3, global_batch=6)
    assert "the model has 3 layers; the last stage must begin before 3" in str(found.value)
    assert "global_batch=6: must be a multiple of 4, which is dp=2 x micro_batch=2" in str(found.value)
    with pytest.raises(ValueError, match="global_batch=0"):
        plan.check(world_size=8, layers=4, global_batch=0)


def test_numbers_of_micro_batches_that_a_schedule_refuses() -> None:
    with pytest.raises(ValueError, match="1f1b: 1 micro-batches; must be at least pp=2"):
        _plan().check(world_size=8, layers=4, global_batch=4)
    assert schedule_fault(GPIPE, 4, 1) is None
    assert schedule_fault("1f1b", 4, 4) is None
    # torch's own two examples, and the nearest that is none
    assert schedule_fault(INTERLEAVED, 4, 10) is None
    assert schedule_fault(INTERLEAVED, 4, 3) is None
    assert "2 equal rounds" in str(schedule_fault(INTERLEAVED, 4, 11))
