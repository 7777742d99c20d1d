"""How a client that comes back gets to know the model: all of it, and the bits that the others have."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from testbed.core.frame_reading import parse
from testbed.core.frame_refusals import Refusal, Refused
from testbed.core.frames import Kind, Payload
from testbed.worker.server.door import WholeModel
from testbed.worker.server.plan import Plan
from testbed.worker.server.schema import PARAMETER, Schema
from testbed.worker.server.wire import Wire
from tests.unit.worker.server_models import One, net
from tests.unit.worker.server_net import KEY


def wire_of(model: torch.nn.Module, **down: str) -> Wire:
    plans = Plan(direction="up", payload="delta"), Plan(direction="down", **down)  # type: ignore[arg-type]
    return Wire(Schema.of(model), KEY, *plans, clients=3, seed=0)


@pytest.mark.parametrize("down", [{"payload": "delta", "codec": "sz3"}, {"payload": "params", "codec": "raw"}])
def test_a_whole_model_is_the_same_bits_whatever_the_plan(down: dict[str, str]) -> None:
    model = net()
    wire = wire_of(model, **down)
    values = wire.schema.take(model)
    values[[item.name for item in wire.schema.items].index("scale")].fill_(-0.0)
    whole = WholeModel(wire)
    frame = parse(bytearray(b"".join(whole.pack(5, values, 0.25))), whole.expected)
    assert (frame.kind, frame.round, frame.alpha, frame.payload) == (Kind.MODEL, 5, 0.25, Payload.PARAMS)
    for ours, theirs in zip(values, whole.unpack(frame), strict=True):
        assert torch.equal(ours.view(-1).view(torch.uint8), theirs.view(-1).view(torch.uint8))
        assert ours.dtype == theirs.dtype


def test_of_halves_it_holds_what_differences_have_made_of_them() -> None:
    model = One(torch.float16)
    wire = wire_of(model, payload="delta", codec="sz3")
    (item,) = wire.schema.items
    assert item.kind == PARAMETER
    reference = [wire.schema.take(model)[0].float() + 1e-6]
    whole = WholeModel(wire)
    (found,) = whole.unpack(parse(bytearray(b"".join(whole.pack(1, reference, 0.0))), whole.expected))
    assert found.dtype == torch.float32 and torch.equal(found, reference[0])


def test_a_model_that_hangs_on_another_is_refused_by_who_has_none() -> None:
    model = One()
    wire = wire_of(model, payload="delta", codec="sz3")
    whole = WholeModel(wire)
    packed = bytearray(b"".join(whole.pack(1, wire.schema.take(model), 0.0)))
    with pytest.raises(Refused) as caught:
        parse(packed, wire.expected(Kind.MODEL, 1))
    assert caught.value.reason is Refusal.KIND
    hanging = parse(packed, whole.expected)
    as_change = b"".join(replace(hanging, payload=Payload.DELTA).pack(KEY))
    with pytest.raises(Refused) as caught:
        parse(as_change, whole.expected)
    assert caught.value.reason is Refusal.KIND
