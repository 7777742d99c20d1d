"""K-FAC's inverses, damping and clip: what fails, and by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from testbed.core.errors import RunError
from testbed.worker.methods.kfac import inverses


def _symmetric(size: int) -> Tensor:
    rows = torch.randn(size, 2 * size)
    return rows @ rows.T / rows.shape[1]


def test_an_inverse_leaves_the_factor_as_it_was_and_is_exactly_symmetric() -> None:
    torch.manual_seed(0)
    factor = _symmetric(40)
    before = factor.clone()
    found = inverses.inverse(factor, 0.1, "A")[0]
    inverses.eigen(factor, "A")
    assert torch.equal(factor, before) and torch.equal(found, found.T) and found.dtype == torch.float32
    torch.testing.assert_close(found @ (factor + 0.1 * torch.eye(40)), torch.eye(40), rtol=0, atol=1e-4)


@pytest.mark.parametrize("damping", [1e-2, 1.0, 100.0])
def test_what_single_precision_cannot_invert_is_inverted_in_double(damping: float) -> None:
    torch.manual_seed(0)
    vector = torch.randint(1, 4, (40,)).float()
    factor = 1e8 * torch.outer(vector, vector)  # of rank 1, exactly
    in_single, _ = torch.linalg.cholesky_ex(factor + damping * torch.eye(40))
    assert not torch.allclose(in_single.diagonal()[1:].square(), torch.tensor(damping), rtol=0.2)
    found = inverses.inverse(factor, damping, "A")[0]
    wanted = torch.linalg.inv(factor.double() + damping * torch.eye(40, dtype=torch.float64))
    assert torch.linalg.norm(found - wanted) < 1e-3 * torch.linalg.norm(wanted)


def test_a_factor_that_needs_more_damping_gets_it() -> None:
    factor = torch.diag(torch.tensor([1.0, -0.05]))  # as rounding may leave it, but larger
    torch.testing.assert_close(inverses.inverse(factor, 1e-3, "A")[0], torch.diag(torch.tensor([1 / 1.1, 1 / 0.05])))


def test_a_hopeless_factor_is_named() -> None:
    with pytest.raises(RunError, match=r"G of conv1 \(2 x 2\).*0\.001.*up to 1;.*strategy\.damping"):
        inverses.inverse(-2 * torch.eye(2), 1e-3, "G of conv1")[0]
    for function in (lambda f: inverses.inverse(f, 1e-3, "A of fc")[0], lambda f: inverses.eigen(f, "A of fc")):
        for bad in (math.nan, math.inf):
            with pytest.raises(RunError, match=r"A of fc \(3 x 3\) is not finite"):
                function(torch.full((3, 3), bad))


def test_eigenvectors_that_single_precision_does_not_find_are_taken_from_double(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    eigh = torch.linalg.eigh

    def only_double(matrix: Tensor) -> tuple[Tensor, Tensor]:
        if matrix.dtype == torch.float32:
            raise torch.linalg.LinAlgError("did not converge")
        values, vectors = eigh(matrix)
        return values, vectors

    monkeypatch.setattr(torch.linalg, "eigh", only_double)
    vectors, values = inverses.eigen(torch.diag(torch.tensor([3.0, 2.0])), "A")
    assert vectors.dtype == values.dtype == torch.float32 and values.tolist() == pytest.approx([2.0, 3.0])


def test_damping_is_split_by_the_mean_eigenvalues() -> None:
    # 12 / 3 = 4 over 2 / 8 = 1 / 4: pi = 4
    assert inverses.split_damping(12.0, 3, 2.0, 8, 0.25) == pytest.approx((2.0, 0.125))
    of_a, of_g = inverses.split_damping(0.7, 5, 31.0, 2, 0.03)
    assert of_a * of_g == pytest.approx(0.03)
    assert inverses.split_damping(0.0, 3, 2.0, 8, 0.25) == inverses.split_damping(1.0, 3, 0.0, 8, 0.25) == (0.5, 0.5)
    for bad in (math.nan, math.inf, -1.0):
        with pytest.raises(RunError, match="traces"):
            inverses.split_damping(1.0, 3, bad, 8, 0.25)


def test_what_moves_from_one_factor_to_the_other_does_not_change_the_step() -> None:
    torch.manual_seed(0)
    a, g, gradient = _symmetric(4), _symmetric(3), torch.randn(3, 4)
    steps = []
    for scale in (1.0, 50.0):
        left, right = scale * a, g / scale
        of_a, of_g = inverses.split_damping(left.trace().item(), 4, right.trace().item(), 3, 0.1)
        steps.append(
            inverses.precondition(gradient, inverses.inverse(left, of_a, "A")[0], inverses.inverse(right, of_g, "G")[0])
        )
    torch.testing.assert_close(steps[0], steps[1], rtol=1e-4, atol=1e-5)


def test_steps_are_clipped_by_what_they_change() -> None:
    v, gradient = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]])  # <V, dW> = 11
    pairs = [(v, gradient, 0.1), (2 * v, gradient, 0.2)]  # 0.11 + 0.88
    assert inverses.clip_scale(pairs, 0.001) == pytest.approx(math.sqrt(0.001 / 0.99))
    assert inverses.clip_scale(iter(pairs), 2.0) == inverses.clip_scale(pairs, None) == 1.0
    assert inverses.clip_scale([(v, -gradient, 0.1)], 0.001) == pytest.approx(math.sqrt(0.001 / 0.11))
    assert inverses.clip_scale([(0 * v, gradient, 0.1)], 0.001) == inverses.clip_scale([], 0.001) == 1.0
    with pytest.raises(RunError, match="not finite"):
        inverses.clip_scale([(v * math.nan, gradient, 0.1)], 0.001)


def test_the_clip_adds_up_in_double_precision() -> None:
    large, ones = torch.tensor([1e8, 1.0, -1e8]), torch.ones(3)
    assert inverses.clip_scale([(large, ones, 1.0)], 0.25) == pytest.approx(0.5)  # 1 is lost in single precision
