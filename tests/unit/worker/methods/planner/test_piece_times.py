"""Pieces of a model, measured: the same model as the whole, and sizes by hand."""

from __future__ import annotations

import json
from io import StringIO

import pytest
import torch
from torch import Tensor, nn

from testbed.core.errors import EXIT_COMPLETED, EXIT_INPUT, InputError
from testbed.core.parallelism.model import MeasuredLayer, ModelProfile
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.config.config import compose
from testbed.worker.__main__ import main
from testbed.worker.methods.planner.model_profile import answer, model_profile
from testbed.worker.methods.planner.piece_times import divides, measured_layers, optimizer_states
from testbed.worker.model.pieces import Piece
from testbed.worker.workloads.bytelm import Bytelm
from testbed.worker.workloads.digits import Digits

FAST_S = 0.01


class _Squares(Digits):
    """The mean square of what three pieces give."""

    def pieces(self, model: nn.Module) -> list[Piece]:
        first, second = nn.Linear(4, 8), nn.Linear(8, 8, bias=False)
        return [Piece("first", first, True), Piece("second", second, True), Piece("last", nn.Sequential(nn.ReLU()))]

    def inputs(self, batch: Tensor) -> Tensor:
        return batch

    def loss_of(self, output: Tensor, batch: Tensor) -> Tensor:
        return output.square().mean()


def _measured(*samples: int) -> tuple[MeasuredLayer, ...]:
    workload = _Squares()
    batches = {count: torch.ones(count, 4) for count in samples}
    return measured_layers(workload, workload.pieces(nn.Sequential()), batches, budget_s=FAST_S)


def _spec(*overrides: str) -> RunSpec:
    return compose(["workload=bytelm", "topo=wan100m", "batch_size=2", *overrides])


def test_sizes_of_pieces_by_hand() -> None:
    first, second, last = _measured(1, 6)
    assert (first.parameter_bytes, second.parameter_bytes, last.parameter_bytes) == (4 * 40, 4 * 64, 0)
    # of a sample, 8 floats are passed on, and the last piece passes on nothing
    assert (first.activation_bytes, second.activation_bytes, last.activation_bytes) == (32, 32, 0)
    # a linear layer keeps its input; ReLU what it gives, which is what the square keeps too
    assert (first.stored_bytes, second.stored_bytes, last.stored_bytes) == (16, 32, 32)
    assert (first.block, second.block, last.block) == (True, True, False)
    for layer in (first, second, last):
        assert layer.forward_s[1] >= 0
        assert layer.call_s[1] >= 0
        assert layer.forward_s[1] + layer.call_s[1] > 0


def test_of_one_number_of_samples_nothing_is_known_of_a_call() -> None:
    assert all(layer.call_s == {1: 0.0} for layer in _measured(2))


@pytest.mark.parametrize(
    ("make", "states"),
    [
        (lambda p: torch.optim.SGD(p, lr=0.1), 0),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), 1),
        (lambda p: torch.optim.AdamW(p, lr=0.1), 2),
    ],
)
def test_optimizers_keep_as_many_copies_as_they_do(make: object, states: int) -> None:
    layer = nn.Linear(3, 3)
    layer(torch.ones(1, 3)).sum().backward()
    assert callable(make)
    assert optimizer_states(make(layer.parameters())) == states


def test_a_shard_of_a_block_computes_its_part_and_sums_twice_each_way() -> None:
    workload = Bytelm(widening=(4,))
    batch = torch.randint(256, (3, 65), generator=torch.Generator().manual_seed(1))
    layers = measured_layers(workload, workload.pieces(workload.model(0)), {3: batch}, (1, 2, 3, 4), FAST_S)
    assert [layer.sums for layer in layers] == [0, 4, 0]
    assert [layer.summed_bytes for layer in layers] == [0, 4 * 64 * 128 * 4, 0]
    # three ranks cannot share four heads
    assert all(set(layer.forward_s) == {1, 2, 4} for layer in layers)


def test_pieces_that_none_shares_are_looked_at_whole() -> None:
    assert not divides(_Squares().pieces(nn.Sequential()), 2)


def test_degrees_are_those_that_a_region_has_ranks_for() -> None:
    three, alone = (model_profile(_spec(f"workers={workers}")) for workers in (6, 2))
    assert {tuple(layer.forward_s) for layer in three.layers} == {(1, 2)}
    assert {tuple(layer.forward_s) for layer in alone.layers} == {(1,)}
    assert [layer.sums for layer in three.layers] == [0, 4, 4, 4, 0]


def test_a_workload_without_pieces_is_refused() -> None:
    with pytest.raises(InputError, match="workload=sensors: its model is no chain of pieces"):
        model_profile(compose(["workload=sensors", "topo=wan100m"]))


def test_a_paced_device_has_its_own_seconds_spread_over_the_pieces() -> None:
    found = model_profile(_spec("device=paced", "device.step_s=0.5", "workers=4"))
    names = [layer.name for layer in found.layers]
    assert names == ["embeddings", "blocks.0", "blocks.1", "blocks.2", "head"]
    # three thirds of a sample, of a batch of two
    assert sum(3 * 2 * layer.forward_s[1] for layer in found.layers) == pytest.approx(0.5)
    assert not any(layer.call_s for layer in found.layers)
    blocks = [layer.forward_s[1] for layer in found.layers if layer.block]
    assert blocks == pytest.approx([blocks[0]] * 3)
    assert [layer.forward_share for layer in found.layers if layer.block] == pytest.approx([1 / 3] * 3)
    assert found.optimizer_states == 2
    assert found.layers[1].activation_bytes == 64 * 128 * 4
    assert all(set(layer.forward_s) == {1, 2} for layer in found.layers)
    assert all(layer.forward_s[2] > 0 for layer in found.layers if layer.block)


def test_the_command_answers_in_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    spec = _spec()
    monkeypatch.setattr("sys.stdin", StringIO(json.dumps({"spec": spec.to_json()})))
    assert main(["pieces"]) == EXIT_COMPLETED
    told = json.loads(capsys.readouterr().out)
    assert told["faults"] == []
    assert len(ModelProfile.from_json(told["model"]).layers) == 5


def test_the_command_tells_faults() -> None:
    sink = StringIO()
    replayed = ["workload=replay", "workload.model=resnet18", "device=paced", "device.step_s=1", "topo=wan100m"]
    spec: RunSpec = compose(replayed)
    assert answer(StringIO(json.dumps({"spec": spec.to_json()})), sink) == EXIT_INPUT
    assert "no chain of pieces that could be cut" in json.loads(sink.getvalue())["faults"][0]
