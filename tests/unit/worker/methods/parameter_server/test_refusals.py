"""Messages of tensors that cannot be: what is refused, by whom, and by which name."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest
import torch

from compressors.base.payload import NonFiniteError, PayloadError
from testbed.worker.methods.parameter_server.messages.coder import Coder
from testbed.worker.methods.parameter_server.messages.entries import BoundError
from testbed.worker.methods.parameter_server.messages.plan import Plan
from testbed.worker.methods.parameter_server.messages.schema import Schema
from testbed.worker.methods.parameter_server.messages.tensor_codecs import Sz3
from tests.unit.worker.server_models import ORIGIN, net, one, plan_up, sent

NOTHING = torch.empty(0, dtype=torch.uint8)


@pytest.mark.parametrize("codec", ["sz3", "zstd", "raw", "int8"])
def test_nan_is_refused_by_the_name_of_its_tensor(codec: str) -> None:
    model = net()
    schema = Schema.of(model)
    coder = Coder(schema, plan_up(codec=codec))
    for name, number in (("convolution.weight", math.nan), ("scale", math.inf), ("norm.running_var", math.nan)):
        values = schema.take(model)
        values[[item.name for item in schema.items].index(name)].view(-1)[-1] = number
        with pytest.raises(NonFiniteError, match=f"{name}: holds NaN"):
            coder.encode(values, None, bounds={}, origin=ORIGIN)


def test_a_codec_that_breaks_its_bound_is_found_by_the_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    schema, before, after = one()
    monkeypatch.setattr(Sz3, "decode", lambda self, body, numel, context: torch.zeros(numel))
    with pytest.raises(BoundError, match=r"weight: sz3 is off by 0\.2.*, which is more than its bound 0\.01"):
        sent(schema, plan_up(), after, before, 0.01)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"codec": "int8_zstd"}, "is coded by int8_zstd, which the plan does not have"),
        ({"codec": "gzip"}, "is coded by gzip"),
        ({"codec": "constant"}, "a bound of 0.01"),
        ({"codec": "constant", "bound": 0.0}, "expected 4"),
        ({"codec": "raw", "bound": 0.0}, "expected 7680"),
        ({"codec": "zstd", "bound": 0.0}, "zstd payload"),
        ({"codec": "unchanged", "bound": 0.0}, "is said to be unchanged, found"),
        ({"raw_bytes": 7}, "expected at most 7680 for 7680"),
        ({"payload": torch.zeros(7681, dtype=torch.uint8)}, "7681 bytes for 7680"),
        ({"bound": math.nan}, "are none"),
        ({"bound": math.inf}, "are none"),
        ({"update_rms": -1.0}, "are none"),
        ({"payload": NOTHING}, "less than a header"),
        ({"payload": torch.zeros(2)}, "a payload is a 1-D uint8 tensor"),
    ],
)
def test_entries_that_nobody_can_have_meant_are_refused_by_name(change: dict[str, object], told: str) -> None:
    schema, before, after = one()
    (entry,) = sent(schema, plan_up(), after, before, 0.01)[0].entries
    with pytest.raises(PayloadError, match=told):
        Coder(schema, plan_up()).decode([dataclasses.replace(entry, **change)], before, origin=ORIGIN)  # type: ignore[arg-type]
    for entries in ([], [entry, entry], [dataclasses.replace(entry, index=1)]):
        with pytest.raises(PayloadError, match="not one for each of 1 items"):
            Coder(schema, plan_up()).decode(entries, before, origin=ORIGIN)


@pytest.mark.parametrize(
    "plan",
    [
        plan_up(),
        plan_up(algorithm="lorenzo_reg", dither=True),
        *(plan_up(codec=codec) for codec in ("int8_zstd", "fp16", "qsgd", "zstd")),
    ],
    ids=["nopred", "lorenzo_reg, dithered", "int8_zstd", "fp16", "qsgd", "zstd"],
)
def test_damaged_payloads_are_refused_or_stay_in_their_range(plan: Plan) -> None:
    schema, before, after = one()
    (entry,) = sent(schema, plan, after, before, 0.01)[0].entries
    generator = random.Random(0)
    refusals = []
    for trial in range(40):
        data = bytearray(entry.data)
        if trial % 4 == 0:
            data = data[: generator.randrange(len(data))]
        elif trial % 4 == 1:
            data[12:] = generator.randbytes(len(data) - 12)
        else:
            data[generator.randrange(12 if trial % 4 == 2 else len(data))] ^= 1 << generator.randrange(8)
        damaged = dataclasses.replace(entry, payload=torch.frombuffer(data, dtype=torch.uint8) if data else NOTHING)
        try:
            (found,) = Coder(schema, plan).decode([damaged], before, origin=ORIGIN)
        except PayloadError as error:
            refusals.append(str(error))
        else:
            assert found.shape == (40, 48) and bool(found.isfinite().all())
    assert len(refusals) >= 10 and all(told.startswith("weight: ") for told in refusals)


def test_lossless_payloads_are_checked_for_what_they_hold() -> None:
    model = net()
    schema = Schema.of(model)
    encoded, _ = sent(schema, plan_up(codec="raw"), schema.take(model), None, None)
    names = [item.name for item in schema.items]
    for name, payload, told in (
        ("shown", torch.full((1600,), 2, dtype=torch.uint8), "shown: a byte of 2 is neither true nor false"),
        ("scale", torch.tensor([math.nan]).view(torch.uint8), "scale: holds NaN or infinity"),
        ("norm.running_var", torch.full((16,), math.nan).view(torch.uint8), "norm.running_var: holds NaN"),
    ):
        entries = list(encoded.entries)
        place = names.index(name)
        entries[place] = dataclasses.replace(entries[place], payload=payload)
        with pytest.raises(PayloadError, match=told):
            Coder(schema, plan_up(codec="raw")).decode(entries, None, origin=ORIGIN)
