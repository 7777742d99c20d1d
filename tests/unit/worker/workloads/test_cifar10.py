from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from testbed.core.errors import EXIT_COMPLETED, EXIT_INPUT, InputError
from testbed.core.spec.run_spec import Part, RunSpec
from testbed.worker.process.check import check
from testbed.worker.workloads import cifar10
from testbed.worker.workloads.cifar10 import RECORD_BYTES, TEST_FILE, TRAIN_FILES, Cifar10
from topologies import lan

NAMES = (*TRAIN_FILES, TEST_FILE)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of the format with 8 images each: a bright square, whose place is the label, on noise."""
    random = np.random.default_rng(0)
    for name in NAMES:
        labels = random.integers(0, 10, 8, dtype=np.uint8)
        pixels = random.integers(0, 60, (8, 3, 32, 32), dtype=np.uint8)
        for image, label in zip(pixels, labels, strict=True):
            image[:, 3 * label : 3 * label + 4, 8:24] = 255
        (tmp_path / name).write_bytes(np.concatenate([labels[:, None], pixels.reshape(8, -1)], axis=1).tobytes())
    return tmp_path


def checked(params: dict[str, object]) -> tuple[int, dict[str, object]]:
    spec = RunSpec(
        topology=lan.build(workers=4),
        workload=Part("cifar10", "testbed.worker.workloads.cifar10.Cifar10", params),
        strategy=Part("ddp", "testbed.worker.strategies.ddp.DDP"),
        compressor=Part("none", "compressors.none.Uncompressed"),
        device=Part("native", "testbed.core.device.Native"),
        steps=2,
    )
    sink = io.StringIO()
    status = check(io.StringIO(json.dumps(spec.to_json())), sink)
    return status, json.loads(sink.getvalue())


def test_records_are_read_as_the_format_has_them(folder: Path) -> None:
    record = (folder / TRAIN_FILES[1]).read_bytes()[2 * RECORD_BYTES : 3 * RECORD_BYTES]
    pixels, labels = cifar10._data(folder)[0]
    assert labels[10] == record[0]
    red, green, blue = (bytes(channel.flatten().tolist()) for channel in pixels[10])
    assert red + green + blue == record[1:]
    assert pixels.shape == (40, 3, 32, 32) and Cifar10(path=str(folder)).samples() == 40


def test_every_bad_file_is_named_before_anything_is_built(folder: Path) -> None:
    (folder / "data_batch_1.bin").unlink()
    (folder / "data_batch_3.bin").write_bytes(bytes(RECORD_BYTES + 1))
    (folder / "test_batch.bin").write_bytes(b"")
    status, answer = checked({"path": str(folder)})
    key = f"workload.path={folder}:"
    assert (status, answer["faults"]) == (
        EXIT_INPUT,
        [
            f"{key} data_batch_1.bin is missing",
            f"{key} data_batch_3.bin has {RECORD_BYTES + 1} bytes, not one or more records of {RECORD_BYTES} bytes",
            f"{key} test_batch.bin has 0 bytes, not one or more records of {RECORD_BYTES} bytes",
        ],
    )
    with pytest.raises(InputError, match=r"data_batch_1\.bin is missing"):
        Cifar10(path=str(folder)).preload()


def test_labels_are_checked(folder: Path) -> None:
    data = bytearray((folder / "data_batch_2.bin").read_bytes())
    data[RECORD_BYTES] = 10
    (folder / "data_batch_2.bin").write_bytes(data)
    status, answer = checked({"path": str(folder)})
    expected = f"workload.path={folder}: data_batch_2.bin has a label of 10; labels are from 0 to 9"
    assert (status, answer["faults"]) == (EXIT_INPUT, [expected])


def test_a_folder_must_be_given_and_exist(tmp_path: Path) -> None:
    for path in (None, "cifar-10-batches-bin", 3):
        assert f"workload.path={path}: must be the absolute path" in str(checked({"path": path})[1]["faults"])
    (fault,) = checked({"path": str(tmp_path / "none")})[1]["faults"]  # type: ignore[misc, attr-defined]
    assert "no such folder" in str(fault)


def test_a_good_folder_passes_and_its_hash_is_told(folder: Path) -> None:
    status, answer = checked({"path": str(folder)})
    assert (status, answer["faults"], answer["parameters"]) == (EXIT_COMPLETED, [], 269_722)
    assert answer["data_hash"] == Cifar10(path=str(folder)).data_hash()


def test_a_global_batch_does_not_depend_on_the_number_of_workers(folder: Path) -> None:
    workload, whole = Cifar10(path=str(folder)), Cifar10(path=str(folder))
    for step in (0, 2, 3):  # an epoch ends after 2.5 steps
        parts = [workload.batch(step, rank=rank, world_size=4, batch_size=4, seed=7) for rank in range(4)]
        images, labels = whole.batch(step, rank=0, world_size=1, batch_size=16, seed=7)
        assert torch.equal(torch.cat([part[0] for part in parts]), images)
        assert torch.equal(torch.cat([part[1] for part in parts]), labels)


def test_an_epoch_covers_every_image_once(folder: Path) -> None:
    parts = [Cifar10(path=str(folder)).batch(0, rank=rank, world_size=4, batch_size=10, seed=3) for rank in range(4)]
    expected = cifar10._data(folder)[0][1]
    assert torch.cat([labels for _, labels in parts]).sort().values.tolist() == expected.sort().values.tolist()
    assert torch.equal(Cifar10(path=str(folder)).labels(), expected)


def test_crops_and_mirrors_are_those_drawn() -> None:
    image = torch.arange(3 * 32 * 32).remainder(251).to(torch.uint8).view(1, 3, 32, 32)

    def cropped(top: int, left: int, mirrored: int) -> torch.Tensor:
        return cifar10._cropped(image, torch.tensor([[top, left, mirrored]]))

    assert torch.equal(cropped(4, 4, 0), image)
    assert torch.equal(cropped(4, 4, 1), image.flip(3))
    assert torch.equal(cropped(8, 4, 0)[:, :, :28], image[:, :, 4:])
    assert torch.equal(cropped(4, 0, 0)[:, :, :, 4:], image[:, :, :, :28])
    draws = cifar10._draws(0, 0, 4096)
    assert torch.equal(draws, cifar10._draws(0, 0, 4096))
    assert not torch.equal(draws, cifar10._draws(0, 1, 4096))
    assert not torch.equal(draws, cifar10._draws(1, 0, 4096))
    assert draws.amax(dim=0).tolist() == [8, 8, 1] and draws.amin(dim=0).tolist() == [0, 0, 0]


def test_the_model_is_the_papers_and_follows_from_the_seed_alone() -> None:
    workload = Cifar10(path="/unread")
    torch.manual_seed(1)
    first = workload.model(5)
    torch.manual_seed(2)
    second = workload.model(5)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    weights = [module for module in first.modules() if isinstance(module, torch.nn.Conv2d | torch.nn.Linear)]
    assert len(weights) == 20
    # 0.27 million, as section 4.2 says
    assert sum(p.numel() for p in first.parameters()) == 269_722
    assert not list(first.buffers())


@pytest.mark.tier("all")
def test_the_loss_falls_and_evaluation_changes_nothing(folder: Path) -> None:
    workload = Cifar10(path=str(folder), learning_rate=0.05)
    model = workload.model(0)
    optimizer = workload.optimizer(model.parameters())
    state = torch.get_rng_state()
    losses = []
    for step in range(20):
        optimizer.zero_grad()
        loss = workload.loss(model, workload.batch(step, rank=0, world_size=1, batch_size=20, seed=0))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert min(losses[-4:]) < 0.8 * losses[0]
    before = [p.detach().clone() for p in model.parameters()]
    accuracy = workload.evaluate(model)
    assert accuracy == workload.evaluate(model)
    assert accuracy * 8 == int(accuracy * 8)
    assert model.training
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert torch.equal(torch.get_rng_state(), state)


def test_parameters_out_of_range_are_refused_together() -> None:
    with pytest.raises(ValueError, match="path=None: must be the absolute path") as caught:
        Cifar10(path=None, learning_rate=0, momentum=1, weight_decay=-1)  # type: ignore[arg-type]
    for fault in ("learning_rate=0: must", "momentum=1: must", "weight_decay=-1: must"):
        assert fault in str(caught.value)
