"""Plans of a direction, and the feedback of what is sent up."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from compressors.none import Uncompressed
from compressors.policy import Policy
from compressors.topk import TopK
from testbed.worker.server.plan import Plan
from testbed.worker.server.tensors import Coder
from tests.unit.worker.server_models import ORIGIN, bits, one


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(ValueError, match="direction=left") as caught:
        Plan(direction="left", payload="all", codec="gzip", algorithm="best", cutoff=-1, lossless="lz4")
    lines = str(caught.value).splitlines()
    assert [line.partition("=")[0] for line in lines] == [
        *("direction", "payload", "algorithm", "lossless", "cutoff", "codec")
    ]


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"direction": "down", "payload": "grad"}, "payload=grad: unknown; known: params, delta"),
        ({"feedback": True}, "use payload=delta"),
        ({"direction": "down", "payload": "delta", "feedback": True}, "would be added twice"),
        ({"payload": "delta", "feedback": True, "codec": "raw"}, "codec=raw loses nothing"),
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
    for round_number in range(6):
        step = 0.02 * torch.randn(40, 48, generator=generator)
        encoded = _encode(coder, step)
        assert encoded.entries[0].update_rms == pytest.approx(float(step.square().mean().sqrt()), rel=1e-6)
        given += step
        assert encoded.tensors is not None
        if round_number == 2:  # it does not arrive
            coder.take_back(encoded)
        else:
            got += encoded.tensors[0]
    assert coder.residuals is not None
    left = coder.residuals.of("weight")
    assert left is not None and float(left.abs().max()) > 1e-3
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


def test_a_compressor_may_be_given_and_sends_what_it_promises() -> None:
    schema, _, after = one()
    plan = Plan(direction="down", payload="delta", codec=TopK(density=0.25))
    encoded = _encode(Coder(schema, plan), after[0])
    assert encoded.entries[0].codec == "compressor" and encoded.entries[0].coded_bytes == 12 + 8 * 480
    assert encoded.tensors is not None and int(encoded.tensors[0].count_nonzero()) == 480


def _encode(coder: Coder, step: Tensor):  # type: ignore[no-untyped-def]
    return coder.encode([step], None, bounds={"weight": 0.03}, origin=ORIGIN)
