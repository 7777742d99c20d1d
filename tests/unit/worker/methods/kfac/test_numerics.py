"""K-FAC's factors, inverses and preconditioned gradients, against sums, solves and differences written out."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from testbed.core.errors import RunError
from testbed.worker.methods.kfac import inverses, kronecker_factors
from testbed.worker.methods.kfac.kronecker_factors import Layer

LAYERS: dict[str, tuple[Callable[[], Layer], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(5, 3), (12, 5)),
    "linear of tokens": (lambda: nn.Linear(5, 3, bias=False), (12, 7, 5)),
    "convolution": (lambda: nn.Conv2d(2, 3, 3), (12, 2, 6, 5)),
    "strides": (lambda: nn.Conv2d(2, 3, (3, 2), stride=(2, 1), padding=(1, 2), bias=False), (12, 2, 6, 5)),
    "dilation": (lambda: nn.Conv2d(2, 3, (2, 3), padding=1, dilation=(3, 1)), (12, 2, 6, 5)),
    "same, uneven": (lambda: nn.Conv2d(2, 3, (2, 4), padding="same", dilation=(1, 3)), (12, 2, 6, 5)),
    "valid": (lambda: nn.Conv2d(2, 3, 2, padding="valid"), (12, 2, 6, 5)),
}
# torch says that it copies what it pads unevenly
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")
each_layer = pytest.mark.parametrize("kind", LAYERS)


def _layer(kind: str) -> tuple[Layer, Tensor]:
    torch.manual_seed(0)
    make, shape = LAYERS[kind]
    return make(), torch.randn(shape)


def _factors(module: Layer, inputs: Tensor, loss: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """As a run has them: of the gradient of `loss` by backward."""
    outputs = module(inputs)
    (gradient,) = torch.autograd.grad(loss(outputs), outputs)
    return kronecker_factors.input_factor(module, inputs), kronecker_factors.output_factor(module, gradient)


def _symmetric(size: int, rank: int | None = None) -> Tensor:
    rows = torch.randn(size, 2 * size if rank is None else rank)
    return rows @ rows.T / rows.shape[1]


@each_layer
def test_the_mean_of_the_factors_of_parts_is_the_factor_of_the_batch(kind: str) -> None:
    module, inputs = _layer(kind)
    whole = _factors(module, inputs, lambda outputs: outputs.pow(3).flatten(1).sum(1).mean())
    parts = [_factors(module, part, lambda o: o.pow(3).flatten(1).sum(1).mean()) for part in inputs.chunk(4)]
    for factor, of_parts in zip(whole, zip(*parts, strict=True), strict=True):
        torch.testing.assert_close(torch.stack(of_parts).mean(0), factor)


@each_layer
def test_factors_have_the_dimensions_foretold_and_are_symmetric(kind: str) -> None:
    module, inputs = _layer(kind)
    factors = _factors(module, inputs, torch.Tensor.sum)
    assert kronecker_factors.places(module, inputs) == (module(inputs)[0, 0].numel() if inputs.ndim == 4 else 1)
    assert tuple(len(factor) for factor in factors) == kronecker_factors.dimensions(module)
    for factor in factors:
        assert factor.dtype == torch.float32 and not factor.requires_grad
        torch.testing.assert_close(factor, factor.T)


@each_layer
def test_the_input_factor_has_the_order_of_the_weights_gradient(kind: str) -> None:
    """Of half the squared outputs, by sample, the gradient is W A: for a convolution only if each patch is laid out,
    padded and moved as the layer itself does."""
    module, inputs = _layer(kind)
    outputs = module(inputs)
    samples = len(inputs) if isinstance(module, nn.Conv2d) else outputs[..., 0].numel()
    (0.5 * outputs.pow(2).sum() / samples).backward()
    columns = [module.weight.flatten(1)] + ([] if module.bias is None else [module.bias[:, None]])
    weight = torch.cat(columns, 1).detach()
    torch.testing.assert_close(
        kronecker_factors.gradient_matrix(module),
        weight @ kronecker_factors.input_factor(module, inputs),
        rtol=1e-4,
        atol=1e-5,
    )


def test_the_output_factor_is_the_second_moment_of_single_losses_gradients() -> None:
    torch.manual_seed(0)
    inputs, convolution = torch.randn(4, 2, 5, 5), nn.Conv2d(2, 3, 3)
    _, factor = _factors(convolution, inputs, lambda outputs: outputs.pow(3).sum() / 4)
    single = 3 * convolution(inputs).detach().pow(2)  # of one loss, [4, 3, 3, 3]
    torch.testing.assert_close(factor, torch.einsum("nihw,njhw->ij", single, single) / (4 * 9))
    linear, rows = nn.Linear(5, 3), torch.randn(6, 2, 5)
    _, factor = _factors(linear, rows, lambda outputs: outputs.pow(3).sum() / 12)
    single = 3 * linear(rows).detach().pow(2)
    torch.testing.assert_close(factor, torch.einsum("nti,ntj->ij", single, single) / 12)


def test_at_one_place_a_convolution_is_a_linear_layer() -> None:
    torch.manual_seed(0)
    convolution, linear = nn.Conv2d(3, 4, (3, 2)), nn.Linear(18, 4)
    linear.load_state_dict({"weight": convolution.weight.flatten(1), "bias": convolution.bias})
    images = torch.randn(8, 3, 3, 2)
    found = []
    for module, inputs in ((convolution, images), (linear, images.flatten(1))):
        outputs = module(inputs)
        outputs.retain_grad()
        outputs.pow(3).flatten(1).sum(1).mean().backward()
        assert outputs.grad is not None
        inverse_a = inverses.inverse(kronecker_factors.input_factor(module, inputs), 0.1, "A")[0]
        inverse_g = inverses.inverse(kronecker_factors.output_factor(module, outputs.grad), 0.1, "G")[0]
        found.append(inverses.precondition(kronecker_factors.gradient_matrix(module), inverse_a, inverse_g))
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-4)


def _factorizing(outputs: int) -> tuple[nn.Linear, Tensor, Tensor]:
    """A layer, inputs and targets such that the Fisher matrix of the sum of absolute errors *is* A (x) G: each input
    comes with each sign of the gradient that there is, so that the two are independent in the sample too."""
    torch.manual_seed(0)
    module = nn.Linear(3, outputs).double()
    signs = torch.tensor([[1.0, 1.0], [1.0, 1.0], [1.0, -1.0]], dtype=torch.float64)[:, :outputs]
    inputs = torch.randn(9, 3, dtype=torch.float64).repeat_interleave(len(signs), 0)
    targets = module(inputs).detach() - 2 * signs.repeat(9, 1)
    return module, inputs, targets


def _losses(module: nn.Linear, inputs: Tensor, targets: Tensor) -> Tensor:
    return (module(inputs) - targets).abs().sum(1)


def _differences(module: nn.Linear, inputs: Tensor, targets: Tensor) -> Tensor:
    """Gradients of single losses by central differences: [samples, g, a]."""
    step = 1e-4
    single = torch.zeros(len(inputs), module.out_features, module.in_features + 1, dtype=torch.float64)
    with torch.no_grad():
        for row, column in itertools.product(*(range(size) for size in single.shape[1:])):
            parameter = module.bias[row] if column == module.in_features else module.weight[row, column]
            kept = parameter.clone()
            parameter.copy_(kept + step)
            single[:, row, column] = _losses(module, inputs, targets)
            parameter.copy_(kept - step)
            single[:, row, column] -= _losses(module, inputs, targets)
            parameter.copy_(kept)
    return single / (2 * step)


@pytest.mark.parametrize("outputs", [1, 2])
def test_the_fisher_matrix_of_differences_is_the_product_of_the_factors(outputs: int) -> None:
    module, inputs, targets = _factorizing(outputs)
    single = _differences(module, inputs, targets).flatten(1)
    fisher = single.T @ single / len(inputs)
    a, g = _factors(module, inputs, lambda given: (given - targets).abs().sum(1).mean())
    if outputs == 1:
        assert g.item() == pytest.approx(1.0)
    else:
        assert abs(g[0, 1].item()) > 0.3  # not just the identity
    torch.testing.assert_close(torch.kron(g, a).double(), fisher, rtol=0, atol=1e-6)


@pytest.mark.parametrize("outputs", [1, 2])
def test_where_the_factors_are_exact_a_gradient_is_preconditioned_by_the_fisher_matrix(outputs: int) -> None:
    module, inputs, targets = _factorizing(outputs)
    single = _differences(module, inputs, targets)
    fisher = single.flatten(1).T @ single.flatten(1) / len(inputs)
    _losses(module, inputs, targets).mean().backward()
    gradient = kronecker_factors.gradient_matrix(module)
    torch.testing.assert_close(gradient.double(), single.mean(0), rtol=0, atol=1e-6)
    natural = torch.linalg.solve(fisher, gradient.double().flatten()).view_as(gradient)
    a, g = _factors(module, inputs, lambda given: (given - targets).abs().sum(1).mean())
    by_inverse = inverses.precondition(gradient, inverses.inverse(a, 1e-6, "A")[0], inverses.inverse(g, 1e-6, "G")[0])
    by_eigen = inverses.precondition_eigen(gradient, inverses.eigen(a, "A"), inverses.eigen(g, "G"), 1e-6)
    for found in (by_inverse, by_eigen):
        torch.testing.assert_close(found.double(), natural, rtol=1e-3, atol=1e-4)


def test_preconditioning_solves_the_damped_product() -> None:
    torch.manual_seed(0)
    a, g, gradient = _symmetric(4), _symmetric(3), torch.randn(3, 4)
    damped_a, damped_g = a + 0.3 * torch.eye(4), g + 0.2 * torch.eye(3)
    expected = torch.linalg.solve(torch.kron(damped_g, damped_a), gradient.flatten()).view(3, 4)
    by_columns = torch.linalg.solve(torch.kron(damped_a, damped_g), gradient.T.flatten()).view(4, 3).T
    torch.testing.assert_close(expected, by_columns)
    found = inverses.precondition(gradient, inverses.inverse(a, 0.3, "A")[0], inverses.inverse(g, 0.2, "G")[0])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_the_eigen_form_damps_the_product_and_agrees_with_cholesky_where_that_is_the_same() -> None:
    torch.manual_seed(0)
    a, g, gradient = _symmetric(4), _symmetric(3, rank=2), torch.randn(3, 4)
    found = inverses.precondition_eigen(gradient, inverses.eigen(a, "A"), inverses.eigen(g, "G"), 0.3)
    expected = torch.linalg.solve(torch.kron(g, a) + 0.3 * torch.eye(12), gradient.flatten()).view(3, 4)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    # G = I: A (x) I + damping I = (A + damping I) (x) I
    found = inverses.precondition_eigen(gradient, inverses.eigen(a, "A"), inverses.eigen(torch.eye(3), "G"), 0.3)
    expected = inverses.precondition(gradient, inverses.inverse(a, 0.3, "A")[0], torch.eye(3))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_noise_below_the_least_eigenvalue_is_nothing() -> None:
    vectors, values = inverses.eigen(torch.diag(torch.tensor([2.0, 1e-11, 1e-9])), "A")
    assert values.tolist() == pytest.approx([0.0, 1e-9, 2.0], rel=1e-6, abs=0)
    torch.testing.assert_close(vectors.abs(), torch.eye(3)[:, [1, 2, 0]])


@pytest.mark.parametrize("bias", [True, False])
def test_a_gradient_is_copied_out_and_written_back_in_place(bias: bool) -> None:
    torch.manual_seed(0)
    module = nn.Conv2d(2, 3, 3, bias=bias)
    flat = torch.randn(54 + 3 * bias)  # as views of a bucket
    module.weight.grad = flat[:54].view_as(module.weight)
    if module.bias is not None:
        module.bias.grad = flat[54:]
    before, matrix = flat.clone(), kronecker_factors.gradient_matrix(module)
    assert matrix.shape == (3, 18 + bias)
    kronecker_factors.write_gradient(module, 2 * matrix)
    assert torch.equal(flat, 2 * before)
    assert torch.equal(matrix[:, :18].flatten(), before[:54])  # a copy: the clip still has what it was


def test_a_layer_without_gradient_is_named() -> None:
    with pytest.raises(RunError, match=r"Linear\(in_features=2.*no gradient"):
        kronecker_factors.gradient_matrix(nn.Linear(2, 2))


def test_a_frozen_bias_has_no_column() -> None:
    module = nn.Linear(4, 2)
    assert module.bias is not None
    module.bias.requires_grad_(False)
    module(torch.ones(3, 4)).sum().backward()
    assert kronecker_factors.dimensions(module) == (4, 2)
    assert kronecker_factors.input_factor(module, torch.ones(3, 4)).shape == (4, 4)
    assert kronecker_factors.gradient_matrix(module).shape == (2, 4)


def test_what_is_supported() -> None:
    yes = [nn.Linear(2, 2), nn.Conv2d(2, 2, 3, stride=2, padding="valid", dilation=2)]
    circular = nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular")
    no = [nn.Conv2d(2, 2, 3, groups=2), circular, nn.Conv1d(2, 2, 3), nn.BatchNorm2d(2), nn.Embedding(2, 2)]
    assert all(map(kronecker_factors.supports, yes)) and not any(map(kronecker_factors.supports, no))
    assert not kronecker_factors.supports(nn.Linear(2, 2).requires_grad_(False))


def test_attention_never_calls_its_projection_although_its_form_is_supported() -> None:
    """Why layers are taken by what is seen to run."""
    attention, called = nn.MultiheadAttention(4, 2), []
    assert kronecker_factors.supports(attention.out_proj)
    attention.out_proj.register_forward_pre_hook(lambda module, inputs: called.append(module))
    attention(*[torch.randn(3, 1, 4)] * 3)
    assert not called


@pytest.mark.parametrize("size", [1, 2, 7])
def test_a_triangle_holds_all_of_a_symmetric_matrix(size: int) -> None:
    torch.manual_seed(0)
    matrix = _symmetric(size)
    matrix = matrix + matrix.T
    packed = kronecker_factors.pack(matrix)
    assert packed.tolist() == [matrix[i, j].item() for i in range(size) for j in range(i, size)]
    assert torch.equal(kronecker_factors.pack(matrix.triu()), packed)
    assert torch.equal(kronecker_factors.unpack(packed, size), matrix)
    flat = torch.zeros(len(packed) + 2)
    kronecker_factors.pack(matrix, out=flat[1:-1])
    assert torch.equal(flat[1:-1], packed) and flat[0] == flat[-1] == 0


def test_the_new_has_the_weight_of_decay() -> None:
    running, kept = torch.eye(2), torch.full((2, 2), 3.0)
    kronecker_factors.moving_average(running, kept, 0.95)
    torch.testing.assert_close(running, torch.tensor([[2.9, 2.85], [2.85, 2.9]]))
    assert (kept == 3.0).all()
