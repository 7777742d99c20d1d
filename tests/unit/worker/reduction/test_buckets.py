from __future__ import annotations

import torch
from torch import nn

from testbed.worker.reduction.buckets import Bucket, Buckets
from testbed.worker.reduction.fusion import grouped


def _model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 2))


def test_parameters_are_cut_in_the_order_backward_reaches_them() -> None:
    parameters = list(_model().parameters())
    groups = grouped(parameters, 4 * 80)
    assert [p for group in groups for p in group] == parameters[::-1]
    assert [sum(p.nbytes for p in group) for group in groups] == [4 * 26, 4 * 72, 4 * 32]
    assert [len(group) for group in grouped(parameters, 1)] == [1] * 6
    assert len(grouped(parameters, 10**9)) == 1


def test_frozen_parameters_have_no_bucket() -> None:
    model = _model()
    model[1].requires_grad_(False)
    assert sum(len(group) for group in grouped(model.parameters(), 10**9)) == 4


def test_buckets_are_ready_during_backward_with_the_right_gradients() -> None:
    torch.manual_seed(0)
    model, plain = _model(), _model()
    plain.load_state_dict(model.state_dict())
    seen: list[int] = []
    buckets = Buckets(grouped(model.parameters(), 4 * 80), lambda bucket: seen.append(bucket.layout.bucket))
    inputs = torch.randn(5, 4)
    for _ in range(2):
        seen.clear()
        plain.zero_grad()
        buckets.reset()
        model(inputs).sum().backward()
        assert seen == [0, 1, 2]
        buckets.flush()
        assert seen == [0, 1, 2]
        plain(inputs).sum().backward()
        for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
            assert ours.grad is not None and theirs.grad is not None
            assert torch.equal(ours.grad, theirs.grad)


def test_an_early_bucket_waits_for_the_ones_before_it_and_unused_ones_are_flushed() -> None:
    model = _model()
    seen: list[Bucket] = []
    buckets = Buckets(grouped(model.parameters(), 4 * 80), seen.append)
    buckets.reset()
    model[1](model[0](torch.randn(3, 4))).sum().backward()  # the last layer, bucket 0, takes no part
    assert seen == []
    buckets.flush()
    assert [bucket.layout.bucket for bucket in seen] == [0, 1, 2]
    assert not seen[0].flat[:18].any()
    assert seen[1].flat.any()


def test_what_is_written_to_a_bucket_is_the_gradient() -> None:
    model = _model()
    buckets = Buckets(grouped(model.parameters(), 10**9), lambda bucket: None)
    buckets.buckets[0].flat.fill_(3.0)
    assert all(p.grad is not None and bool((p.grad == 3).all()) for p in model.parameters())


def test_gradients_of_several_backwards_are_added_before_any_bucket_is_ready() -> None:
    torch.manual_seed(0)
    model, plain = _model(), _model()
    plain.load_state_dict(model.state_dict())
    seen: list[int] = []
    buckets = Buckets(grouped(model.parameters(), 4 * 80), lambda bucket: seen.append(bucket.layout.bucket))
    inputs = torch.randn(6, 4)
    buckets.reset()
    for number, part in enumerate(inputs.split(2)):
        assert seen == []
        (buckets.expect if number == 2 else buckets.hold)()
        model(part).sum().backward()
    assert seen == [0, 1, 2]
    plain(inputs).sum().backward()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert ours.grad is not None and theirs.grad is not None
        torch.testing.assert_close(ours.grad, theirs.grad)
