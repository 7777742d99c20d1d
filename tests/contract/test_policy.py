"""Policy: which compressor a tensor goes to, that each does there what it does alone, and what all of it sends."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from compressors.base.compressor import Compressor, Layout, Route
from compressors.base.feedback import ErrorFeedback
from compressors.bf16 import BFloat16
from compressors.int8 import Int8
from compressors.none import Uncompressed
from compressors.parts.merging import in_lockstep
from compressors.policy import Policy
from compressors.powersgd import PowerSGD
from compressors.topk import TopK
from compressors.zstd import Zstd
from testbed.worker.laws.cases.lockstep import contexts, drive, reductions, tallied
from tests.contract.catalogue import make
from tests.contract.lockstep import reduce_all

LAYOUT = Layout(
    ((30, 40), (30,), (8, 8), (50, 60), (60,)),
    3,
    ("body.0.weight", "body.0.bias", "norm.weight", "head.weight", "head.bias"),
)
PIECES = dict(zip(LAYOUT.names, range(5), strict=True))


def _tensors(world_size: int, layout: Layout = LAYOUT, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(layout.numel, generator=generator) for _ in range(world_size)]


def _piece(flat: Tensor, name: str) -> Tensor:
    return torch.split(flat, LAYOUT.numels)[PIECES[name]]


def test_a_tensor_goes_to_the_first_rule_that_matches() -> None:
    rules = [
        {"names": "head.*", "min_dims": 2, "compressor": Int8()},
        {"max_dims": 1, "compressor": BFloat16()},
        {"names": ["*norm*", "no such"], "max_numel": 64, "compressor": Uncompressed()},
        {"min_numel": 1201, "compressor": Uncompressed()},
    ]
    policy = Policy(rules=rules, otherwise=TopK(density=0.1))
    groups = [(index, part.names, part.bucket) for index, part, _ in policy._groups(LAYOUT)]
    assert groups == [
        (0, ("head.weight",), 3),
        (1, ("body.0.bias", "head.bias"), 3),
        (2, ("norm.weight",), 3),
        (4, ("body.0.weight",), 3),
    ]


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_each_does_what_it_does_alone(world_size: int) -> None:
    def policies() -> list[Compressor]:
        rules = [{"names": "head.weight", "compressor": Int8()}, {"max_dims": 1, "compressor": Uncompressed()}]
        return [Policy(rules=rules, otherwise=TopK(density=0.1)) for _ in range(world_size)]

    ranks, tops = policies(), [ErrorFeedback(TopK(density=0.1)) for _ in range(world_size)]
    rest = Layout(((30, 40), (8, 8)))
    for step in range(3):
        tensors = _tensors(world_size, seed=step)
        means, _, sent = reduce_all(ranks, tensors, LAYOUT, Route.OWN, step=step)
        plain = torch.stack(tensors).mean(dim=0)
        for name in ("body.0.bias", "head.bias"):
            assert torch.allclose(_piece(means[0], name), _piece(plain, name), atol=1e-6)
        names = ("body.0.weight", "norm.weight")
        theirs = [torch.cat([_piece(t, name) for name in names]) for t in tensors]
        alone, _, alone_sent = reduce_all(tops, theirs, rest, Route.GATHER, step=step)
        assert torch.equal(torch.cat([_piece(means[0], name) for name in names]), alone[0])
        heads, _, head_sent = reduce_all(
            [Int8() for _ in tensors], [_piece(t, "head.weight") for t in tensors], Layout(((50, 60),)), Route.GATHER
        )
        assert torch.equal(_piece(means[0], "head.weight"), heads[0])
        assert sent == alone_sent + head_sent + 2 * (world_size - 1) * 4 * 90
        assert sent == ranks[0].sent_bytes(LAYOUT, world_size, Route.OWN, step=step)


def test_exchanges_of_a_kind_are_one() -> None:
    rules = [
        {"names": "head.weight", "compressor": PowerSGD(rank=2, feedback="off")},
        {"max_dims": 1, "compressor": Uncompressed()},
        {"max_numel": 64, "compressor": Int8()},
    ]
    ranks = [Policy(rules=rules, otherwise=TopK(density=0.1)) for _ in range(2)]
    _, _, tally = reductions(ranks, _tensors(2), LAYOUT, Route.OWN)
    # P with what is not compressed, and two payloads together; then Q.
    assert tally.exchanges == 3
    assert tally.sent_bytes == ranks[0].sent_bytes(LAYOUT, 2, Route.OWN)


def test_exchanges_of_unknown_size_stay_apart_and_all_come_right() -> None:
    layout = Layout(((500,),))

    def zstd() -> Compressor:
        return Zstd(inner=Int8())

    kinds: list[tuple[Callable[[], Compressor], Route]] = [
        (Uncompressed, Route.REDUCE_SUM),
        (zstd, Route.GATHER),
        (Int8, Route.TWO_SHOT),
        (BFloat16, Route.REDUCE_SUM),
        (Int8, Route.TWO_SHOT),
        (zstd, Route.TWO_SHOT),
    ]
    tensors = [_tensors(3, layout, seed) for seed in range(len(kinds))]
    outs = [[torch.empty(500) for _ in range(3)] for _ in kinds]
    ranks = []
    for rank in range(3):
        started = [
            kind().rounds(tensors[i][rank], contexts(layout, route, 3)[rank], out=outs[i][rank])
            for i, (kind, route) in enumerate(kinds)
        ]
        ranks.append(in_lockstep(started))
    tally = tallied(ranks)
    sent = 0
    for i, (kind, route) in enumerate(kinds):
        means, _, alone = reduce_all([kind() for _ in range(3)], tensors[i], layout, route)
        sent += alone
        assert all(torch.equal(out, means[0]) for out in outs[i])
    assert tally.sent_bytes == sent
    # one sum in float32 and one in bfloat16, one gathering, Int8's and Zstd's all_to_all; then three gatherings
    assert tally.exchanges == 5 + 3


def test_a_bucket_of_one_kind_is_reduced_where_it_lies() -> None:
    flat = torch.ones(LAYOUT.numel)
    rounds = Policy(otherwise=Uncompressed()).rounds(flat, contexts(LAYOUT, Route.OWN, 1)[0], out=flat)
    exchange = next(rounds)
    assert exchange.data[0].data_ptr() == flat.data_ptr()


def test_names_are_asked_for_only_where_a_rule_goes_by_them() -> None:
    bare = Layout(LAYOUT.shapes)
    by_name = Policy(rules=[{"max_dims": 1, "names": "*bias", "compressor": Int8()}], otherwise=TopK())
    matrices = Layout(((4, 5),))
    drive([by_name.rounds(torch.ones(20), contexts(matrices, Route.OWN, 1)[0], out=torch.empty(20))])
    with pytest.raises(ValueError, match=r"^rules\[0\]\.names=\['\*bias'\]: buckets have no names of parameters here"):
        reduce_all([by_name], _tensors(1), bare, Route.OWN)
    reduce_all([make("policy")], _tensors(1), bare, Route.OWN)


def test_residuals_follow_their_parameters_into_other_buckets() -> None:
    policy = make("policy", otherwise=TopK(density=0.01))
    reduce_all([policy], _tensors(1), LAYOUT, Route.OWN)
    others = [
        Layout(((50, 60), (30,)), 0, ("head.weight", "body.0.bias")),
        Layout(((60,),), 1, ("head.bias",)),
        Layout(((8, 8), (30, 40)), 2, ("norm.weight", "body.0.weight")),
    ]
    moved = policy.move_state(policy.state_dict(), [LAYOUT], others)
    before = policy.state_dict()["2"]["residuals"]["3/0/rule 2"]
    after = moved["2"]["residuals"]
    assert before.any()
    assert set(after) == {"0/0/rule 2", "2/0/rule 2"}
    assert torch.equal(torch.cat([after["2/0/rule 2"], after["0/0/rule 2"]]), before)


def test_feedback_is_each_ones_own_and_can_be_turned_off() -> None:
    def wrapped(policy: Compressor) -> list[bool]:
        assert isinstance(policy, Policy)
        return [isinstance(compressor, ErrorFeedback) for compressor in policy.compressors]

    rules = [{"names": "a", "compressor": Int8()}, {"names": "b", "compressor": TopK(feedback="off")}]
    assert wrapped(Policy(rules=rules, otherwise=TopK())) == [False, False, True]
    assert wrapped(Policy(rules=rules, otherwise=TopK(), feedback="off")) == [False, False, False]
    assert Policy(rules=rules, otherwise=TopK()).traits.feedback == "builtin"
    plain = Policy(rules=rules[:1], otherwise=Uncompressed()).traits
    assert plain.feedback == "none" and plain.contraction == Int8().traits.contraction
    assert [*Policy(otherwise=Int8(feedback="on"), feedback="on").validate(2)] == []
    harmed = Policy(rules=[{"compressor": make("qsgd", feedback="on")}], otherwise=TopK())
    assert [line.split(":")[0] for line in harmed.validate(2)] == ["rules[0].compressor.feedback=on"]


def test_what_is_asked_wrongly_is_said_all_at_once() -> None:
    with pytest.raises(ValueError, match=r"rules\[0\]") as caught:
        Policy(
            rules=[
                {"max_size": 3, "min_numel": -1, "compressor": TopK()},
                {"names": [7], "compressor": "topk"},
                "topk",  # type: ignore[list-item]
                {"compressor": TopK(feedback="momentum")},
            ],
            otherwise=None,  # type: ignore[arg-type]
        )
    assert str(caught.value).splitlines() == [
        "otherwise=None: must be a compressor, given as {_target_: …}",
        "rules[0].max_size=3: unknown; known: names, min_numel, max_numel, min_dims, max_dims, compressor",
        "rules[0].min_numel=-1: must be a whole number, at least 0",
        "rules[1].names=[7]: must be a pattern, or a list of them",
        "rules[1].compressor=topk: must be a compressor, given as {_target_: …}",
        "rules[2]=topk: must have a compressor, and may have names, min_numel, max_numel, min_dims, max_dims",
        "rules[3].compressor=TopK: takes over the optimizer's momentum, which belongs to all parameters",
    ]
