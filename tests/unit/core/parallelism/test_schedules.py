"""Orders of pipelines: nobody waits for what cannot come, and nobody keeps more than the schedule promises."""

from __future__ import annotations

import itertools

import pytest

from testbed.core.parallelism.memory import in_flight
from testbed.core.parallelism.plan import Plan, schedule_fault
from testbed.core.parallelism.schedules import Action, Durations, actions, ends_s, period_s

SIZES = [
    (schedule, pp, chunks, micro_batches)
    for schedule, pp, chunks, micro_batches in itertools.product(
        ("gpipe", "1f1b", "interleaved"), (1, 2, 3, 4), (1, 2, 3), (1, 2, 3, 4, 6, 8, 9)
    )
    if schedule_fault(schedule, pp, micro_batches) is None
    and (pp > 1 and chunks > 1 if schedule == "interleaved" else chunks == 1)
]


def plan_of(schedule: str, pp: int, chunks: int = 1) -> Plan:
    return Plan(
        pp=pp,
        dp=1,
        tp=1,
        micro_batch=1,
        cuts=tuple(range(pp * chunks)),
        placement=tuple(range(pp)),
        schedule=schedule,
    )


def needs(action: Action, stages: int) -> list[Action]:
    stage, number = action.stage, action.micro_batch
    if action.is_forward:
        return [Action(True, stage - 1, number)] if stage else []
    return [Action(True, stage, number)] + ([Action(False, stage + 1, number)] if stage + 1 < stages else [])


@pytest.mark.parametrize(("schedule", "pp", "chunks", "micro_batches"), SIZES)
def test_every_order_comes_to_its_end_with_all_of_a_step(
    schedule: str, pp: int, chunks: int, micro_batches: int
) -> None:
    plan = plan_of(schedule, pp, chunks)
    orders = [list(actions(plan, position, micro_batches)) for position in range(pp)]
    for position, order in enumerate(orders):
        stages = range(position, plan.stages, pp)
        wanted = itertools.product((True, False), stages, range(micro_batches))
        assert sorted(order, key=repr) == sorted((Action(*each) for each in wanted), key=repr)
        for kind, stage in itertools.product((True, False), stages):
            passed = [a.micro_batch for a in order if (a.is_forward, a.stage) == (kind, stage)]
            assert passed == sorted(passed), "messages pass a boundary in the order in which they are taken"
    done: set[Action] = set()
    while any(orders):
        ready = [order for order in orders if order and all(need in done for need in needs(order[0], plan.stages))]
        assert ready, f"all wait, after {len(done)} actions"
        for order in ready:
            done.add(order.pop(0))


@pytest.mark.parametrize(("schedule", "pp", "chunks", "micro_batches"), SIZES)
def test_a_position_keeps_as_many_micro_batches_as_memory_is_reckoned_with(
    schedule: str, pp: int, chunks: int, micro_batches: int
) -> None:
    if schedule == "interleaved" and micro_batches % pp:
        return  # what is reckoned with is for whole rounds of pp
    plan = plan_of(schedule, pp, chunks)
    for position in range(pp):
        kept = itertools.accumulate(1 if a.is_forward else -1 for a in actions(plan, position, micro_batches))
        assert max(kept) == in_flight(plan, position, micro_batches)


def test_the_orders_of_three_positions_by_hand() -> None:
    def told(schedule: str, position: int, pp: int = 3, chunks: int = 1) -> str:
        order = actions(plan_of(schedule, pp, chunks), position, 4)
        return " ".join(f"{'F' if a.is_forward else 'B'}{a.stage}.{a.micro_batch}" for a in order)

    assert told("1f1b", 0) == "F0.0 F0.1 F0.2 B0.0 F0.3 B0.1 B0.2 B0.3"
    assert told("1f1b", 2) == "F2.0 B2.0 F2.1 B2.1 F2.2 B2.2 F2.3 B2.3"
    assert told("gpipe", 1) == "F1.0 F1.1 F1.2 F1.3 B1.0 B1.1 B1.2 B1.3"
    last = "F1.0 F1.1 F3.0 B3.0 F3.1 B3.1 F1.2 B1.0 F1.3 B1.1 F3.2 B3.2 F3.3 B3.3 B1.2 B1.3"
    assert told("interleaved", 1, 2, 2) == last


def test_a_position_begins_its_next_step_when_it_is_done_with_its_own() -> None:
    plan = plan_of("gpipe", 2)
    of = Durations(forward_s=[1.0, 1.0], backward_s=[2.0, 2.0], sent_s=[0.5], latency_s=[0.25])
    assert ends_s(plan, 1, of, [0.0, 0.0]) == [1 + 0.75 + 3 + 0.75 + 2, 1 + 0.75 + 3]
    # the last position sums for 1.75 s until the next micro-batch comes, for nothing
    assert period_s(plan, 1, of, [0.0, 1.75 + 2.75]) == 7.5
    assert period_s(plan, 1, of, [0.5, 0.0]) == 8.0
    # and for longer it holds up the next step
    assert period_s(plan, 1, of, [0.0, 9.0]) == 12.0
    assert of.alone() == Durations(forward_s=[1.0, 1.0], backward_s=[2.0, 2.0], sent_s=[0.0], latency_s=[0.0])


def test_messages_queue_for_their_link_and_only_for_those_of_their_way() -> None:
    plan = plan_of("gpipe", 2)
    of = Durations(forward_s=[1.0, 1.0], backward_s=[1.0, 1.0], sent_s=[3.0], latency_s=[0.5])
    # forwards leave at 1 and 4, arrive at 4.5 and 7.5; gradients are made at 9.5 and 10.5, leave at 9.5 and 12.5
    assert ends_s(plan, 2, of, [0.0, 0.0]) == [12.5 + 3 + 0.5 + 1, 10.5]
