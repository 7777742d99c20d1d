"""Adaptive: what it picks on which link, and what becomes of residuals when it picks another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from compressors.adaptive import Adaptive
from compressors.base import alpha_beta
from compressors.base.compressor import Compressor, Layout, Route
from compressors.base.feedback import ErrorFeedback
from compressors.bf16 import BFloat16
from compressors.int8 import Int8
from compressors.none import Uncompressed
from compressors.powersgd import PowerSGD
from compressors.topk import TopK
from testbed.worker.laws.cases.lockstep import contexts, drive
from tests.contract.catalogue import make

LARGE, SMALL = Layout(((1000, 1000),)), Layout(((100,),))
FAST, SLOW = 8 / 100e9, 8 / 10e6
"""Seconds a byte."""


def _adaptive(within: float = 1.5, codec_s: float = 0.0) -> Adaptive:
    kinds = Uncompressed(), BFloat16(), Int8(), TopK(density=0.01)
    return Adaptive(
        candidates=[{"compressor": kind, "codec_s_element": codec_s * place} for place, kind in enumerate(kinds)],
        within=within,
    )


def _pick(codec: Adaptive, layout: Layout, alpha_s: float, beta_s_byte: float, world_size: int = 4) -> str:
    index = codec.pick(layout, world_size, 0, alpha_s, beta_s_byte)
    return type(codec.candidates[index].compressor).__name__


def test_the_slower_the_link_the_more_is_left_out() -> None:
    picked = [_pick(_adaptive(codec_s=1e-9), LARGE, 5e-4, 8 / rate) for rate in (1e12, 1e10, 5e9, 1e9, 1e7)]
    order = ["Uncompressed", "BFloat16", "Int8", "TopK"]
    places = [order.index(name) for name in picked]
    assert places == sorted(places)
    assert picked[0] == "Uncompressed" and picked[-1] == "TopK"
    assert len(set(picked)) >= 3


def test_a_small_bucket_goes_as_it_is_and_one_without_latency_does_not() -> None:
    # two messages of two ranks, or one and less bytes: latency decides
    assert _pick(_adaptive(within=2.1), SMALL, 0.05, SLOW, world_size=2) == "Uncompressed"
    assert _pick(_adaptive(within=2.1), LARGE, 0.05, SLOW, world_size=2) == "TopK"
    assert _pick(_adaptive(within=2.1), SMALL, 0.0, SLOW, world_size=2) == "TopK"


def test_the_one_picked_is_the_first_that_is_within_the_bound() -> None:
    alpha_s, beta_s_byte, size = 1e-3, 8 / 1e8, 4_000_000
    none = alpha_beta.all_reduce_s(size, 4, alpha_s, beta_s_byte)
    bf16 = alpha_beta.all_reduce_s(size / 2, 4, alpha_s, beta_s_byte)

    def pair(within: float) -> str:
        both: list[dict[str, Any]] = [{"compressor": Uncompressed()}, {"compressor": BFloat16()}]
        return _pick(Adaptive(candidates=both, within=within), LARGE, alpha_s, beta_s_byte)

    assert pair(none / bf16 * 1.001) == "Uncompressed"
    assert pair(none / bf16 * 0.999) == "BFloat16"
    slow: list[dict[str, Any]] = [{"compressor": Uncompressed()}, {"compressor": BFloat16(), "codec_s_element": 1e-6}]
    assert _pick(Adaptive(candidates=slow, within=1), LARGE, alpha_s, beta_s_byte) == "Uncompressed"


def test_of_links_of_which_nothing_is_known_bytes_count() -> None:
    assert _pick(_adaptive(codec_s=1.0 / 8), LARGE, 0.0, 0.0) == "TopK"


def test_nothing_is_lost_when_another_is_picked() -> None:
    layout, world_size = Layout(((60, 50),)), 3
    ranks = [ErrorFeedback(_adaptive(within=2.5)) for _ in range(world_size)]
    generator = torch.Generator().manual_seed(0)
    given, applied, sizes = torch.zeros(3000), torch.zeros(3000), []
    for step, beta_s_byte in enumerate([SLOW, SLOW, FAST / 1e6, SLOW, FAST / 1e6]):
        tensors = [torch.randn(3000, generator=generator) for _ in range(world_size)]
        given += torch.stack(tensors).mean(dim=0)
        means = [torch.empty(3000) for _ in ranks]
        told = [
            replace(context, alpha_s=1e-3, beta_s_byte=beta_s_byte)
            for context in contexts(layout, Route.OWN, world_size, step=step)
        ]
        sizes.append(drive([r.rounds(t, c, out=m) for r, t, c, m in zip(ranks, tensors, told, means, strict=True)]))
        assert sizes[-1] == ranks[0].sent_bytes(layout, world_size, Route.OWN, step=step)
        assert torch.equal(means[0], means[2])
        applied += means[0]
    residuals = [rank.residual(0) for rank in ranks]
    kept = torch.stack([r for r in residuals if r is not None]).mean(dim=0)
    assert torch.allclose(applied + kept, given, atol=1e-5)
    assert len(set(sizes)) == 2  # it did pick others


def test_traits_are_those_of_the_weakest() -> None:
    traits = Adaptive(candidates=[{"compressor": Uncompressed()}, {"compressor": PowerSGD()}]).traits
    assert (traits.feedback, traits.contraction, traits.unbiased) == ("required", 0.0, False)
    assert not traits.point_to_point and traits.rounds_among(4) == 2
    lossless = Adaptive(candidates=[{"compressor": Uncompressed()}]).traits
    assert lossless.unbiased and lossless.contraction == 1 and lossless.feedback == "none"


def test_what_is_asked_wrongly_is_said_all_at_once() -> None:
    def faults(*given: object, within: float = 1.5) -> list[str]:
        with pytest.raises(ValueError, match=r"=") as caught:
            Adaptive(candidates=list(given), within=within)  # type: ignore[arg-type]
        return str(caught.value).splitlines()

    assert faults(within=0.5) == [
        "candidates=[]: must be a list of one at least",
        "within=0.5: must be at least 1 and below 1e+06",
    ]
    unknown = {"compressor": Int8(), "codec_s": 1, "codec_s_element": -1}
    assert faults("topk", unknown, {"compressor": TopK(feedback="off")}, {"compressor": make("countsketch")}) == [
        "candidates[0]=topk: must have a compressor, given as {_target_: …}, and may have codec_s_element",
        "candidates[1].codec_s=1: unknown; known: compressor, codec_s_element",
        "candidates[1].codec_s_element=-1: must be at least 0 and below 1",
        "candidates[2].compressor.feedback=off: must be auto; the feedback of Adaptive counts",
        "candidates[3].compressor=CountSketch: keeps residuals of its own, which would be left behind when another is"
        " picked",
    ]
    harmed: list[Compressor] = [make("qsgd"), TopK()]
    assert faults(*({"compressor": codec} for codec in harmed)) == [
        f"candidates[0].compressor={type(harmed[0]).__name__}: is harmed by the feedback that TopK needs"
    ]
