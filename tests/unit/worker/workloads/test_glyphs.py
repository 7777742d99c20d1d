from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from testbed.core.errors import InputError
from testbed.worker.data import glyph_images
from testbed.worker.data.glyph_fonts import FACES, PACKAGES
from testbed.worker.workloads import glyphs
from testbed.worker.workloads.glyphs import Glyphs

ROOT = Path(__file__).resolve().parents[4]
SHA256 = "04a9db6fbdfb34e5c18f6e2c43790c1c24409e2a6ccfaaddba9e5320ffe14c09"
"""Of the images that docstring and documentation speak of."""


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.fonts
def test_the_images_are_those_that_were_measured_and_the_spec_is_told() -> None:
    assert Glyphs().data_hash() == glyph_images.glyph_images().sha256 == SHA256
    for pixels, labels in (glyph_images.glyph_images().train, glyph_images.glyph_images().test):
        assert pixels.shape == (len(labels), 32, 32)
        counts = np.bincount(labels, minlength=len(glyph_images.CHARACTERS))
        assert counts.min() > 0.7 * counts.mean()
    assert len(set(glyph_images.CHARACTERS)) == len(glyph_images.CHARACTERS) == 45


@pytest.mark.fonts
def test_training_and_test_images_are_drawn_apart() -> None:
    train, test = glyph_images.glyph_images().train[0], glyph_images.glyph_images().test[0]
    assert len(train) == 40_000 == Glyphs().samples()
    assert len(test) == 10_000
    assert not {row.tobytes() for row in train} & {row.tobytes() for row in test}


@pytest.mark.fonts
def test_a_cache_is_used_checked_and_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.arange(6 * 1025, dtype=np.uint32).astype(np.uint8).reshape(6, 1025)
    rendered = []

    def render(part: str, count: int) -> glyph_images.Bytes:
        rendered.append(part)
        return rows[:count]

    monkeypatch.setattr(glyph_images, "_render", render)
    monkeypatch.setattr(glyph_images, "TRAIN_IMAGES", 4)
    monkeypatch.setattr(glyph_images, "TEST_IMAGES", 2)
    cache = tmp_path / ".cache" / "glyphs"

    def get() -> glyph_images.GlyphImages:
        glyph_images.glyph_images.cache_clear()
        return glyph_images.glyph_images(cache)

    try:
        first = get()
        assert get().sha256 == first.sha256
        assert rendered == ["train", "test"]
        (kept,) = cache.iterdir()
        kept.write_bytes(kept.read_bytes()[:-1] + b"\xff")
        assert get().sha256 == first.sha256
        assert len(rendered) == 4
        kept.unlink()
        (cache / "older-0.npy").write_bytes(b"")
        get()
        assert len(rendered) == 6
        assert [path.name for path in cache.iterdir()] == [kept.name]
    finally:
        glyph_images.glyph_images.cache_clear()


@pytest.mark.fonts
def test_images_need_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glyph_images, "TRAIN_IMAGES", 2)
    monkeypatch.setattr(glyph_images, "TEST_IMAGES", 2)
    monkeypatch.setattr(glyph_images, "UNSEEN_IMAGES", 1)
    glyph_images.glyph_images.cache_clear()
    try:
        assert glyph_images.glyph_images(Path("/proc/nowhere/glyphs")).train[0].shape == (2, 32, 32)
    finally:
        glyph_images.glyph_images.cache_clear()


@pytest.mark.fonts
def test_every_font_that_is_missing_or_another_is_named_with_its_package(tmp_path: Path) -> None:
    for face in FACES[2:]:
        (tmp_path / face.file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / face.file).symlink_to(glyph_images.FOLDER / face.file)
    other = tmp_path / FACES[0].file
    other.parent.mkdir(parents=True, exist_ok=True)
    other.write_bytes(b"another font")
    changed, missing = glyph_images.font_faults(tmp_path)
    assert str(other) in changed and FACES[0].sha256[:16] in changed and "fonts-dejavu-core" in changed
    assert str(tmp_path / FACES[1].file) in missing and "No such file" in missing and "make setup" in missing
    assert Glyphs().validate() == glyph_images.font_faults() == []


def test_without_its_fonts_nothing_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glyph_images, "font_faults", lambda: ["font a: gone", "font b: gone"])
    glyph_images.glyph_images.cache_clear()
    try:
        with pytest.raises(InputError) as caught:
            glyph_images.glyph_images(tmp_path)
    finally:
        glyph_images.glyph_images.cache_clear()
    assert caught.value.faults == ("workload glyphs: font a: gone", "workload glyphs: font b: gone")


def test_setup_installs_all_fonts() -> None:
    setup = (ROOT / "scripts" / "setup.sh").read_text()
    wanted = setup[setup.index("PACKAGES=") : setup.index("PYTHON=")]
    assert set(PACKAGES.values()) <= set(wanted.replace('"', " ").split())
    assert {face.file.split("/")[1] for face in FACES} == PACKAGES.keys()


@pytest.mark.fonts
def test_a_global_batch_does_not_depend_on_the_number_of_workers() -> None:
    workload, whole = Glyphs(), Glyphs()
    for step in (0, 312, 313):  # an epoch ends after 312.5 steps
        parts = [workload.batch(step, rank=rank, world_size=4, batch_size=32, seed=7) for rank in range(4)]
        pixels, labels = whole.batch(step, rank=0, world_size=1, batch_size=128, seed=7)
        assert torch.equal(torch.cat([part[0] for part in parts]), pixels)
        assert torch.equal(torch.cat([part[1] for part in parts]), labels)


@pytest.mark.fonts
def test_an_epoch_covers_every_image_once() -> None:
    _, labels = glyph_images.glyph_images().train
    drawn = [
        Glyphs().batch(0, rank=rank, world_size=4, batch_size=10_000, seed=3)[1].bincount(minlength=45)
        for rank in range(4)
    ]
    assert sum(drawn).tolist() == np.bincount(labels, minlength=45).tolist()


def test_the_model_follows_from_the_seed_alone() -> None:
    torch.manual_seed(1)
    first = Glyphs().model(5)
    torch.manual_seed(2)
    second = Glyphs().model(5)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert sum(p.numel() for p in first.parameters()) == 332_525
    assert not list(first.buffers())
    assert not torch.equal(next(Glyphs().model(6).parameters()), next(first.parameters()))


@pytest.mark.fonts
def test_the_loss_falls_and_evaluation_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    train, (pixels, labels) = glyphs._data()
    monkeypatch.setattr(glyphs, "_data", lambda: (train, (pixels[:500], labels[:500])))
    workload = Glyphs()
    model = workload.model(0)
    optimizer = workload.optimizer(model.parameters())
    torch_state = torch.get_rng_state()
    fixed = workload.batch(0, rank=0, world_size=1, batch_size=64, seed=0)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = workload.loss(model, fixed)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    before = [p.detach().clone() for p in model.parameters()]
    accuracy = workload.evaluate(model)
    assert 1 / 45 < accuracy < 0.9
    assert workload.evaluate(model) == accuracy == round(accuracy * 500) / 500
    assert model.training
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert torch.equal(torch.get_rng_state(), torch_state)


def test_parameters_out_of_range_are_refused_together() -> None:
    with pytest.raises(ValueError, match="learning_rate=0: must be above 0") as caught:
        Glyphs(learning_rate=0, momentum=1)
    assert "momentum=1: must be in [0, 1)" in str(caught.value)
