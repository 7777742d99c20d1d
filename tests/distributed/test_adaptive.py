"""Adaptive over gloo on loopback: a link that is faster than what was asked for is found out by all ranks at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from testbed.worker.communication.link_meter import EVERY_STEPS
from tests.distributed.harness import make_spec, run
from topologies import lan

STEPS = 4 * EVERY_STEPS


def test_real_ranks_measure_the_link_and_change_together(tmp_path: Path) -> None:
    candidates = [
        {"compressor": {"_target_": "compressors.none.Uncompressed"}},
        {"compressor": {"_target_": "compressors.topk.TopK", "density": 0.01}, "codec_s_element": 1e-4},
    ]
    spec = make_spec("ddp", "adaptive", 3, workload="digits", steps=STEPS, compressor_params={"candidates": candidates})
    # So slow that sending costs more than a slow codec, two minutes a step; loopback is thousands of times as fast.
    outcome = run(replace(spec, topology=lan.build(workers=3, lan_rate="100 kbit/s")), tmp_path)
    assert set(outcome.status.values()) == {0}, outcome.of("fault")
    assert len({done["parameters_crc32"] for done in outcome.of("done")}) == 1
    (model,) = outcome.of("model")
    sent = [sum(step) for step in zip(*(outcome.payloads(rank) for rank in range(3)), strict=True)]
    agreement, dense, sparse = 2 * 2 * 12, model["dense_bytes_step"], sent[0]
    assert sparse < 0.1 * dense
    assert sent[:EVERY_STEPS] == [sparse] * (EVERY_STEPS - 1) + [sparse + agreement]
    assert sent[-EVERY_STEPS:] == [dense] * (EVERY_STEPS - 1) + [dense + agreement]
