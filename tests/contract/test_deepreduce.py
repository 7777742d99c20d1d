"""DeepReduce: what it loses of values, what it plans, and bytes that are none of its own."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compressors.base.compressor import Compressor, Context, Layout
from compressors.base.payload import NonFiniteError, PayloadError
from compressors.base.streams import Stream
from compressors.deepreduce import INDEX_CODECS, VALUE_CODECS, DeepReduce
from compressors.int8 import Int8
from compressors.parts import frame
from compressors.parts.bits import Integers
from compressors.parts.deepreduce_bloom import filter_bits
from compressors.parts.deepreduce_fits import FitDExp, FitPoly
from compressors.topk import TopK
from tests.contract.catalogue import make
from tests.contract.lockstep import contexts

STREAM = Stream(0x0123456789ABCDEF)
NUMEL = 300
CONTEXT = contexts(Layout(((NUMEL,),)), None, 1)[0]


def _set(numel: int, count: int, seed: int = 0) -> Integers:
    return np.sort(np.random.default_rng(seed).choice(numel, count, replace=False))


def _heavy(numel: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(numel, generator=torch.Generator().manual_seed(seed)).pow(3)


def _through(codec: Compressor, tensor: torch.Tensor, context: Context) -> tuple[torch.Tensor, int]:
    payload = codec.encode(tensor, context)
    out = torch.full_like(tensor, 7.0)
    codec.decode(payload, out, context)
    return out, len(payload)


def test_with_p0_nothing_chosen_is_lost_and_more_comes_as_it_was() -> None:
    numel = 20_000
    tensor, context = _heavy(numel), contexts(Layout(((numel,),)), None, 1)[0]
    codec = DeepReduce(inner=TopK(density=0.01), index="bloom", false_positive_rate=0.01)
    out, _ = _through(codec, tensor, context)
    arrived = out != 0
    assert torch.equal(out[arrived], tensor[arrived])
    chosen = TopK(density=0.01).select(tensor, context)[0]
    assert arrived[chosen].all()
    assert 200 + 100 < int(arrived.sum()) < 200 + 320


def test_p1_loses_what_its_formula_says_and_p2_less() -> None:
    numel, count, rate = 20_000, 200, 0.02
    tensor = torch.zeros(numel)
    tensor[torch.from_numpy(_set(numel, count))] = _heavy(count)
    lost: dict[str, list[float]] = {"p1": [], "p2": []}
    formula = []
    for seed in range(60):
        context = contexts(Layout(((numel,),)), None, 1, seed=seed)[0]
        for policy, found in lost.items():
            codec = DeepReduce(inner=TopK(density=0.01), index="bloom", policy=policy, false_positive_rate=rate)
            out, _ = _through(codec, tensor, context)
            found.append(float((tensor - out).square().sum() / tensor.square().sum()))
            if policy == "p1":
                formula.append(1 - int((out != 0).sum()) / count)  # of the chosen, k1 of r are carried
    assert np.mean(lost["p1"]) == pytest.approx(np.mean(formula), rel=0.1)
    assert 0.5 < np.mean(formula) < 0.75  # about as many false positives as twice the chosen
    assert np.mean(lost["p2"]) < 0.8 * np.mean(lost["p1"])


@pytest.mark.parametrize("index", INDEX_CODECS)
@pytest.mark.parametrize("value", ["raw", "deflate"])
def test_what_is_exact_is_what_topk_sends(index: str, value: str) -> None:
    tensor, context = _heavy(5000), contexts(Layout(((5000,),)), None, 1)[0]
    expected, _ = _through(TopK(density=0.02), tensor, context)
    out, _ = _through(DeepReduce(inner=TopK(density=0.02), index=index, value=value), tensor, context)
    chosen = expected != 0
    assert torch.equal(out[chosen], expected[chosen])
    assert index == "bloom" or torch.equal(out, expected)


@pytest.mark.parametrize("index", INDEX_CODECS)
@pytest.mark.parametrize("value", VALUE_CODECS)
@pytest.mark.parametrize("numel", [1, 7, 100, 3000])
def test_the_longest_payloads_are_no_longer_than_a_decoder_takes(index: str, value: str, numel: int) -> None:
    context = contexts(Layout(((numel,),)), None, 1)[0]
    widest = {"false_positive_rate": 1e-6, "bucket_size": 8, "segments": 1000}
    codec = DeepReduce(inner=TopK(density=1), index=index, value=value, **widest)  # type: ignore[arg-type]
    out, size = _through(codec, _heavy(numel), context)
    assert out.any()
    assert size < 8 * numel + 4096


@pytest.mark.parametrize("name", ["threshold", "dgc", "sidco", "chunked_topk"])
def test_what_others_choose_comes_as_they_send_it(name: str) -> None:
    tensor, context = _heavy(5000), contexts(Layout(((5000,),)), None, 1)[0]
    expected, size = _through(make(name), tensor, context)
    codec = DeepReduce(inner=make(name))
    out, coded = _through(codec, tensor, context)
    assert expected.any() and torch.equal(out, expected)
    assert coded < size + 40
    assert codec.feedback_kind == make(name).feedback_kind
    assert not _through(codec, torch.zeros(5000), context)[0].any()


@pytest.mark.parametrize("index", INDEX_CODECS)
@pytest.mark.parametrize("value", VALUE_CODECS)
@pytest.mark.parametrize("density", [0.001, 0.01, 0.1, 0.5, 1.0])
def test_payloads_are_planned_about_as_long_as_they_are(index: str, value: str, density: float) -> None:
    layout = Layout(((40_000,),))
    context = contexts(layout, None, 1)[0]
    codec = DeepReduce(inner=TopK(density=density), index=index, value=value)
    _, size = _through(codec, _heavy(40_000), context)
    assert size == pytest.approx(codec.payload_bytes(layout, context), rel=0.12, abs=200)


def test_qsgd_is_unbiased_given_what_was_chosen_and_as_noisy_as_its_bound() -> None:
    layout, draws = Layout(((2000,),)), 300
    tensor, inner = _heavy(2000), TopK(density=0.3)
    chosen, values = inner.select(tensor, contexts(layout, None, 1)[0])
    codec = DeepReduce(inner=inner, value="qsgd", levels=15, bucket_size=100)
    drawn = torch.stack([_through(codec, tensor, contexts(layout, None, 1, seed=seed)[0])[0] for seed in range(draws)])[
        :, chosen
    ].double()
    steps = (values.view(-1, 100).double().norm(dim=1) / 15).repeat_interleave(100)
    noise = 6 * drawn.std(dim=0) / draws**0.5 + 6 * steps / draws  # a value near a level may never have left it
    assert ((drawn.mean(dim=0) - values).abs() <= noise).all()
    lost = (drawn - values).square().sum(dim=1).mean() / values.double().square().sum()
    assert 0.1 * 100 / 15**2 < lost < min(100 / 15**2, 10 / 15)
    assert not codec.traits.unbiased
    contraction = codec.traits.contraction
    assert contraction == pytest.approx(0.3 * (1 - 100 / 15**2))


def _lost(found: np.ndarray, given: np.ndarray) -> float:
    found, given = found.astype(np.float64), given.astype(np.float64)
    return float(np.square(found - given).sum() / np.square(given).sum())


@pytest.mark.parametrize("scale", [1e-20, 1e-6, 1.0, 1e20])
def test_polynomials_follow_sorted_values_at_any_scale(scale: float) -> None:
    values = TopK(density=0.01).select(_heavy(100_000) * scale, CONTEXT)[1].numpy()
    assert _lost(FitPoly(8).decode(FitPoly(8).encode(values, STREAM), 1000), values) < 1e-3
    assert _lost(FitPoly(1).decode(FitPoly(1).encode(values, STREAM), 1000), values) < 0.02


def test_a_polynomial_of_degree_five_is_found() -> None:
    places = np.linspace(-1, 1, 400)
    values = np.random.default_rng(0).permutation(np.polyval([1, 0, 2, 0, 3, 9], places)).astype(np.float32)
    assert np.allclose(FitPoly(1).decode(FitPoly(1).encode(values, STREAM), 400), values, rtol=1e-5)


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
def test_two_exponentials_are_found(scale: float) -> None:
    x = np.linspace(0, 1, 500)
    values = (scale * (5 * np.exp(-9 * x) + 2 * np.exp(-1.5 * x))).astype(np.float32)
    values = np.random.default_rng(0).permutation(values) * np.random.default_rng(1).choice([-1, 1], 500)
    data = FitDExp().encode(values.astype(np.float32), STREAM)
    assert len(data) == 16 + 63 + math.ceil(500 * 9 / 8)
    found = FitDExp().decode(data, 500)
    assert np.allclose(found, values, rtol=0.02)  # as near as trapezoids are to integrals
    assert np.array_equal(np.sign(found), np.sign(values))


@pytest.mark.parametrize("codec", [FitPoly(8), FitPoly(1), FitDExp()], ids=["8", "1", "dexp"])
@settings(max_examples=100)
@given(values=st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=60))
def test_no_values_make_a_fit_worse_than_none(codec: FitPoly | FitDExp, values: list[float]) -> None:
    given_values = np.array(values, dtype=np.float32)
    found = codec.decode(codec.encode(given_values, STREAM), len(values)).astype(np.float64)
    wide = given_values.astype(np.float64)
    assert np.square(found - wide).sum() <= np.square(wide).sum() * (1 + 1e-5) + 1e-60


@pytest.mark.parametrize("value", ["fit_poly", "fit_dexp"])
def test_a_fit_refuses_what_is_not_finite(value: str) -> None:
    tensor = _heavy(NUMEL)
    tensor[5] = math.nan
    with pytest.raises(NonFiniteError, match=f"^{value}: "):
        DeepReduce(inner=TopK(), value=value).encode(tensor, CONTEXT)


CASES = [(index, value) for index in INDEX_CODECS for value in VALUE_CODECS]


@pytest.mark.parametrize(("index", "value"), CASES)
@settings(max_examples=40)
@given(data=st.data())
def test_bytes_that_pass_the_checksum_are_answered_or_refused(index: str, value: str, data: st.DataObject) -> None:
    policy = data.draw(st.sampled_from(["p0", "p1", "p2"])) if index == "bloom" else "p0"
    codec = DeepReduce(inner=TopK(density=0.1), index=index, value=value, policy=policy)
    whole = codec.encode(_heavy(NUMEL), CONTEXT)[frame.HEADER_BYTES :].clone()
    if data.draw(st.booleans()):
        for position in data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=6)):
            whole[position] ^= data.draw(st.integers(1, 255))
    else:
        random = data.draw(st.binary(max_size=600))
        whole = torch.frombuffer(bytearray(bytes(whole[:2].tolist()) + random), dtype=torch.uint8)
    out = torch.zeros(NUMEL)
    try:
        codec.decode(frame.pack("deepred", frame.CODED, NUMEL, whole), out, CONTEXT)
    except PayloadError:
        return
    assert out.shape == (NUMEL,)


def test_a_filter_that_passes_everything_is_refused() -> None:
    codec = DeepReduce(inner=TopK(density=0.1), index="bloom")
    size = -(-filter_bits(30, 0.001) // 8)
    body = struct.pack("<BBII", 5, 0, 30, size) + b"\xff" * size + bytes(4 * NUMEL)
    payload = frame.pack("deepred", frame.CODED, NUMEL, torch.frombuffer(bytearray(body), dtype=torch.uint8))
    with pytest.raises(PayloadError, match="marks, at most 300"):
        codec.decode(payload, torch.zeros(NUMEL), CONTEXT)


def test_a_payload_of_other_codecs_is_refused() -> None:
    payload = DeepReduce(inner=TopK(density=0.1), index="rice", value="qsgd").encode(_heavy(NUMEL), CONTEXT)
    with pytest.raises(PayloadError, match="coded by codecs 2 and 2, expected 3 and 0"):
        DeepReduce(inner=TopK(density=0.1), index="elias_fano").decode(payload, torch.zeros(NUMEL), CONTEXT)


def test_what_is_asked_wrongly_is_said_all_at_once() -> None:
    with pytest.raises(ValueError, match=r"^inner=Int8") as caught:
        DeepReduce(
            inner=Int8(),
            index="zip",
            value="fit",
            policy="p3",
            false_positive_rate=1,
            levels=128,
            bucket_size=0,
            segments=True,
        )
    assert str(caught.value).splitlines() == [
        "inner=Int8: must be a compressor that sends chosen entries, as topk, given as {_target_: …}",
        "index=zip: unknown; known: raw, bitmap, rice, elias_fano, huffman, bloom",
        "value=fit: unknown; did you mean fit_poly? known: raw, deflate, qsgd, fit_poly, fit_dexp",
        "policy=p3: unknown; known: p0, p1, p2",
        "false_positive_rate=1: must be at least 1e-06 and below 1",
        "levels=128: must be a whole number, at least 1 and at most 127",
        "bucket_size=0: must be a whole number, at least 8 and at most 1048576",
        "segments=True: must be a whole number, at least 1 and at most 1000",
    ]
    with pytest.raises(ValueError, match=r"^inner.feedback=off: must be auto"):
        DeepReduce(inner=TopK(feedback="off"))
