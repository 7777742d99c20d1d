"""The clock: one row a size whatever happens, figures of what is done in most of a run, none that JSON cannot say."""

from __future__ import annotations

import io
import json
import math

import pytest
from torch import Tensor

from compressors.base.compressor import Context
from compressors.none import Uncompressed
from testbed.worker.laws import laws_command, throughput
from tests.contract.catalogue import make


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput, "NUMELS", (64, 1024))
    monkeypatch.setattr(throughput, "THREADS", (1,))
    monkeypatch.setattr(throughput, "_MAX_REPEATS", 3)


class OneNan(Uncompressed):
    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        super().decode(payload, out, context, add=add, scale=scale)
        out[-1] = math.nan


class TooLarge(Uncompressed):
    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        if len(tensor) > 64:
            raise MemoryError("no room\nat all")
        return super().encode(tensor, context)


def test_what_is_not_finite_has_no_figure() -> None:
    for row in throughput.table(OneNan):
        assert row["relative_error"] is row["cosine"] is None
        assert row["share"] > 0
        json.dumps(row, allow_nan=False)


def test_an_error_is_that_of_its_size_alone() -> None:
    first, second = throughput.table(TooLarge)
    assert first["bits"] == 32
    assert second == {"numel": 1024, "threads": 1, "skipped": "MemoryError: no room"}


@pytest.mark.parametrize(("name", "bits"), [("onebit_adam", 1.03125), ("zeroone_adam", 1.03125), ("signum", 1.0078125)])
def test_figures_are_those_after_a_warm_up_and_of_steps_that_send(name: str, bits: float) -> None:
    row = throughput.measure(make(name), 1024, 1)
    assert row["bits"] == bits
    assert row["relative_error"] is row["cosine"] is None


def test_a_density_is_that_after_the_warm_up() -> None:
    assert throughput.measure(make("dgc", density=0.01), 1 << 14, 1)["bits"] == pytest.approx(0.64, rel=0.3)


def test_the_clock_is_asked_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laws_command, "end_with", lambda parent: None)
    told = {"name": "none", "target": "compressors.none.Uncompressed", "params": {}, "parent": 1}
    sink = io.StringIO()
    assert laws_command.answer(io.StringIO(json.dumps(told | {"what": "throughput"})), sink) == 0
    rows = [json.loads(line) for line in sink.getvalue().splitlines()]
    assert [row.get("event") for row in rows] == ["begun", "throughput", "throughput", None]
