"""Plans of a direction, and the feedback of what is sent up."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from compressors.base.compressor import Compressor
from compressors.none import Uncompressed
from compressors.policy import Policy
from compressors.sz3 import SZ3
from compressors.topk import TopK
from testbed.worker.methods.parameter_server.messages.coder import Coder
from testbed.worker.methods.parameter_server.messages.plan import Plan
from testbed.worker.methods.parameter_server.messages.plan_request import asked_plan
from tests.unit.worker.server_models import ORIGIN, bits, one


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(ValueError, match="direction=left") as caught:
        Plan(direction="left", payload="all", codec="gzip", algorithm="best", cutoff=-1, lossless="lz4")
    lines = str(caught.value).splitlines()
    assert [line.partition("=")[0] for line in lines] == [
        *("direction", "payload", "codec", "algorithm", "cutoff", "lossless")
    ]
    with pytest.raises(ValueError, match="payload=grad") as caught:
        Plan(direction="down", payload="grad", codec="raw", importance=True)
    named = [line.partition("=")[0] for line in str(caught.value).splitlines()]
    assert named == ["payload", "importance", "importance"]


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"direction": "down", "payload": "grad"}, "payload=grad: unknown; known: params, delta"),
        ({"direction": "down", "payload": "delta", "feedback": True}, "would be added twice"),
        ({"payload": "delta", "feedback": True, "codec": "raw"}, "codec=raw loses nothing"),
        ({"importance": "yes"}, "importance=yes: must be true or false"),
        ({"direction": "down", "importance": True}, "importance=True: the server has no gradients"),
        ({"importance": True, "codec": "fp16"}, "importance=True: codec=fp16 does not go by bounds; use sz3 or int8_z"),
        (
            {"importance": True, "codec": TopK(), "payload": "delta"},
            "importance=True: codec=TopK does not go by bounds",
        ),
        ({"dither": True, "codec": "fp16"}, "codec=fp16 does not round to even steps"),
        ({"dither": True, "codec": "topk", "payload": "delta"}, "codec=topk does not round to even steps"),
        ({"codec": "topk"}, "codec=TopK: sends parameters' changes little by little"),
        ({"codec": "powersgd", "payload": "delta"}, "works among all ranks, never point to point"),
        ({"codec": "qsgd", "payload": "delta", "feedback": True}, "errs by chance, and residuals would add up"),
        ({"codec": TopK(feedback="ef21"), "payload": "delta"}, "codec.feedback=ef21: must be auto"),
        ({"codec": Policy(otherwise=Uncompressed())}, "codec=Policy: works among all ranks"),
    ],
)
def test_plans_that_cannot_work_are_refused(params: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Plan(**{"direction": "up", **params})  # type: ignore[arg-type]


@pytest.mark.parametrize("codec", ["topk", "sz3", "int8_zstd"])
def test_with_feedback_what_was_decoded_adds_up_to_what_was_sent(codec: str) -> None:
    schema, _, _ = one()
    plan = Plan(direction="up", payload="delta", codec=codec, feedback=True)
    coder = Coder(schema, plan)
    generator = torch.Generator().manual_seed(4)
    given, got = torch.zeros(40, 48, dtype=torch.float64), torch.zeros(40, 48, dtype=torch.float64)
    for _ in range(6):
        step = 0.02 * torch.randn(40, 48, generator=generator)
        encoded = _encode(coder, step)
        assert encoded.entries[0].update_rms == pytest.approx(float(step.square().mean().sqrt()), rel=1e-6)
        given += step
        assert encoded.tensors is not None
        got += encoded.tensors[0]
    left = coder.state_dict()["residuals"]["weight"]
    assert float(left.abs().max()) > 1e-3
    torch.testing.assert_close(got + left, given, rtol=0, atol=1e-6)


def test_feedback_goes_on_from_a_checkpoint() -> None:
    schema, _, _ = one()
    plan = Plan(direction="up", payload="delta", codec="topk", feedback=True)
    coder, other = Coder(schema, plan), Coder(schema, plan)
    generator = torch.Generator().manual_seed(5)
    steps = [torch.randn(40, 48, generator=generator) for _ in range(3)]
    _encode(coder, steps[0])
    state = coder.state_dict()
    _encode(coder, steps[1])
    other.load_state_dict(state)
    _encode(other, steps[1])
    ours, theirs = _encode(coder, steps[2]), _encode(other, steps[2])
    assert bits([ours.entries[0].payload]) == bits([theirs.entries[0].payload])
    assert bits([ours.entries[0].payload]) != bits([_encode(Coder(schema, plan), steps[2]).entries[0].payload])


@pytest.mark.parametrize("codec", ["topk", "onebit"])
def test_what_is_kept_is_forgotten_by_residuals_and_by_compressors_that_keep_their_own(codec: str) -> None:
    schema, _, _ = one()
    coders = [Coder(schema, asked_plan("up", {"codec": codec}, Uncompressed())) for _ in range(2)]
    generator = torch.Generator().manual_seed(6)
    steps = [torch.randn(40, 48, generator=generator) for _ in range(2)]
    kept, forgotten = (_encode(coder, steps[0]) and coder for coder in coders)
    forgotten.forget()
    fresh = Coder(schema, asked_plan("up", {"codec": codec}, Uncompressed()))
    wanted = bits([_encode(fresh, steps[1]).entries[0].payload])
    assert bits([_encode(forgotten, steps[1]).entries[0].payload]) == wanted
    assert bits([_encode(kept, steps[1]).entries[0].payload]) != wanted


@pytest.mark.parametrize(
    ("direction", "given", "compressor", "told"),
    [
        ("up", {"codex": "sz3"}, Uncompressed(), "codex: unknown; known: payload, codec"),
        ("up", {"codec": "gzip"}, Uncompressed(), "codec=gzip: unknown; known: compressor, sz3"),
        ("up", {"payload": "all"}, Uncompressed(), "payload=all: unknown; known: params, delta, grad"),
        ("down", {"payload": "grad"}, Uncompressed(), "payload=grad: unknown; known: params, delta"),
        ("up", {}, SZ3(error_bound=0.5), "goes by strategy.bound, not by compressor.error_bound"),
        ("up", {}, SZ3(feedback="plain"), "goes by strategy.bound, not by compressor.error_bound or compressor.feed"),
        ("up", {"codec": "dgc"}, Uncompressed(), "DGC wants momentum, which goes with the optimizer's own steps"),
    ],
)
def test_what_a_direction_is_asked_is_refused_by_name(
    direction: str, given: dict[str, object], compressor: Compressor, told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        asked_plan(direction, given, compressor)


def test_feedback_is_what_the_codec_wants_that_is_asked_for_and_each_direction_has_its_own() -> None:
    compressor = TopK()
    up, down = (asked_plan(direction, {}, compressor) for direction in ("up", "down"))
    assert up.feedback and not down.feedback
    assert len({id(compressor), id(up.codec), id(down.codec)}) == 3
    assert asked_plan("up", {"codec": "topk", "payload": "grad"}, Uncompressed()).feedback
    assert not asked_plan("up", {"codec": "int8"}, compressor).feedback
    for payload in ("params", "delta", "grad"):
        assert asked_plan("up", {"codec": "sz3", "payload": payload}, compressor).feedback
    assert not asked_plan("down", {"codec": "sz3"}, compressor).feedback
    assert not asked_plan("up", {"codec": "fp16"}, compressor).feedback
    assert asked_plan("up", {}, SZ3(algorithm="interp")).algorithm == "interp"
    assert asked_plan("up", {}, Uncompressed()).codec == "raw"


def test_a_compressor_may_be_given_and_sends_what_it_promises() -> None:
    schema, _, after = one()
    plan = Plan(direction="down", payload="delta", codec=TopK(density=0.25))
    encoded = _encode(Coder(schema, plan), after[0])
    assert encoded.entries[0].codec == "compressor" and encoded.entries[0].coded_bytes == 12 + 8 * 480
    assert encoded.tensors is not None and int(encoded.tensors[0].count_nonzero()) == 480


def _encode(coder: Coder, step: Tensor):  # type: ignore[no-untyped-def]
    return coder.encode([step], None, bounds={"weight": 0.03}, origin=ORIGIN)
