from __future__ import annotations

import dataclasses
import json
import math

import pytest
import torch
from torch import Tensor

from testbed.core.models.catalogue import find_model
from testbed.worker.data.drawn_tensors import add_drawn
from testbed.worker.data.textures import (
    CHANGE,
    FILE,
    KINDS,
    LINEAR,
    MEASURED_STEPS,
    NORMAL,
    WEIGHTS,
    Texture,
    family_of,
    texture_of,
)

PLAIN = Texture(1.0, 0.5, False, 0.0, 0.0, 0.0, (0.0, 0.0, 0.0), 0.0, NORMAL)


def drawn(texture: Texture, *, rows: int = 256, columns: int = 512, own: str = "0") -> Tensor:
    out = torch.zeros(rows, columns)
    add_drawn(out, texture, columns=columns, scale=1.0, common="tensor/round", own=own)
    return out


def rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt())


def test_values_follow_from_their_keys() -> None:
    first = drawn(PLAIN, own="a")
    assert torch.equal(first, drawn(PLAIN, own="a"))
    assert abs(float(torch.cosine_similarity(first.view(-1), drawn(PLAIN, own="b").view(-1), dim=0))) < 0.02
    assert rms(first) == pytest.approx(1, rel=0.01)
    assert float(first.pow(4).mean()) == pytest.approx(3, rel=0.05)  # normal, as its quantiles say


def test_rows_and_columns_have_factors_that_last() -> None:
    texture = dataclasses.replace(PLAIN, row_spread=0.5, column_spread=0.2)
    rows = [drawn(texture, own=own).square().mean(1).log() / 2 for own in "ab"]
    assert float(rows[0].std()) == pytest.approx(0.5, rel=0.15)
    assert float(torch.corrcoef(torch.stack(rows))[0, 1]) > 0.95
    columns = drawn(texture).square().mean(0).log() / 2
    assert float(columns.std()) == pytest.approx(0.2, rel=0.3)


def test_ranks_share_a_part_of_what_has_low_rank() -> None:
    texture = dataclasses.replace(PLAIN, shares=(0.3, 0.2, 0.1), agreement=0.5)
    first, second = drawn(texture, own="a"), drawn(texture, own="b")
    assert rms(first) == pytest.approx(1, rel=0.1)
    energy = torch.linalg.svdvals(first).square()
    energy /= energy.sum()
    for end, share in ((1, 0.3), (4, 0.5), (16, 0.6)):
        assert float(energy[:end].sum()) == pytest.approx(share, abs=0.1)  # noise has some too
    assert float(torch.cosine_similarity(first.view(-1), second.view(-1), dim=0)) == pytest.approx(0.3, abs=0.06)


def test_a_tensor_that_was_cut_keeps_the_length_of_its_rows() -> None:
    out = torch.zeros(1000)
    add_drawn(out, PLAIN, columns=300, scale=1.0, common="t/r", own="o")
    assert float((out == 0).double().mean()) < 0.01 and rms(out) == pytest.approx(1, rel=0.1)
    before = out.clone()
    add_drawn(out, PLAIN, columns=300, scale=1.0, common="t/r", own="o")
    assert torch.equal(out, 2 * before)  # added, not put


def test_changes_grow_with_local_steps_and_long_rows_change_less() -> None:
    assert PLAIN.scale(4 * MEASURED_STEPS[0], 64) == pytest.approx(2)
    assert dataclasses.replace(PLAIN, per_input=True).scale(MEASURED_STEPS[0], 64) == pytest.approx(1 / 8)


@pytest.mark.parametrize("what", [CHANGE, WEIGHTS])
@pytest.mark.parametrize("family", ["texts", "fashion"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_measured_is_a_texture(what: str, family: str, kind: str) -> None:
    texture = texture_of(what, family, kind)
    assert texture.rms > 0 and 0 <= texture.agreement <= 1 and 0 <= sum(texture.shares) < 1
    assert list(texture.quantiles) == sorted(texture.quantiles)
    assert (texture.growth > 0.4) is (what == CHANGE)
    assert rms(drawn(texture)) == pytest.approx(math.exp(texture.spread * _tensors_own()), rel=0.25)


def _tensors_own() -> float:
    """Return the logarithm of the tensor's own size, in units of the spread."""
    narrow = dataclasses.replace(PLAIN, spread=1e-3)
    return math.log(rms(drawn(narrow)) / rms(drawn(PLAIN))) / 1e-3


def test_the_file_says_where_it_comes_from() -> None:
    found = json.loads(FILE.read_text())
    assert found["provenance"]["local_steps"] == list(MEASURED_STEPS)
    assert {row["of"] for row in found["textures"]} == {"texts", "fashion"}
    assert texture_of(CHANGE, "texts", LINEAR) != texture_of(CHANGE, "fashion", LINEAR)


@pytest.mark.parametrize(
    ("model", "family"), [("resnet50", "fashion"), ("vgg16", "fashion"), ("bert-base", "texts"), ("vit-b", "texts")]
)
def test_convolutional_networks_take_the_textures_of_one(model: str, family: str) -> None:
    assert family_of(find_model(model)) == family
