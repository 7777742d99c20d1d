"""Messages of tensors: which codec each takes, how far off it comes out, and what is refused."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import Tensor

from compressors.base.payload import PayloadError
from testbed.worker.methods.parameter_server.messages.coder import Coder
from testbed.worker.methods.parameter_server.messages.entries import Entry
from testbed.worker.methods.parameter_server.messages.lossy import coding_bound
from testbed.worker.methods.parameter_server.messages.plan import Plan
from testbed.worker.methods.parameter_server.messages.schema import DISCRETE, PARAMETER, Schema
from tests.unit.worker.server_models import ORIGIN, bits, net, one, payload_of, plan_up, sent

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
PAYLOADS = ("params", "delta", "grad")
BOUNDED = {
    "nopred": {"codec": "sz3"},
    "lorenzo_reg": {"codec": "sz3", "algorithm": "lorenzo_reg"},
    "interp_lorenzo": {"codec": "sz3", "algorithm": "interp_lorenzo"},
    "interp": {"codec": "sz3", "algorithm": "interp"},
    "int8_zstd": {"codec": "int8_zstd"},
}
MEASURED = ("fp16", "int8", "qsgd", "natural")


def _error(ours: Tensor, theirs: Tensor) -> float:
    return float((ours.double() - theirs.double()).abs().max())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("dither", [False, True], ids=["plain", "dither"])
@pytest.mark.parametrize("codec", BOUNDED)
def test_no_element_is_off_by_more_than_the_bound(codec: str, dither: bool, payload: str, dtype: torch.dtype) -> None:
    schema, before, after = one(dtype)
    values = payload_of(schema, payload, before, after)
    plan = plan_up(**BOUNDED[codec], payload=payload, dither=dither)
    for bound in (0.05, 0.01, 0.002):
        encoded, received = sent(schema, plan, values, before, bound)
        (entry,), (loss,) = encoded.entries, encoded.losses
        assert entry.codec == plan.codec, "else nothing is shown"
        assert entry.bound == bound and received[0].dtype == values[0].dtype
        assert _error(received[0], values[0]) <= bound
        assert loss.max_error == _error(received[0], values[0]) > 0.4 * bound
        assert encoded.tensors is not None and bits(encoded.tensors) == bits(received)
        assert entry.coded_bytes < entry.raw_bytes == values[0].nbytes


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("codec", MEASURED)
def test_codecs_without_a_bound_say_how_far_off_they_were(codec: str, payload: str, dtype: torch.dtype) -> None:
    schema, before, after = one(dtype)
    values = payload_of(schema, payload, before, after)
    encoded, received = sent(schema, plan_up(codec=codec, payload=payload), values, before, 1e-6)
    (entry,) = encoded.entries
    if codec == "fp16" and values[0].dtype in (torch.float16, torch.bfloat16):
        assert entry.codec in ("raw", "zstd"), "which is no longer"
    else:
        assert entry.codec == ("fp16" if codec == "fp16" else "compressor")
    assert entry.bound == _error(received[0], values[0])
    assert encoded.tensors is not None and bits(encoded.tensors) == bits(received)


@pytest.mark.parametrize(
    "plan", [plan_up(), plan_up(codec="int8_zstd", dither=True), plan_up(codec="int8", lossless="raw")]
)
def test_all_but_large_parameters_come_out_bit_for_bit(plan: Plan) -> None:
    model = net()
    schema = Schema.of(model)
    values = schema.take(model)
    lost = {"convolution.weight", "embedding.weight"}
    encoded, received = sent(schema, plan, values, None, 100.0)
    for item, entry, value, found in zip(schema.items, encoded.entries, values, received, strict=True):
        assert entry.exact == (item.name not in lost), item.name
        if item.name not in lost:
            assert bits([found]) == bits([value]) and found.dtype == value.dtype and found.shape == value.shape
            assert entry.bound == 0
    names = {item.name: entry for item, entry in zip(schema.items, encoded.entries, strict=True)}
    assert names["norm.weight"].codec == "constant" and names["norm.weight"].coded_bytes == 4
    assert names["empty"].coded_bytes == 0
    schema.put(model, received)
    assert bool((model.norm.running_var >= 0).all()) and int(model.steps) == 2**40 + 1


@pytest.mark.parametrize("codec", ["zstd", "raw"])
@pytest.mark.parametrize("payload", PAYLOADS)
def test_lossless_plans_lose_nothing(codec: str, payload: str) -> None:
    model = net()
    schema = Schema.of(model)
    before = schema.take(model)
    after = [value + 1 if item.kind == PARAMETER else value for item, value in zip(schema.items, before, strict=True)]
    values = payload_of(schema, payload, before, after)
    encoded, received = sent(schema, plan_up(codec=codec, payload=payload), values, before, 100.0)
    assert bits(received) == bits(values)
    raw = sum(value.nbytes for value in values)
    coded = sum(entry.coded_bytes for entry in encoded.entries)
    assert coded == raw if codec == "raw" else coded < 0.95 * raw
    if codec == "raw":
        assert {entry.codec for entry in encoded.entries} == {"raw"}, "the baseline leaves nothing out"


@pytest.mark.parametrize("bound", [None, 0.0, 1e-12], ids=["no bounds", "zero", "below rounding"])
def test_without_a_bound_that_rounding_can_keep_all_is_lossless(bound: float | None) -> None:
    schema, before, after = one()
    encoded, received = sent(schema, plan_up(), after, before, bound)
    assert encoded.entries[0].exact and bits(received) == bits(after)


def test_bounds_may_be_missing_and_are_checked_by_name() -> None:
    schema, before, after = one()
    coder = Coder(schema, plan_up())
    for bounds in ({}, {"weight": None}):
        assert coder.encode(after, before, bounds=bounds, origin=ORIGIN).entries[0].exact
    with pytest.raises(ValueError, match=r"bound of wait: the model has no such tensor\nbound of weight: -1"):
        coder.encode(after, before, bounds={"wait": 1.0, "weight": -1.0}, origin=ORIGIN)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_unchanged_tensors_cost_nothing_and_constant_ones_one_value(payload: str) -> None:
    schema, before, _ = one()
    encoded, received = sent(schema, plan_up(payload=payload), payload_of(schema, payload, before, before), before, 0.1)
    (entry,) = encoded.entries
    assert (entry.codec, entry.coded_bytes, entry.update_rms) == ("unchanged", 0, 0.0)
    assert bits(received) == bits(payload_of(schema, payload, before, before))
    if payload == "params":
        with pytest.raises(PayloadError, match="weight: is said to be unchanged, but nothing has been received"):
            Coder(schema, plan_up()).decode(encoded.entries, None, origin=ORIGIN)
        assert sent(schema, plan_up(), before, None, 0.1)[0].entries[0].codec != "unchanged"
    values = [torch.full((40, 48), -0.25)]
    encoded, received = sent(schema, plan_up(payload=payload), values, before, 0.1)
    assert (encoded.entries[0].codec, encoded.entries[0].coded_bytes) == ("constant", 4)
    assert bits(received) == bits(values)


def test_the_same_bits_mean_zeros_with_their_signs() -> None:
    schema, before, _ = one()
    before[0][0] = 0.0
    after = [before[0].clone()]
    after[0][0] = -0.0
    encoded, received = sent(schema, plan_up(), after, before, 0.0)
    assert encoded.entries[0].codec != "unchanged" and bits(received) == bits(after)


@pytest.mark.parametrize("codec", ["sz3", "int8_zstd"])
def test_one_outlier_takes_nothing_from_the_others(codec: str) -> None:
    """A bound relative to the range would send all others as zeros."""
    schema, before, after = one()
    for tensor in (before[0], after[0]):
        tensor.view(-1)[5] = 100.0
    coder = Coder(schema, plan_up(codec=codec))
    (measured,) = coder.measure(after, before)
    assert measured.update_rms == pytest.approx(0.02, rel=0.1) and measured.high == 100.0
    of_update, of_range = math.sqrt(3) * 0.3 * measured.update_rms, 0.01 * (measured.high - measured.low)
    others = torch.ones(40 * 48, dtype=torch.bool)
    others[5] = False
    left = {}
    for bound in (of_update, of_range):
        encoded, received = sent(schema, plan_up(codec=codec), after, before, bound)
        left[bound] = float(received[0].view(-1)[others].std())
        assert _error(received[0], after[0]) <= encoded.entries[0].bound
        if codec == "int8_zstd":  # 255 steps cannot do both, which it says
            assert encoded.entries[0].bound == pytest.approx(max(100 / 254, bound), rel=1e-2)
    assert left[of_range] == 0.0
    if codec == "sz3":
        assert left[of_update] == pytest.approx(float(after[0].view(-1)[others].std()), rel=0.05)


def test_values_beyond_what_a_codec_has_room_for_go_lossless() -> None:
    schema, before, after = one()
    after[0][0, 0] = 1e38
    for codec in ("sz3", "int8_zstd", "fp16"):
        encoded, received = sent(schema, plan_up(codec=codec), after, before, 1e37)
        assert encoded.entries[0].exact and bits(received) == bits(after)
    after[0][0, 0] = 7e4  # beyond a half
    assert sent(schema, plan_up(codec="fp16"), after, before, 1.0)[0].entries[0].exact
    halves, _, later = one(torch.float16)
    later[0][0, 0] = 65504.0
    for bound in (40.0, 70.0, 100.0, 150.0, 200.0):
        encoded, received = sent(halves, plan_up(dither=bound > 100), later, None, bound)
        assert not encoded.entries[0].exact
        assert bool(received[0].isfinite().all()) and _error(received[0], later[0]) <= bound


def test_what_is_left_of_a_bound_never_exceeds_it() -> None:
    for dtype in DTYPES:
        assert coding_bound(0.01, 0.1, dtype) < 0.01
        assert coding_bound(1e-9, 1.0, dtype) == 0.0
    assert coding_bound(0.01, 0.1, torch.float32) > 0.0099
    assert coding_bound(0.01, 1.0, torch.bfloat16) == pytest.approx(0.01 - 1.01 / 256, rel=1e-3)
    assert coding_bound(0.01, 10.0, torch.bfloat16) == pytest.approx(0.005, rel=1e-2)


@pytest.mark.parametrize("plan", [plan_up(), plan_up(codec="int8_zstd", dither=True), plan_up(codec="qsgd")])
def test_messages_are_the_same_bits_again_and_of_another_round_others(plan: Plan) -> None:
    schema, before, after = one()
    first, again = (sent(schema, plan, after, before, 0.01)[0].entries[0].payload for _ in range(2))
    assert torch.equal(first, again)
    later = dataclasses.replace(ORIGIN, round=4), dataclasses.replace(ORIGIN, sender=2)
    for origin in later:
        coder = Coder(schema, plan)
        other = coder.encode(after, before, bounds={"weight": 0.01}, origin=origin)
        assert torch.equal(other.entries[0].payload, first) == (plan.codec == "sz3")
        assert other.tensors is not None
        assert bits(coder.decode(other.entries, before, origin=origin)) == bits(other.tensors)


def test_dithered_errors_average_out_among_equal_clients() -> None:
    schema, before, after = one()
    left = {}
    for dither in (False, True):
        plan = plan_up(dither=dither)
        found = []
        for sender in range(16):
            coder, origin = Coder(schema, plan), dataclasses.replace(ORIGIN, sender=sender)
            found.append(coder.encode(after, before, bounds={"weight": 0.05}, origin=origin).tensors)
        errors = torch.stack([tensors[0] for tensors in found if tensors]) - after[0]
        left[dither] = float(errors.mean(0).square().mean().sqrt() / errors.square().mean().sqrt())
    assert left[False] == pytest.approx(1.0, rel=1e-5) and left[True] == pytest.approx(1 / 4, rel=0.05)


def test_the_sender_may_leave_decoding_to_the_receiver() -> None:
    schema, before, after = one()
    encoded = Coder(schema, plan_up()).encode(after, before, bounds={"weight": 0.01}, origin=ORIGIN, decoded=False)
    assert encoded.tensors is None and encoded.losses[0].max_error is None
    wanted, _ = sent(schema, plan_up(), after, before, 0.01)
    assert bits([encoded.entries[0].payload]) == bits([wanted.entries[0].payload])


def test_an_entry_survives_the_way_through_bytes() -> None:
    model = net()
    schema = Schema.of(model)
    values = schema.take(model)
    encoded, received = sent(schema, plan_up(), values, None, 0.01)
    rebuilt = [
        Entry.received(
            index=entry.index,
            codec=entry.codec,
            bound=entry.bound,
            update_rms=entry.update_rms,
            raw_bytes=entry.raw_bytes,
            data=memoryview(bytearray(b"." + bytes(entry.data)))[1:],
        )
        for entry in encoded.entries
    ]
    assert bits(Coder(schema, plan_up()).decode(rebuilt, None, origin=ORIGIN)) == bits(received)


def test_measuring_is_of_parameters_and_leaves_counters_alone() -> None:
    model = net()
    schema = Schema.of(model)
    before = schema.take(model)
    after = [value + 1 if value.is_floating_point() else value for value in before]
    for payload in ("params", "delta"):
        measured = Coder(schema, plan_up(payload=payload)).measure(payload_of(schema, payload, before, after), before)
        for item, found in zip(schema.items, measured, strict=True):
            assert found.update_rms == pytest.approx(1.0 if item.kind == PARAMETER else 0.0, rel=1e-6), item.name
            if item.kind == DISCRETE:
                assert found.low == found.high == 0.0
    assert all(found.update_rms == 0 for found in Coder(schema, plan_up()).measure(after, None))
