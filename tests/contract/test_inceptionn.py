"""INCEPTIONN: as many bits as a value needs."""

from __future__ import annotations

import math

import pytest
import torch

from compressors.base.payload import PayloadError
from tests.contract.catalogue import make
from tests.contract.through import INF, NAN, context_of, decoded, gaussian, through


def test_inceptionn_takes_as_many_bits_as_a_value_needs() -> None:
    # E = 6, h = 3; with a root mean square of 4 the bound is 1, the unit 64, and what is below 8 has 8 bits
    values = torch.tensor([0.99, -1.0, 3.0 + 2.0**-4 + 2.0**-5, 8.0, -48.0 - 2.0**-10, -64.0, 0.0, 100.0])
    tensor = torch.cat([values, torch.zeros(1111)])
    tensor[9] = math.sqrt(16 * 1119 - float(tensor.square().sum())) + 0.001
    payload = make("inceptionn").encode(tensor, context_of(1119))
    assert payload[0] == 0  # of 2**0
    tags = torch.zeros(1120, dtype=torch.uint8)
    tags[:10] = torch.tensor([0, 1, 1, 2, 2, 3, 0, 3, 0, 2], dtype=torch.uint8)
    planes = tags.view(4, 280)
    assert torch.equal(payload[1:281], planes[0] | planes[1] << 2 | planes[2] << 4 | planes[3] << 6)
    assert payload[281:283].view(torch.int8).tolist() == [-16, 49]
    assert payload[283:287].clone().view(torch.int16).tolist() == [1 << 12, -3 << 13]
    assert len(payload) == 1 + 280 + 2 + 3 * 2 + 2 * 4
    found = through("inceptionn", tensor)
    assert found[:8].tolist() == [0.0, -1.0, 3.0 + 2.0**-4, 8.0, -48.0, -64.0, 0.0, 100.0]


@pytest.mark.parametrize("scale", [1e-25, 1e-3, 1.0, 1.9, 1e30])
@pytest.mark.parametrize("exponent", range(1, 12))
def test_inceptionn_keeps_its_bound(exponent: int, scale: float) -> None:
    tensor = gaussian(70_000) * 10.0 ** (-6 * torch.rand(70_000, generator=torch.Generator().manual_seed(1))) * scale
    rms = float(tensor.double().square().mean().sqrt())
    for bound in (2.0**-exponent, min(2.0**-exponent * 1.7, 0.999)):
        found = through("inceptionn", tensor, error_bound=bound)
        assert float((found - tensor).abs().max()) < bound * rms
        assert (found.abs() <= tensor.abs()).all() and (found * tensor >= 0).all()


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1e3])
def test_inceptionn_sends_as_much_of_small_gradients(scale: float) -> None:
    """A bound in the units of values lost nearly all of gradients near 1e-3."""
    tensor = gaussian(50_000)
    for bound, least, most in ((0.25, 0.0, 0.005), (0.5, 0.003, 0.035)):
        found = through("inceptionn", tensor * scale, error_bound=bound)
        lost = float((found / scale - tensor).square().sum() / tensor.square().sum())
        assert least < lost < most
        assert not make("inceptionn", error_bound=bound).uses_feedback
    assert make("inceptionn", error_bound=0.6).uses_feedback


@pytest.mark.parametrize("values", [[NAN, 1.0, 0.0], [1.0, INF, 1e-9], [1e-38, -1e-45, 0.0], [3e38, 1e-30, 3e38]])
def test_inceptionn_sends_as_it_is_what_has_no_bound(values: list[float]) -> None:
    tensor = torch.tensor(values)
    found = through("inceptionn", tensor)
    if values[0] == 3e38:  # which has one
        assert torch.allclose(found[[0, 2]], tensor[[0, 2]], rtol=0.02) and found[1] == 0
    else:
        assert torch.equal(found.view(torch.int32), tensor.view(torch.int32))


def test_inceptionn_sends_two_bits_of_each_zero() -> None:
    assert len(make("inceptionn").encode(torch.zeros(1000), context_of(1000))) == 1 + 250


def test_inceptionn_refuses_tags_that_do_not_fit() -> None:
    payload = make("inceptionn").encode(torch.full((8,), 2.0), context_of(8))
    assert len(payload) == 1 + 2 + 8
    payload[1] = 0
    with pytest.raises(PayloadError, match="expected 7 bytes by its tags, found 11"):
        decoded("inceptionn", payload, 8)
    for power in range(256):  # whatever the first byte says, the answer is of the right size
        payload = make("inceptionn").encode(gaussian(8), context_of(8))
        payload[0] = power
        assert decoded("inceptionn", payload, 8).isfinite().all() or power < 128
    for bound in (2.0**-12, 1.0, 0, -1, NAN, "0.1", True):
        with pytest.raises(ValueError, match=r"^error_bound=.*: must be at least 0.000488281 and below 1$"):
            make("inceptionn", error_bound=bound)
