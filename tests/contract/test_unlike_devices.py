"""The law `devices` without a device: what is a device's own in torch is done otherwise, the bytes stay the same."""

from __future__ import annotations

import inspect
import math

import pytest
import torch
from torch import Tensor

from compressors.base.compressor import Layout
from compressors.base.exact import divide_, float_spacing, row_sums
from tests.contract.catalogue import CODECS, make
from tests.contract.lockstep import contexts
from tests.contract.unlike_device import UnlikeDevice

SIZE = 2713
HOST = ("sz3", "zfp", "blosc2", "zstd")
"""They work on the processor's copy, whichever device a bucket is on."""
REPAIRED = ("int4", "demo", "fp8", "efsignsgd", "onebit", "qsgd", "eden")
"""The first tier's; the others' never had another result."""


def buckets(numel: int) -> list[Tensor]:
    drawn = torch.randn(numel, generator=torch.Generator().manual_seed(numel))
    few = drawn.mul(2).round()  # equals
    wide = drawn * torch.logspace(-6, 6, numel)
    return [drawn, few, wide, torch.zeros(numel)]


def promises_less(name: str) -> bool:
    text = " ".join(str(inspect.getdoc(type(make(name)))).split())
    return "kinds of device" in text


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in REPAIRED else [pytest.mark.tier("all")])
        for name in CODECS
        if name not in HOST
    ],
)
def test_bytes_and_values_are_the_same_on_an_unlike_device(name: str) -> None:
    context = contexts(Layout(((SIZE,),)), None, 1)[0]
    for bucket in buckets(SIZE):
        payload = make(name).encode(bucket, context)
        with UnlikeDevice():
            other = make(name).encode(bucket.clone(), context)
        assert torch.equal(payload, other) or promises_less(name)
        for add, scale in ((False, 1.0), (True, 1 / 3)):
            ours, theirs = bucket.clone(), bucket.clone()
            make(name).decode(payload, ours, context, add=add, scale=scale)
            with UnlikeDevice():
                make(name).decode(payload, theirs, context, add=add, scale=scale)
            assert torch.equal(ours, theirs)


def test_the_unlike_device_is_unlike() -> None:
    values, square = torch.randn(64, 1000), torch.randn(200, 200)
    few = torch.zeros(100)
    with UnlikeDevice():
        others = values.sum(dim=1), values / 7, square @ square, few.topk(3).indices, values.mean(), values.norm(dim=1)
    ours = values.sum(dim=1), values / 7, square @ square, few.topk(3).indices, values.mean(), values.norm(dim=1)
    assert [torch.equal(one, two) for one, two in zip(ours, others, strict=True)].count(True) <= 1  # one mean may agree


@pytest.mark.parametrize("width", [1, 2, 3, 8, 100, 513, 1024])
def test_sums_and_quotients_have_one_result(width: int) -> None:
    rows = torch.randn(20, width, generator=torch.Generator().manual_seed(width))
    with UnlikeDevice():
        sums, quotients = row_sums(rows.clone()), divide_(rows.clone(), 7.0)
    assert torch.equal(sums, row_sums(rows.clone())) and torch.equal(quotients, rows / 7)
    assert torch.allclose(sums.double(), rows.double().sum(dim=1), atol=1e-5)


def test_spacing_of_floats() -> None:
    largest = torch.tensor([1.0, 1.5, 2.0, 3e38, 1e-45, 0.0, math.inf, math.nan])
    after = [2.0**-23, 2.0**-23, 2.0**-22, 2.0**104, 2.0**-149, 2.0**-149, math.inf, math.inf]
    assert float_spacing(largest).tolist() == after
