"""The rehearsal takes the route that the run will take, through the run's own reducer."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from compressors.base.compressor import Context, Exchange, Rounds
from testbed.worker.reduction.rehearsal import rehearse
from testbed.worker.training.parts import build_parts
from tests.distributed.harness import COMPRESSORS, make_spec


def _model_with_gradients() -> nn.Module:
    model = nn.Sequential(nn.Linear(31, 17), nn.Linear(17, 5))
    for index, parameter in enumerate(model.parameters()):
        parameter.grad = parameter.detach() * (index + 1)
    return model


@pytest.mark.parametrize("route", ["gather", "two_shot"])
@pytest.mark.parametrize("compressor", COMPRESSORS)
def test_every_compressor_is_taken_through_all_its_rounds(
    compressor: str, route: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = make_spec(compressor=compressor, workers=4, route=route)
    scratch = build_parts(spec).compressor
    rounds, kinds, ended = scratch.rounds, [], []

    def spied(tensor: object, context: Context, **kwargs: object) -> Rounds:
        inner = rounds(tensor, context, **kwargs)  # type: ignore[arg-type]
        try:
            exchange: Exchange = next(inner)
            while True:
                kinds.append(exchange.kind)
                exchange = inner.send((yield exchange))
        except StopIteration:
            ended.append(context.world_size)

    monkeypatch.setattr(scratch, "rounds", spied)
    for rank in (0, 3):
        model = _model_with_gradients()
        rehearse(scratch, model, torch.optim.SGD(model.parameters(), lr=0.1), spec, rank)
    assert ended == [4, 4]
    if compressor in ("topk", "sz3", "int8"):
        assert kinds == (["all_gather"] if route == "gather" else ["all_to_all", "all_gather"]) * 2


def test_the_optimizer_is_the_one_that_the_compressor_leaves() -> None:
    model, spec = _model_with_gradients(), make_spec(compressor="signum", workers=4)
    given = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    adopted = rehearse(build_parts(spec).compressor, model, given, spec, 0)
    assert adopted.param_groups[0]["momentum"] == 0.0
    same = rehearse(build_parts(make_spec(workers=4)).compressor, model, given, make_spec(workers=4), 0)
    assert same is given


def test_rules_for_names_of_parameters_are_rehearsed() -> None:
    rule = {"names": "0.*", "compressor": {"_target_": "compressors.none.Uncompressed"}}
    spec = make_spec(compressor="policy", workers=4, compressor_params={"rules": [rule]})
    model = _model_with_gradients()
    rehearse(build_parts(spec).compressor, model, torch.optim.SGD(model.parameters(), lr=0.1), spec, 0)


def test_no_trace_is_left_in_the_gradients() -> None:
    model = _model_with_gradients()
    before = [parameter.grad.clone() for parameter in model.parameters()]
    scratch = build_parts(make_spec(compressor="topk", workers=4)).compressor
    rehearse(scratch, model, torch.optim.SGD(model.parameters(), lr=0.1), make_spec(workers=4), 0)
    assert all((p.grad == b).all() for p, b in zip(model.parameters(), before, strict=True))
