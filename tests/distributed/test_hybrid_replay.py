"""Pipelines, replicas and shards of replayed models: bytes of each exchange, without arithmetic."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import InputError
from testbed.core.models.catalogue import find_model
from testbed.core.models.scaled import scaled
from testbed.core.spec.run_spec import RunSpec
from testbed.worker.data.replayed_blocks import blocks_of
from testbed.worker.training.parts import build_parts
from tests.distributed.harness import make_spec, part, run

SCALE, SAMPLES, STEPS = 200, 4, 2


def hybrid_spec(model: str, strategy: dict[str, Any], **changes: Any) -> RunSpec:
    spec = make_spec("hybrid", compressor="none", workers=4, steps=STEPS, batch_size=SAMPLES, strategy_params=strategy)
    workload = part("workload", "replay", {"model": model, "scale": SCALE})
    return dataclasses.replace(spec, workload=workload, device=part("device", "paced"), **changes)


def message_bytes(model: str, boundary: int) -> int:
    """Return the bytes of one micro-batch's message after the piece `boundary`."""
    return 4 * SAMPLES * math.ceil(blocks_of(find_model(model))[boundary].values / SCALE)


def weights_bytes(model: str, pieces: range) -> int:
    layers = scaled(find_model(model), SCALE)
    return 4 * sum(layers[number].numel for place in pieces for number in blocks_of(find_model(model))[place].layers)


def payloads(model: str, strategy: dict[str, Any], folder: Path) -> list[int]:
    """Return the bytes that each rank sends in a step."""
    outcome = run(hybrid_spec(model, strategy), folder)
    assert set(outcome.status.values()) == {0}, outcome.of("fault")
    assert {done["finish_payload_bytes"] for done in outcome.of("done")} == {0}  # nothing was learnt
    found = [outcome.payloads(rank) for rank in range(4)]
    assert all(sent == [sent[0]] * STEPS for sent in found)
    return [sent[0] for sent in found]


def test_stages_pass_on_what_lies_between_blocks_and_replicas_average(tmp_path: Path) -> None:
    found = payloads("bert-base", {"pp": 2}, tmp_path)
    cut, micro_batches = 7, 2
    stages = range(cut), range(cut, len(blocks_of(find_model("bert-base"))))
    # two replicas: each sends half of its gradients, twice
    expected = [micro_batches * message_bytes("bert-base", cut - 1) + weights_bytes("bert-base", one) for one in stages]
    assert found == pytest.approx([expected[0], expected[0], expected[1], expected[1]], rel=1e-3)


def test_shards_sum_twice_in_forward_and_twice_in_backward(tmp_path: Path) -> None:
    found = payloads("vit-b", {"pp": 2, "tp": 2}, tmp_path)
    blocks, micro_batches = 6, 4
    one = message_bytes("vit-b", 6)
    assert found == [micro_batches * one * (1 + 4 * blocks)] * 4


def test_swins_stages_pass_on_less_and_less(tmp_path: Path) -> None:
    found = payloads("swin-t", {"pp": 4, "cuts": [0, 5, 8, 14]}, tmp_path)
    after = [message_bytes("swin-t", cut - 1) for cut in (5, 8, 14)]
    assert after[0] > after[1] > after[2]
    before = [0, *after]
    assert found == [4 * (forward + backward) for forward, backward in zip([*after, 0], before, strict=True)]


def test_first_and_last_stage_of_gpt2_share_the_embeddings_weight(tmp_path: Path) -> None:
    found = payloads("gpt2", {"pp": 4, "schedule": "gpipe"}, tmp_path)
    passed = 4 * message_bytes("gpt2", 3)
    table = find_model("gpt2")
    weight = 4 * math.prod(scaled(table, SCALE)[0].shapes[0])
    assert math.prod(table.layers[0].shapes[0]) == 50257 * 768
    assert found == [passed + weight, 2 * passed, 2 * passed, passed + weight]


def test_what_has_no_blocks_and_codecs_that_go_by_values_are_refused() -> None:
    with pytest.raises(InputError, match="a chain of pieces for some models alone; of a replay for bert-"):
        build_parts(hybrid_spec("resnet50", {"pp": 2}))
    with pytest.raises(InputError, match=r"activations=SZ3: what it sends depends on values"):
        build_parts(hybrid_spec("bert-base", {"pp": 2, "activations": "sz3"}))
    build_parts(hybrid_spec("bert-base", {"pp": 2, "activations": "fp16"}))
    with pytest.raises(InputError, match="tp=5: does not divide the 12 attention heads"):
        build_parts(hybrid_spec("bert-base", {"pp": 1, "tp": 5}))
    with pytest.raises(InputError, match="tp=2: no piece of this model can be shared out"):
        build_parts(hybrid_spec("swin-t", {"pp": 2, "tp": 2}))
