"""DeAR computes what synchronous data parallelism computes, bit for bit: the same sums in the same order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.distributed.harness import Outcome, make_spec, run

STEPS = 7
ODD = {"_target_": "tests.distributed.odd_model.OddModel"}


def _both(folder: Path, compressor: str = "none", collective: str = "ring", **given: Any) -> tuple[Outcome, Outcome]:
    """(of ddp, of dear) of the same training."""
    outcomes = []
    params = {"collective": collective, "bucket_size": "256 KiB"} | given.pop("strategy_params", {})
    for strategy in ("ddp", "dear"):
        (folder / strategy).mkdir()
        spec = make_spec(strategy, compressor, strategy_params=params, **({"steps": STEPS} | given))
        outcome = run(spec, folder / strategy)
        assert set(outcome.status.values()) == {0}, outcome.of("fault")
        outcomes.append(outcome)
    return outcomes[0], outcomes[1]


def _sent(outcome: Outcome) -> int:
    """In all: a second half is sent in the step after its own."""
    return sum(e["payload_bytes"] for e in outcome.of("step")) + sum(
        e["finish_payload_bytes"] for e in outcome.of("done")
    )


def _same(ddp: Outcome, dear: Outcome, workers: int) -> None:
    for rank in range(workers):
        assert dear.losses(rank) == ddp.losses(rank)
    values = [[(e["step"], e["value"]) for e in outcome.of("evaluation")] for outcome in (ddp, dear)]
    assert values[0] == values[1]
    assert len({e["parameters_crc32"] for outcome in (ddp, dear) for e in outcome.of("done")}) == 1
    assert _sent(ddp) == _sent(dear)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_it_equals_ddp_with_the_same_ring(workers: int, tmp_path: Path) -> None:
    ddp, dear = _both(tmp_path, workers=workers, evaluate_every=3)
    assert [e["step"] for e in dear.of("evaluation")] == [3, 6, 7]
    _same(ddp, dear, workers)
    (model,) = dear.of("model")
    assert _sent(dear) == STEPS * model["dense_bytes_step"]


def test_it_equals_ddp_with_two_shots(tmp_path: Path) -> None:
    _same(*_both(tmp_path, workers=3, collective="two_shot"), workers=3)


def test_it_equals_ddp_over_gloo_but_for_the_order_of_sums(tmp_path: Path) -> None:
    (tmp_path / "gloo").mkdir()
    gloo = run(make_spec("ddp", workers=4, steps=STEPS), tmp_path / "gloo")
    _, dear = _both(tmp_path, workers=4)
    for rank in range(4):
        assert dear.losses(rank) == pytest.approx(gloo.losses(rank), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("compressor", ["fp16", "int8", "powersgd", "dgc"])
def test_with_a_compressor_it_equals_ddp_with_the_same(compressor: str, tmp_path: Path) -> None:
    _same(*_both(tmp_path, compressor, workers=3), workers=3)


@pytest.mark.parametrize("bucket_size", ["1 B", "3 KiB"])
def test_an_odd_model_under_adam_with_a_schedule(bucket_size: str, tmp_path: Path) -> None:
    """Modules unused, called twice, now and then, out of order, or read without being called."""
    ddp, dear = _both(tmp_path, workers=2, workload_params=ODD, strategy_params={"bucket_size": bucket_size})
    _same(ddp, dear, 2)
    assert dear.losses(0)[-1] != dear.losses(0)[0]


@pytest.mark.parametrize("workers", [1, 2])
def test_micro_batches_are_summed_before_anything_is_sent(workers: int, tmp_path: Path) -> None:
    _same(*_both(tmp_path, workers=workers, strategy_params={"accumulate": 4}), workers)
    (tmp_path / "whole").mkdir()
    whole = run(make_spec("ddp", workers=workers, steps=STEPS), tmp_path / "whole")
    (tmp_path / "parts").mkdir()
    parts = run(make_spec("dear", workers=workers, steps=STEPS, strategy_params={"accumulate": 4}), tmp_path / "parts")
    assert _sent(parts) == _sent(whole)
    for rank in range(workers):
        assert parts.losses(rank) == pytest.approx(whole.losses(rank), rel=1e-4)


@pytest.mark.parametrize(("compressor", "workers"), [("none", 1), ("none", 3), ("int8", 3)])
def test_a_long_gradient_is_clipped_alike(compressor: str, workers: int, tmp_path: Path) -> None:
    """Lengths are summed in another order, part by part."""
    ddp, dear = _both(tmp_path, compressor, workers=workers, strategy_params={"clip_norm": 0.25})
    (tmp_path / "free").mkdir()
    free = run(make_spec("ddp", compressor, workers=workers, steps=STEPS), tmp_path / "free")
    for rank in range(workers):
        assert dear.losses(rank) == pytest.approx(ddp.losses(rank), rel=1e-5)
        assert dear.losses(rank)[-1] > 1.05 * free.losses(rank)[-1], "nothing was clipped"


@pytest.mark.parametrize(("compressor", "reason"), [("onebit_adam", "takes over the optimizer"), ("adaptive", "cost")])
def test_what_it_cannot_put_off_is_refused_by_name(compressor: str, reason: str, tmp_path: Path) -> None:
    outcome = run(make_spec("dear", compressor, workers=2), tmp_path)
    assert all(outcome.status.values())
    assert "strategy=dear" in outcome.logs[0] and reason in outcome.logs[0]
