"""Ranks with samples of their own: who draws what, and what of it strategies that divide by themselves refuse."""

from __future__ import annotations

import pytest
import torch

from testbed.core.errors import InputError
from testbed.orchestrator.config.config import resolve
from testbed.worker.data.partitions import Dirichlet, Iid, Shards
from testbed.worker.training.parts import build_parts
from testbed.worker.workloads.blocks import Blocks
from testbed.worker.workloads.digits import Digits

RANKS, BATCH = 4, 32


def _epochs(workload: Digits, rank: int, steps: int, seed: int = 0) -> torch.Tensor:
    drawn = [workload.numbers(step, rank=rank, world_size=RANKS, batch_size=BATCH, seed=seed) for step in range(steps)]
    return torch.cat(drawn)


def test_each_rank_draws_its_own_samples_again_and_again_and_together_they_have_all() -> None:
    workload = Digits(partition=Dirichlet(alpha=0.3))
    own = [set(_epochs(workload, rank, 3 * workload.samples() // BATCH).tolist()) for rank in range(RANKS)]
    assert sum(map(len, own)) == workload.samples() and set().union(*own) == set(range(workload.samples()))
    drawn = _epochs(workload, 0, 2 * len(own[0]) // BATCH)
    first, second = drawn[: len(own[0])], drawn[len(own[0]) :]
    assert set(first.tolist()) == own[0], "an epoch is over when it had all of them"
    assert len(set(second.tolist())) == len(second) and not torch.equal(first[: len(second)], second)


def test_shares_are_skewed_by_label_as_the_partition_says() -> None:
    labels = Digits().labels()

    def kinds(workload: Digits) -> list[int]:
        return [len(labels[_epochs(workload, rank, 60)].unique()) for rank in range(RANKS)]

    assert kinds(Digits(partition=Iid())) == [10] * RANKS
    assert max(kinds(Digits(partition=Shards(shards=1)))) <= 4
    skewed = Digits(partition=Dirichlet(alpha=0.05))
    most = [labels[_epochs(skewed, rank, 60)].bincount().max() / (60 * BATCH) for rank in range(RANKS)]
    assert max(most) > 0.3


def test_without_one_and_alone_all_is_as_ever() -> None:
    plain, divided = Digits(), Digits(partition=Iid())
    asked = {"batch_size": BATCH, "seed": 3}
    for step in (0, 7, 500):
        alone = [one.numbers(step, rank=0, world_size=1, **asked) for one in (plain, divided)]
        assert torch.equal(*alone)
        both = [one.numbers(step, rank=1, world_size=2, **asked) for one in (plain, divided)]
        assert not torch.equal(*both)


def test_another_seed_another_rank_or_another_number_of_ranks_is_another_part() -> None:
    workload = Digits(partition=Dirichlet(alpha=0.3))
    first = _epochs(workload, 0, 1)
    assert not torch.equal(first, _epochs(workload, 0, 1, seed=1))
    assert not torch.equal(first, _epochs(workload, 1, 1))
    assert torch.equal(first, _epochs(workload, 0, 1))


def test_what_is_held_out_is_in_no_part() -> None:
    workload = Blocks(partition=Iid())
    asked = {"world_size": 2, "batch_size": 64, "seed": 0}
    workload.numbers(0, rank=0, **asked)
    workload.hold_out(200, 1)
    left = set(workload.left().tolist())
    steps = len(left) // 64 + 1
    for rank in range(2):
        assert set(torch.cat([workload.numbers(step, rank=rank, **asked) for step in range(steps)]).tolist()) <= left


def test_what_cannot_be_divided_so_is_refused() -> None:
    with pytest.raises(ValueError, match="partition=dirichlet: must be a Partition"):
        Digits(partition="dirichlet")  # type: ignore[arg-type]
    workload = Digits(partition=Iid(least=1000))
    with pytest.raises(InputError, match=r"workload\.partition: clients=4"):
        _epochs(workload, 0, 1)


@pytest.mark.parametrize("strategy", ["federated", "fedbuff"])
def test_clients_have_samples_by_the_strategy_alone(strategy: str) -> None:
    asked = "workload.partition={_target_: testbed.worker.data.partitions.Iid}"
    served = resolve(["topo=star", f"strategy={strategy}", "workload=digits", "workers=3", asked], emulated=True)
    with pytest.raises(InputError, match=r"leave workload\.partition out"):
        build_parts(served.spec)
    plain = resolve(["topo=star", "strategy=ddp", "workload=digits", "workers=3", asked], emulated=True)
    assert isinstance(build_parts(plain.spec).workload, Digits)
