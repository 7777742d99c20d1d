from __future__ import annotations

import math

import pytest

from testbed.core.models.catalogue import MODEL_NAMES, find_model
from testbed.core.models.scaled import scaled


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_a_table_adds_up_to_what_was_published(name: str) -> None:
    model = find_model(name)
    assert model.parameters == model.published_parameters
    if model.published_forward_flop is not None:
        assert model.forward_flop == pytest.approx(model.published_forward_flop, rel=0.02)
    names = [layer.name for layer in model.layers]
    assert len(set(names)) == len(names)
    assert all(size > 0 for shape in model.shapes for size in shape)


@pytest.mark.parametrize(
    ("name", "first", "last", "tensors"),
    [
        ("resnet50", (64, 3, 7, 7), (1000,), 161),
        ("vgg19", (64, 3, 3, 3), (1000,), 38),
        ("bert-base", (30522, 768), (768,), 199),
        ("gpt2", (50257, 768), (768,), 148),
        ("vit-b", (768, 3, 16, 16), (1000,), 152),
        ("swin-t", (96, 3, 4, 4), (1000,), 173),
        ("densenet121", (64, 3, 7, 7), (1000,), 364),
        ("resnet20", (16, 3, 3, 3), (10,), 59),
        ("densenet40", (16, 3, 3, 3), (10,), 119),
        ("lstm", (10_000, 650), (10_000,), 7),
        ("ncf", (138_493, 192), (1,), 10),
    ],
)
def test_tensors_are_those_of_the_usual_implementations(
    name: str, first: tuple[int, ...], last: tuple[int, ...], tensors: int
) -> None:
    shapes = find_model(name).shapes
    assert (shapes[0], shapes[-1], len(shapes)) == (first, last, tensors)


@pytest.mark.parametrize(("name", "millions"), [("resnet20", 0.27), ("densenet40", 1.0)])
def test_networks_for_small_images_are_as_large_as_their_papers_have_them(name: str, millions: float) -> None:
    model = find_model(name)
    assert model.parameters / 1e6 == pytest.approx(millions, rel=0.03)
    assert model.sample == "32 x 32 pixels"


def test_the_biggest_tensor_of_vgg_is_its_first_linear_map() -> None:
    layer = max(find_model("vgg19").layers, key=lambda layer: layer.numel)
    assert layer.name == "fc6"
    assert layer.shapes == ((4096, 25088), (4096,))
    assert layer.forward_flop == 2 * 4096 * 25088


def test_the_work_of_a_language_model_follows_its_sequence() -> None:
    short, long = find_model("bert-base", tokens=64), find_model("bert-base", tokens=128)
    assert short.parameters == long.parameters == find_model("bert-base").parameters
    assert find_model("bert-base") == long
    assert 1.99 < long.forward_flop / short.forward_flop < 2.05  # attention grows by the square
    assert short.published_forward_flop is None
    assert (short.sample, find_model("inception_v4").sample) == ("64 tokens", "299 x 299 pixels")


@pytest.mark.parametrize(("name", "less", "work"), [("resnet18", 3.035, 0.427), ("resnet50", 1.681, 0.864)])
def test_factors_stand_in_the_place_of_their_layer(name: str, less: float, work: float) -> None:
    full, changed = find_model(name), find_model(f"{name}-pufferfish")
    assert full.parameters / changed.parameters == pytest.approx(less, abs=5e-4)
    assert changed.forward_flop / full.forward_flop == pytest.approx(work, abs=5e-4)
    layers = {layer.name: layer for layer in changed.layers}
    order = [layer.name.removesuffix(".u").removesuffix(".v") for layer in changed.layers]
    assert list(dict.fromkeys(order)) == [layer.name for layer in full.layers]
    u, v = layers["stage4.0.conv2.u"], layers["stage4.0.conv2.v"]
    assert (u.shapes, v.shapes) == (((128, 512, 3, 3),), ((512, 128, 1, 1), (512,), (512,)))
    assert (u.forward_flop, v.forward_flop) == (2 * 128 * 512 * 9 * 49, 2 * 128 * 512 * 49)
    # of ResNet-50 shortcuts too, of ResNet-18 none
    assert ("stage4.0.shortcut.u" in layers) is (name == "resnet50")


def test_what_is_unknown_is_refused_with_what_is_known() -> None:
    with pytest.raises(ValueError, match=r"model=resnet: unknown; known: alexnet, bert-base, .*vit-l"):
        find_model("resnet")
    with pytest.raises(ValueError, match="tokens=1025: gpt2 takes 1 to 1024"):
        find_model("gpt2", tokens=1025)
    with pytest.raises(ValueError, match="tokens=0"):
        find_model("gpt2", tokens=0)
    with pytest.raises(ValueError, match="tokens=9: resnet50 takes images of 224 x 224 pixels"):
        find_model("resnet50", tokens=9)
    with pytest.raises(ValueError, match="tokens=9: ncf takes a user and an item"):
        find_model("ncf", tokens=9)


@pytest.mark.parametrize("name", ["resnet50", "bert-large", "mobilenet_v2"])
@pytest.mark.parametrize("scale", [1, 2, 7.5, 100])
def test_a_scaled_model_has_so_many_times_fewer_elements_and_the_same_work(name: str, scale: float) -> None:
    model, layers = find_model(name), scaled(find_model(name), scale)
    assert sum(layer.numel for layer in layers) == pytest.approx(model.parameters / scale, rel=0.02)
    assert [layer.forward_flop for layer in layers] == [layer.forward_flop for layer in model.layers]
    assert [len(layer.shapes) for layer in layers] == [len(layer.shapes) for layer in model.layers]
    for before, after in zip(model.layers, layers, strict=True):
        for whole, cut in zip(before.shapes, after.shapes, strict=True):
            assert math.prod(cut) >= max(1, math.prod(whole) / scale)
            assert cut[1:] == whole[1:] or len(cut) == 1


def test_scaling_cuts_rows_and_leaves_at_least_one_element() -> None:
    layers = {layer.name: layer for layer in scaled(find_model("bert-base"), 2)}
    assert layers["block0.mlp1"].shapes == ((1536, 768), (1536,))
    assert {shape for layer in scaled(find_model("resnet18"), 1e5) for shape in layer.shapes if shape == (1,)}
