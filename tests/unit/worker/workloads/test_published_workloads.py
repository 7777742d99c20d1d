"""Workloads on published data: on invented data everywhere, and on the real ones where they can be had."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from testbed.worker.data.published.byte_model import MAX_PARAMETERS, ByteModel, parameters_of
from testbed.worker.data.published.documents import CONTEXT, packed
from testbed.worker.data.published.next_byte import NextByte
from testbed.worker.interfaces.numbered_workload import NumberedWorkload
from testbed.worker.interfaces.workload_capabilities import licence
from testbed.worker.model import pieces
from testbed.worker.workloads import fashion
from testbed.worker.workloads.fashion import Fashion
from testbed.worker.workloads.speakers import Speakers
from testbed.worker.workloads.texts import Texts
from tests.published_data import invented, require_data


@pytest.fixture
def clothes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fashion]:
    """Sixty images to train on and ten to test on, whose class is where they are bright."""
    rows = np.zeros((70, 785), dtype=np.uint8)
    rows[:, 0] = np.arange(70) % 10
    for row in rows:
        row[1:].reshape(28, 28)[:, 2 * row[0] : 2 * row[0] + 4] = 255
    monkeypatch.setattr(fashion, "TRAIN_IMAGES", 60)
    with invented(rows):
        yield Fashion()


@pytest.fixture
def roles(monkeypatch: pytest.MonkeyPatch) -> Iterator[Speakers]:
    """Three roles with ten, five and one samples."""
    documents = ["ab" * (5 * CONTEXT) + "a", "cd" * (5 * CONTEXT // 2) + "c", "e" * (CONTEXT + 1)]
    monkeypatch.setattr(Speakers, "_samples", 16)
    with invented(packed(documents, "ab" * 20_000)):
        yield Speakers(width=16, blocks=1)


def _learn(workload: NumberedWorkload, steps: int) -> float:
    model = workload.model(0)
    optimizer = workload.optimizer(model.parameters())
    for step in range(steps):
        batch = workload.batch(step, rank=0, world_size=1, batch_size=8, seed=0)
        optimizer.zero_grad()
        workload.loss(model, batch).backward()
        optimizer.step()
    assert model.training
    found = workload.evaluate(model)
    assert model.training
    return found


def test_clothes_are_told_apart(clothes: Fashion) -> None:
    assert clothes.samples() == 60 and clothes.labels().tolist() == [number % 10 for number in range(60)]
    images, classes = clothes.picked(torch.tensor([3, 59]))
    assert images.shape == (2, 1, 28, 28) and classes.tolist() == [3, 9]
    assert images.unique().tolist() == pytest.approx([-72.9 / 90, (255 - 72.9) / 90])
    assert _learn(clothes, 40) > 0.9


def test_the_next_byte_is_learnt(roles: Speakers) -> None:
    assert roles.labels().tolist() == [0] * 10 + [1] * 5 + [2]
    assert {bytes(row.tolist()) for row in roles.picked(torch.tensor([0, 9]))} == {b"ab" * (CONTEXT // 2) + b"a"}
    assert _learn(roles, 1) > 4.0 > 1.0 > _learn(roles, 40)


@pytest.mark.parametrize("kind", ["clothes", "roles"])
def test_losses_of_samples_and_the_chain_are_those_of_the_model(kind: str, request: pytest.FixtureRequest) -> None:
    workload = request.getfixturevalue(kind)
    model, batch = workload.model(1), workload.batch(0, rank=0, world_size=1, batch_size=8, seed=0)
    loss = workload.loss(model, batch)
    assert float(workload.sample_losses(model, batch).mean().detach()) == pytest.approx(float(loss.detach()))
    chain = workload.pieces(model)
    assert not list(pieces.faults(model, chain))
    hidden = workload.inputs(batch)
    for piece in chain:
        hidden = piece.module(hidden)
    assert torch.equal(workload.loss_of(hidden, batch), loss)


@pytest.mark.parametrize("workload", [Fashion(), Texts(), Speakers()], ids=["fashion", "texts", "speakers"])
def test_a_model_follows_from_the_seed_alone(workload: NumberedWorkload) -> None:
    first, again, other = (list(workload.model(seed).parameters()) for seed in (3, 3, 4))
    assert all(map(torch.equal, first, again)) and not all(map(torch.equal, first, other))
    assert sum(p.numel() for p in first) == (216_506 if isinstance(workload, Fashion) else 261_856)
    assert not any(p.isnan().any() for p in first)


def test_a_byte_sees_none_that_follow() -> None:
    model = Texts().model(0)
    text = torch.randint(128, (1, CONTEXT), generator=torch.Generator().manual_seed(0))
    changed = text.clone()
    changed[0, 40:] += 1
    changed %= 128
    same = (model(text) - model(changed)).abs().amax(dim=2)[0] < 1e-5
    assert same[:40].all() and not same[40:].any()


@pytest.mark.parametrize(("width", "blocks"), [(96, 2), (16, 1), (160, 4)])
def test_parameters_are_counted_before_the_model_is_made(width: int, blocks: int) -> None:
    assert parameters_of(width, blocks) == sum(p.numel() for p in ByteModel(width, blocks).parameters())


def test_a_model_may_have_a_million_and_a_half_parameters() -> None:
    assert 1_000_000 < parameters_of(196, 3) < MAX_PARAMETERS
    Texts(width=196, blocks=3)
    with pytest.raises(ValueError, match=r"width=512 blocks=2: 6,490,624 parameters; at most 1,500,000"):
        Texts(width=512)
    with pytest.raises(ValueError, match="width=98"):
        Speakers(width=98)


@pytest.mark.parametrize(("norm", "expected"), [(1.0, 1.0), (0.5, 0.5), (None, 10.0)])
def test_gradients_are_clipped_together(norm: float | None, expected: float) -> None:
    parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    optimizer = Texts(optimizer="sgd", learning_rate=1.0, momentum=0.0, clip_norm=norm).optimizer(parameters)
    for parameter, gradient in zip(parameters, (6.0, 8.0), strict=True):
        parameter.grad = torch.tensor([gradient])
    optimizer.step()
    assert float(torch.cat([p.detach() for p in parameters]).norm()) == pytest.approx(expected, rel=1e-5)


_PARTS = {
    "texts": (
        *("1352c376d14c87cb8698846a3210062c2d9eb319b841b1e1199ade1271e79c35", 3_643_546),
        *("ba3e96622f505095d588d885c70dce5cad1944585b275bc9a9bc7f497c1ad572", 356_552),
    ),
    "speakers": (
        *("5c4eb7fc9d5f5eb7ecaca6dcef7b46a7f0ddce44d19d7c6a2a8fdcbcf2237436", 3_438_801),
        *("51f3da137c725c478a6a62bf038fdd0a888ecfa9daaa60ebf987ba23336a991b", 342_613),
    ),
}
"""SHA-256 and size in bytes of the training part and of the test part, as found independently of this code."""


@pytest.mark.tier("all")
@pytest.mark.parametrize(("workload", "documents"), [(Texts(), 244), (Speakers(), 444)], ids=["texts", "speakers"])
def test_published_texts_are_those_expected(workload: NextByte, documents: int) -> None:
    require_data(workload)
    assert workload.to_fetch() is None and workload.data_hash() == workload.dataset.sha256
    training, test = bytes(workload.dataset.array()).split(b"\1")
    parts = training.replace(b"\0", b""), test
    found = [figure for part in parts for figure in (hashlib.sha256(part).hexdigest(), len(part))]
    assert tuple(found) == _PARTS[workload.dataset.name]
    labels = workload.labels()
    assert len(labels) == workload.samples() and labels.unique().tolist() == list(range(documents))


@pytest.mark.tier("all")
def test_published_images_are_those_expected() -> None:
    workload = Fashion()
    require_data(workload)
    assert workload.labels().bincount().tolist() == [6000] * 10
    assert workload.to_fetch() is None and (licence(workload) or "").startswith("MIT")
    assert workload.evaluate(workload.model(0)) < 0.5
