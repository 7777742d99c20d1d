from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from testbed.worker.data.pretrained.weights import Recipe, State, pretrained, trained_weights, weights_hash
from testbed.worker.model.chain import Chain
from tests.unit.worker.chained import chain, inputs, loss, picked

RECIPE = Recipe(name="small", steps=3, batch_size=8, learning_rate=0.01, seed=5, data="none", source=Path(__file__))


class Counted:
    """How often something was trained."""

    def __init__(self) -> None:
        self.models = 0

    def make(self, random: torch.Generator) -> Chain:
        self.models += 1
        return chain(int(torch.randint(1000, (), generator=random)))

    def loss(self, model: nn.Module, random: torch.Generator) -> Tensor:
        return loss(model, picked(torch.randint(len(inputs()), (8,), generator=random)))

    def get(self, folder: Path, recipe: Recipe = RECIPE) -> State:
        return pretrained(recipe, self.make, self.loss, folder / ".cache" / "pretrained")


def test_weights_follow_from_the_recipe_alone_and_the_head_is_not_among_them() -> None:
    counted = Counted()
    torch.manual_seed(1)
    first = trained_weights(RECIPE, counted.make, counted.loss)
    torch.manual_seed(2)
    second = trained_weights(RECIPE, counted.make, counted.loss)
    assert weights_hash(first) == weights_hash(second)
    assert "readout.norm.weight" in first and "layers.0.attend.weight" in first
    assert not any(name.startswith("readout.head") for name in first)
    other = trained_weights(dataclasses.replace(RECIPE, seed=6), counted.make, counted.loss)
    assert weights_hash(other) != weights_hash(first)


def test_the_number_of_threads_is_as_it_was() -> None:
    before = torch.get_num_threads()
    trained_weights(RECIPE, Counted().make, Counted().loss)
    assert torch.get_num_threads() == before


def test_what_was_trained_is_kept_checked_and_replaced(tmp_path: Path) -> None:
    counted = Counted()
    first = counted.get(tmp_path)
    assert weights_hash(counted.get(tmp_path)) == weights_hash(first) and counted.models == 1
    (kept,) = (tmp_path / ".cache" / "pretrained").glob("*.pt")
    kept.write_bytes(kept.read_bytes()[:-10])
    assert weights_hash(counted.get(tmp_path)) == weights_hash(first) and counted.models == 2
    changed = torch.load(kept, weights_only=True)
    changed["layers.0.attend.weight"][0, 0] += 1
    torch.save(changed, kept)
    assert weights_hash(counted.get(tmp_path)) == weights_hash(first) and counted.models == 3
    another = dataclasses.replace(RECIPE, steps=4)
    assert weights_hash(counted.get(tmp_path, another)) != weights_hash(first) and counted.models == 4
    assert [path.name.split("-")[1] for path in kept.parent.glob("*.pt")] == [another.key]


def test_weights_need_no_cache() -> None:
    counted = Counted()
    assert counted.get(Path("/proc/nowhere")) and counted.models == 1


@pytest.mark.parametrize(
    "change", [{"steps": 4}, {"learning_rate": 0.02}, {"data": "other"}, {"seed": 1}, {"name": "x"}]
)
def test_another_recipe_has_another_key(change: dict[str, object]) -> None:
    assert dataclasses.replace(RECIPE, **change).key != RECIPE.key  # type: ignore[arg-type]


def test_the_learning_rate_rises_and_falls_to_nothing() -> None:
    recipe = dataclasses.replace(RECIPE, steps=200, learning_rate=1.0)
    assert [recipe.rate(step) for step in (0, 24, 49, 100, 150, 199)] == pytest.approx([0.02, 0.5, 1, 1, 0.5, 0.01])
