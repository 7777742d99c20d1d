"""Every member against every law at other parameters than its defaults: at both ends of what is allowed, and odd ones.

A law is written for what traits promise, and traits follow from parameters.
"""

from __future__ import annotations

from typing import Any

import pytest

from testbed.worker.laws import judge
from testbed.worker.laws.cases import catalogue
from testbed.worker.laws.cases.registry import Case
from testbed.worker.plugins import compressor_catalogue
from tests.contract.catalogue import NAMES

TOPK = {"_target_": "compressors.topk.TopK", "density": 0.3}
INT8 = {"_target_": "compressors.int8.Int8", "block_size": 64}

PARAMETERS: dict[str, list[dict[str, Any]]] = {
    "acpsgd": [{"rank": 1}, {"rank": 32}],
    "adaptive": [
        {"within": 1.0},
        {"candidates": [{"compressor": TOPK, "codec_s_element": 1e-9}]},
        {"candidates": [{"compressor": INT8, "codec_s_element": 0.0}, {"compressor": TOPK, "codec_s_element": 0.0}]},
    ],
    "adaq": [{"density": 1e-6}, {"density": 0.5}, {"density": 1.0}],
    "blosc2": [{"codec": "lz4", "shuffle": "none", "level": 9}, {"codec": "blosclz", "shuffle": "bit", "level": 5}],
    "chunked_topk": [
        {"density": 1e-6, "chunk": 8},
        {"density": 0.5, "chunk": 1000},
        {"density": 1.0, "chunk": 1 << 16},
    ],
    "cocktailsgd": [{"drawn": 1.0, "density": 1.0}, {"drawn": 0.01, "density": 0.01}],
    "countsketch": [{"density": 0.2, "rows": 1, "width": 2.0}, {"density": 0.001, "rows": 7, "width": 30.0}],
    "deepreduce": [
        {"inner": inner, "index": index, "value": value, "policy": policy, "bucket_size": 64, "segments": 3}
        for inner, index, value, policy in (
            (TOPK, "bitmap", "raw", "p0"),
            (TOPK, "huffman", "deflate", "p0"),
            (TOPK, "bloom", "raw", "p1"),
            (TOPK, "bloom", "raw", "p2"),
            (TOPK, "raw", "fit_dexp", "p0"),
            (TOPK, "bloom", "qsgd", "p0"),
            ({"_target_": "compressors.threshold.Threshold", "threshold": 1.5, "relative": True}, "rice", "raw", "p0"),
            ({"_target_": "compressors.dgc.DGC", "density": 0.01}, "bitmap", "qsgd", "p0"),
        )
    ],
    "demo": [{"chunk_size": 8, "kept": 8}, {"chunk_size": 200, "kept": 1, "decay": 0.5}, {"learning_rate": None}],
    "dgc": [{"density": 0.25, "sample": 1.0, "warmup_steps": 0}, {"momentum": 0.5, "warmup_steps": 2}],
    "dynamic8": [{"block_size": 8}, {"block_size": 1 << 20}],
    "eden": [{"bits": 1, "block_size": 64}, {"bits": 2}, {"bits": 4, "block_size": 4096}],
    "efsignsgd": [{"block_size": 8}, {"block_size": 1 << 20}],
    "fp8": [{"format": "e5m2"}, {"format": "e4m3", "block_size": 8}],
    "gtopk": [{"density": 1e-6}, {"density": 0.9}],
    "inceptionn": [{"error_bound": 2.0**-11}, {"error_bound": 0.99}],
    "int4": [{"block_size": 8}, {"block_size": 1 << 20}],
    "int8": [{"block_size": 8}, {"block_size": 1 << 20}],
    "int8_zstd": [{"inner": INT8, "level": 9, "shuffle": 1}],
    "intsgd": [{"dtype": "int32", "beta": 0.0}, {"dtype": "int8", "beta": 0.99}],
    "nf4": [{"block_size": 8}, {"block_size": 1 << 20}],
    "oktopk": [{"density": 1e-6, "reestimate": 1}, {"density": 0.5, "reestimate": 3}],
    "onebit": [{"block_size": 8}, {"block_size": 1 << 20}],
    "onebit_adam": [{"warm_up_steps": 1}, {"beta1": 0.0, "floor": 1.0, "block_size": 8}],
    "policy": [
        {"rules": [{"max_dims": 1, "compressor": INT8}], "otherwise": TOPK},
        {"rules": [], "otherwise": {"_target_": "compressors.powersgd.PowerSGD", "rank": 2}},
    ],
    "powersgd": [{"rank": 1}, {"rank": 32}],
    "qsgd": [{"levels": 1, "bucket_size": 8}, {"levels": 7}, {"levels": 64, "bucket_size": 1000}],
    "randomk": [{"density": 0.02}, {"density": 1.0}, {"density": 0.1, "scaled": True}],
    "sidco": [
        {"density": 0.001, "distribution": "gamma"},
        {"density": 0.1, "distribution": "pareto", "stages": 2},
        {"density": 0.9, "stages": 4},
    ],
    "signsgd": [{"learning_rate": 1.0}],
    "signum": [{"momentum": 0.0}, {"momentum": 0.999}],
    "sketchml": [{"buckets": 2}, {"buckets": 16}],
    "sz3": [{"error_bound": 1e-4, "algorithm": "interp"}, {"error_bound": 2.0, "algorithm": "lorenzo_reg"}],
    "terngrad": [{"bucket_size": 8}, {"clip_sigmas": 2.5, "bucket_size": 1 << 16}],
    "thc": [{"levels": 3, "truncated": 0.25, "block_size": 64}, {"dtype": "int32", "levels": 255}],
    "threshold": [{"threshold": 1e-3}, {"threshold": 100.0}, {"threshold": 0.5, "relative": False}],
    "topk": [{"density": 1e-6}, {"density": 0.5}, {"density": 1.0}],
    "zeroone_adam": [{"interval_steps": 1, "longest_interval": 1}, {"variance_renewals": 1, "beta1": 0.0}],
    "zfp": [{"mode": "precision", "precision": 16}, {"mode": "rate", "rate": 12.0}, {"error_bound": 1e-3}],
    "zstd": [
        {"level": 9, "shuffle": 1},
        {"inner": {"_target_": "compressors.bf16.BFloat16"}, "level": 1, "shuffle": 2},
    ],
}
EXCEPT = "feedback-fits"
"""Whether feedback is worth its memory is said of a compressor, not of a density near 1, at which little is lost."""
WITHOUT = {"bf16", "fp16", "natural", "none"}
"""Have no parameters but feedback."""


def _cases() -> list[object]:
    return [
        pytest.param(
            catalogue.case(compressor_catalogue.part(name, params)),
            id=f"{name}-{place}",
            marks=pytest.mark.tier("slow" if place else "all"),
        )
        for name, choices in PARAMETERS.items()
        for place, params in enumerate(choices)
    ]


def test_every_member_is_tried_at_other_parameters() -> None:
    assert set(PARAMETERS) | WITHOUT == set(NAMES) - {n for n in NAMES if n.startswith("deepreduce_")}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", _cases())
def test_the_laws_hold_at_other_parameters(case: Case) -> None:
    broken = [f"{row.law}: {row.detail}" for row in judge.judge(case) if row.outcome == "broken" and row.law != EXCEPT]
    assert not broken, "\n".join(broken)
