"""Timelines of models that libraries build: by hooks, in the order of the step, and refused where they do not fit."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from testbed.core.device.timelines.timeline_file import timeline_of
from testbed.core.errors import InputError
from testbed.core.models.model import Layer, Model
from testbed.worker.profile import library_models
from testbed.worker.profile.measured_timeline import measure_timeline

CPU = torch.device("cpu")
TABLE = Model(
    "resnet18", (Layer("a", ((4, 3, 1, 1), (4,)), 1.0), Layer("b", ((2, 4), (2,)), 1.0)), 26, None, "6 x 6", ""
)


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 4, 1), nn.Linear(4, 1000)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.b(self.a(images).mean((2, 3)))
        return found


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    models = SimpleNamespace(resnet18=Small)
    fake = SimpleNamespace(__name__="torchvision", __version__="0", models=models)
    monkeypatch.setattr(library_models, "_loaded", lambda *_: fake)


@pytest.mark.usefixtures("library")
def test_a_step_is_measured_by_layer() -> None:
    layers = (TABLE.layers[0], Layer("b", ((1000, 4), (1000,)), 1.0))
    found = measure_timeline(Model("resnet18", layers, 5016, None, "6 x 6 pixels", ""), 2, CPU, "fp32")
    assert timeline_of(json.loads(json.dumps(found.to_json())), "found") == found
    assert [name for name, *_ in found.forward_start_s] == ["a", "b"]
    assert {name for name, *_ in found.gradient_ready_s[:2]} == {"b.weight", "b.bias"}
    assert {(name, shape) for name, shape, _ in found.gradient_ready_s} == {
        ("a.weight", (4, 3, 1, 1)),
        ("a.bias", (4,)),
        ("b.weight", (1000, 4)),
        ("b.bias", (1000,)),
    }


@pytest.mark.usefixtures("library")
def test_a_model_of_other_tensors_is_refused_by_name() -> None:
    with pytest.raises(InputError) as error:
        measure_timeline(TABLE, 2, CPU, "fp32")
    assert any("1 tensors of shape (4, 1000)" in fault and "b.weight" in fault for fault in error.value.faults)


def test_a_model_without_a_library_and_a_precision_without_a_device_are_refused() -> None:
    with pytest.raises(InputError, match="no library has it"):
        measure_timeline(Model("ncf", TABLE.layers, 26, None, "a user", ""), 2, CPU, "fp32")
    with pytest.raises(InputError, match="tf32 needs an accelerator"):
        measure_timeline(TABLE, 2, CPU, "tf32")


def test_a_library_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError(f"No module named '{name}'")

    monkeypatch.setattr(library_models.importlib, "import_module", absent)
    with pytest.raises(InputError, match=r"torchvision is needed .* pip install -r requirements/models.txt"):
        measure_timeline(TABLE, 2, CPU, "fp32")


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("sample", ["3 x 6 x 6 pixels", "6x6", "6 x 8 pixels", ""])
def test_samples_that_a_library_s_model_does_not_take_are_refused(sample: str) -> None:
    table = Model("resnet18", (TABLE.layers[0], Layer("b", ((1000, 4), (1000,)), 1.0)), 5016, None, sample, "")
    with pytest.raises(InputError, match="must be 'N x N pixels'"):
        measure_timeline(table, 2, CPU, "fp32")
