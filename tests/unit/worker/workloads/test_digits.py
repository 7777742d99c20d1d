from __future__ import annotations

import pytest
import torch

from testbed.core.errors import InputError
from testbed.worker.interfaces.numbered_workload import Shuffle
from testbed.worker.workloads.digits import Digits


@pytest.mark.parametrize("world_size", [1, 3, 4])
def test_shards_are_disjoint_and_cover_an_epoch(world_size: int) -> None:
    shuffle = Shuffle(96, seed=1)
    steps = 96 // (8 * world_size)
    drawn = [
        shuffle.indices(step, rank=rank, world_size=world_size, batch_size=8)
        for step in range(steps)
        for rank in range(world_size)
    ]
    assert torch.cat(drawn).sort().values.tolist() == list(range(96))


def test_an_epoch_need_not_end_with_a_batch() -> None:
    shuffle = Shuffle(10, seed=0)
    drawn = torch.cat([shuffle.indices(step, rank=0, world_size=1, batch_size=4) for step in range(5)])
    assert drawn[:10].sort().values.tolist() == list(range(10)) == drawn[10:].sort().values.tolist()
    assert drawn[:10].tolist() != drawn[10:].tolist()


def test_what_is_held_out_is_trained_on_by_nobody_and_the_rest_is_as_ever() -> None:
    digits, again = Digits(), Digits()
    images, labels = digits.hold_out(37, seed=3)
    assert len(images) == len(labels) == 37
    assert torch.equal(again.hold_out(37, seed=3)[0], images) and not torch.equal(again.hold_out(37, 4)[0], images)
    left = {image.numpy().tobytes() for image in digits.batch(0, rank=0, world_size=1, batch_size=1400, seed=0)[0]}
    everything = Digits().batch(0, rank=0, world_size=1, batch_size=1437, seed=0)[0]
    kept = {image.numpy().tobytes() for image in images}
    assert not left & kept and left | kept == {image.numpy().tobytes() for image in everything}
    two = [digits.batch(20, rank=rank, world_size=2, batch_size=50, seed=0)[0] for rank in range(2)]
    assert torch.equal(torch.cat(two), digits.batch(20, rank=0, world_size=1, batch_size=100, seed=0)[0])
    with pytest.raises(InputError, match="1437 samples cannot be held out of 1437"):
        digits.hold_out(1437, seed=0)


def test_a_global_batch_does_not_depend_on_the_number_of_workers() -> None:
    digits, whole = Digits(), Digits()
    for step in (0, 9, 11, 30):
        parts = [digits.batch(step, rank=rank, world_size=4, batch_size=32, seed=7) for rank in range(4)]
        images, labels = whole.batch(step, rank=0, world_size=1, batch_size=128, seed=7)
        assert torch.equal(torch.cat([part[0] for part in parts]), images)
        assert torch.equal(torch.cat([part[1] for part in parts]), labels)


def test_seeds_and_steps_give_other_batches() -> None:
    def labels(step: int, seed: int) -> list[int]:
        return Digits().batch(step, rank=0, world_size=1, batch_size=64, seed=seed)[1].tolist()

    assert labels(0, 0) == labels(0, 0)
    assert labels(0, 0) != labels(1, 0)
    assert labels(0, 0) != labels(0, 1)


def test_the_model_follows_from_the_seed_alone() -> None:
    torch.manual_seed(1)
    first = Digits().model(5)
    torch.manual_seed(2)
    second = Digits().model(5)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert sum(p.numel() for p in first.parameters()) == 1_091_466
    other = next(iter(Digits().model(6).parameters()))
    assert not torch.equal(other, next(iter(first.parameters())))


def test_the_loss_falls_on_one_process_and_evaluation_leaves_the_model_training() -> None:
    workload = Digits()
    model = workload.model(0)
    optimizer = workload.optimizer(model.parameters())
    before = workload.evaluate(model)
    losses = []
    for step in range(20):
        optimizer.zero_grad()
        loss = workload.loss(model, workload.batch(step, rank=0, world_size=1, batch_size=64, seed=0))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert workload.evaluate(model) > max(before, 0.7)
    assert model.training
    assert workload.samples() == 1437
