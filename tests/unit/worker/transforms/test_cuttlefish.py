"""Cuttlefish: when it switches, to which ranks, and that all ranks go by what one has seen."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from testbed.core.costs.low_rank import LowRankPlan
from testbed.worker.communication.communicator import Communicator
from testbed.worker.communication.pending import Pending
from testbed.worker.methods.low_rank.factorization import weight_layers
from testbed.worker.methods.low_rank.layer_times import stacks
from testbed.worker.methods.low_rank.stable_rank import Stack
from testbed.worker.transforms import cuttlefish
from testbed.worker.transforms.cuttlefish import Cuttlefish
from tests.unit.worker.factorable import context, small, trained


class _Wire:
    """What rank 0 broadcasts, for the others to take."""

    def __init__(self) -> None:
        self.told: list[Tensor] = []


class _Rank(Communicator):
    """One of two in this process: rank 0 goes first."""

    def __init__(self, rank: int, wire: _Wire) -> None:
        super().__init__(rank, 2, 10.0)
        self._wire = list(wire.told) if rank else wire.told

    def broadcast(self, tensor: Tensor, *, source: int = 0) -> Pending:
        if self.rank == source:
            self._wire.append(tensor.clone())
        else:
            tensor.copy_(self._wire.pop(0))
        return self._done([tensor])

    def require_equal(self, value: int, what: str) -> None:
        return


def _runs(transform: Cuttlefish, comm: Communicator, noise: float = 0.0) -> tuple[int, LowRankPlan] | None:
    model = small()
    transform.bind(context(model, 80, comm))
    for step in range(80):
        trained(model, step)
        with torch.no_grad():
            model[0].weight.add_(noise)
            model[2].weight.mul_(1 + noise)
        if (plan := transform.plan_after(model, step)) is not None:
            return step, plan
    return None


def test_cuttlefish_switches_when_ranks_have_settled_to_what_they_then_are() -> None:
    found = _runs(Cuttlefish(keep_first=0, epsilon=4.0), Communicator(0, 1, 10.0))
    assert found is not None
    step, plan = found
    assert step % 2 == 1 and 12 < step < 60  # 40 observations in 80 steps; weights stand still from step 12 on
    assert {layer.name for layer in plan.layers[:3]} == {"0", "2", "4"} == set(plan.ranks)
    assert all(1 <= rank < 12 for rank in plan.ranks.values())


def test_cuttlefish_stays_at_full_rank_while_any_rank_changes() -> None:
    transform = Cuttlefish(keep_first=0, epsilon=1e-9)
    assert _runs(transform, Communicator(0, 1, 10.0), noise=0.02) is None
    assert transform.rate_factor(79) == 1.0


@pytest.mark.parametrize("observations", [20, 40])
@pytest.mark.parametrize(("epsilon", "settles"), [(5.0, False), (11.0, True)])
def test_what_counts_is_the_pace_over_the_run_however_often_it_is_looked_at(
    observations: int, epsilon: float, settles: bool
) -> None:
    """By 10 ranks a run; of the first few the average, which lags, says some three tenths less."""
    model, steps = small(), 80
    transform = Cuttlefish(keep_first=0, observations=observations, epsilon=epsilon)
    transform.bind(context(model, steps))
    for step in range(steps - 1):
        stable = 23 - 10 * step / steps
        others = torch.full((23,), ((stable - 1) / 23) ** 0.5)
        with torch.no_grad():
            for layer in transform.observed:
                model.get_submodule(layer.name).weight.copy_(torch.diag(torch.cat([torch.ones(1), others])))
        transform.plan_after(model, step)
    assert (len(transform.detector.settled) == len(transform.observed)) is settles


def test_all_ranks_go_by_what_rank_0_has_seen() -> None:
    wire = _Wire()
    first = _runs(Cuttlefish(keep_first=0), _Rank(0, wire))
    assert first is not None
    other = Cuttlefish(keep_first=0)
    second = _runs(other, _Rank(1, wire), noise=0.01)  # its own weights would have it decide otherwise
    assert second is not None
    assert (first[0], first[1].ranks) == (second[0], second[1].ranks)
    alone = _runs(Cuttlefish(keep_first=0), Communicator(0, 1, 10.0), noise=0.01)
    assert alone is None or alone[1].ranks != first[1].ranks
    assert other.initial == {} and not other.detector.settled  # it computed nothing


def test_a_rank_is_at_least_its_floor_and_its_share_of_singular_values() -> None:
    plain = _runs(Cuttlefish(keep_first=0), Communicator(0, 1, 10.0))
    assert plain is not None and plain[1].ranks.keys() == {"0", "2", "4"}
    assert all(4 < rank < 11 for rank in plain[1].ranks.values())
    for given, expected in (
        ({"floor": 0.44}, dict.fromkeys(plain[1].ranks, 11)),  # of 24
        ({"floor": 0.1}, plain[1].ranks),
        ({"singular_share": 0.1}, plain[1].ranks),
    ):
        found = _runs(Cuttlefish(keep_first=0, **given), Communicator(0, 1, 10.0))  # type: ignore[arg-type]
        assert found is not None and found[1].ranks == expected, given
    # as high as the break-even rank, from which on factors save nothing: there is nothing to switch to
    assert _runs(Cuttlefish(keep_first=0, singular_share=0.99), Communicator(0, 1, 10.0)) is None


def test_as_many_first_layers_stay_full_as_times_say_on_every_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    times = [Stack(1, 1.0, 0.9), Stack(3, 2.0, 1.0)]
    monkeypatch.setattr(cuttlefish, "stacks", lambda *_: times)
    wire, kept = _Wire(), []
    for rank in (0, 1):
        transform = Cuttlefish(keep_first=None)
        transform.bind(context(small(), 80, _Rank(rank, wire)))
        kept.append((transform.kept_first, [layer.name for layer in transform.observed]))
        times = []  # nobody else measures
    assert kept == [(1, ["2", "4"])] * 2


def test_neighbours_of_one_shape_are_timed_together_and_what_is_not_called_has_no_speed_up() -> None:
    model = small()
    found = stacks(model, weight_layers(model), lambda: model[:5](torch.ones(4, 24)).sum(), 0.25)
    assert [stack.layers for stack in found] == [3, 1]
    assert found[0].full_s > 0 and found[0].low_rank_s > 0
    assert found[1].full_s == found[1].low_rank_s
    assert all(p.grad is None for p in model.parameters())
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_frobenius_decay_takes_the_place_of_the_factors_own() -> None:
    for coefficient, names in ((0.1, ["0.u.weight", "0.v.weight"]), (0.0, [])):
        transform, model = Cuttlefish(keep_first=0, frobenius_decay=coefficient), small()
        transform.bind(context(model))
        assert transform.undecayed(model) == []
        transform.switch(model, LowRankPlan(tuple(transform.layers), {"0": 2}, {}), 0)
        assert transform.undecayed(model) == names
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        transform.attach(model, optimizer)
        model(torch.ones(1, 24)).sum().mul(0).backward()
        before = copy.deepcopy(model.state_dict())
        optimizer.step()
        changed = [name for name, value in model.state_dict().items() if not torch.equal(value, before[name])]
        assert changed == names
