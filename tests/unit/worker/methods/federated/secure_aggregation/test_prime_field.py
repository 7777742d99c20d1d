"""Exact arithmetic modulo a prime, uniform elements, and floats as elements."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.worker.methods.federated.secure_aggregation.fixed_point import FixedPoint
from testbed.worker.methods.federated.secure_aggregation.prime_field import MERSENNE_31, PrimeField, Randomness

FIELD = PrimeField()
P = MERSENNE_31


@pytest.mark.parametrize("terms", [1, 64, 65, 300])
def test_products_of_the_largest_elements_are_exact(terms: int) -> None:
    left, right = np.full((2, terms), P - 1), np.full((terms, 3), P - 1)
    assert (FIELD.matmul(left, right) == terms % P).all()  # (-1) (-1), so many times
    drawn = Randomness(b"products").elements(2 * terms, P)
    expected = sum(int(a) * int(b) for a, b in zip(drawn[:terms], drawn[terms:], strict=True)) % P
    assert FIELD.matmul(drawn[None, :terms], drawn[terms:, None]).item() == expected


def test_sums_of_the_largest_elements_are_exact() -> None:
    assert FIELD.sum([np.full(3, P - 1)] * 1000).tolist() == [P - 1000] * 3


@pytest.mark.parametrize("prime", [3, 5, 101, P])
def test_an_element_times_its_inverse_is_one(prime: int) -> None:
    values = np.unique(np.concatenate([np.arange(1, min(prime, 200)), [prime - 1]]))
    assert (values * PrimeField(prime).inverse(values) % prime == 1).all()


def test_values_of_a_polynomial_tell_its_others() -> None:
    def value(x: int) -> int:
        return (7 * x**3 + (P - 2) * x + 5) % P

    known, wanted = np.array([0, 3, 9, P - 1]), np.array([1, 2, 1000])
    rows = np.array([[value(int(x))] for x in known])
    assert FIELD.matmul(FIELD.lagrange(known, wanted), rows)[:, 0].tolist() == [value(1), value(2), value(1000)]


@pytest.mark.parametrize("prime", [5, 17, 257])
def test_elements_are_uniform(prime: int) -> None:
    counts = np.bincount(Randomness(b"uniform").elements(200 * prime, prime), minlength=prime)
    assert len(counts) == prime
    chi_squared = float(((counts - 200) ** 2 / 200).sum())
    assert chi_squared < prime + 6 * (2 * prime) ** 0.5


def test_elements_of_a_seed_come_again_and_others_never() -> None:
    drawn = [Randomness(seed).elements(50, P).tolist() for seed in (b"a", b"a", b"b", None, None)]
    assert drawn[0] == drawn[1]
    assert len({tuple(row) for row in drawn}) == 4
    source = Randomness(b"a")
    assert source.elements(50, P).tolist() == drawn[0] != source.elements(50, P).tolist()


def test_elements_travel_in_four_bytes_and_what_is_none_is_refused() -> None:
    elements = np.array([0, 1, P - 1])
    body = FIELD.to_bytes(elements)
    assert body == bytes.fromhex("00000000 01000000 feffff7f")
    assert FIELD.from_bytes(body, 3).tolist() == elements.tolist()
    with pytest.raises(ValueError, match="12 bytes, expected 16 of 4 elements"):
        FIELD.from_bytes(body, 4)
    with pytest.raises(ValueError, match=r"from 2147483647 to 2147483647: must be in \[0, 2147483647\)"):
        FIELD.from_bytes(bytes.fromhex("ffffff7f"), 1)
    with pytest.raises(ValueError, match="from -1"):
        FIELD.checked(np.array([-1]), 1)
    with pytest.raises(ValueError, match=r"float64 of shape \(1,\)"):
        FIELD.checked(np.array([1.0]), 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("prime", "why"), [(2, "at least 3"), (91, "divided by 7"), (2**31, "at most"), ("7", "whole")]
)
def test_what_is_no_prime_is_refused(prime: int, why: str) -> None:
    with pytest.raises(ValueError, match=f"prime={prime}: .*{why}"):
        PrimeField(prime)


def test_floats_are_whole_steps() -> None:
    fixed = FixedPoint(clients=3, largest=2.0, step=0.5)
    encoded = fixed.encode(np.array([0.0, 0.7, 0.8, -0.5, -2.0]))
    assert encoded.tolist() == [0, 1, 2, P - 1, P - 4]
    assert fixed.decode(encoded).tolist() == [0, 0.5, 1.0, -0.5, -2.0]


def test_the_largest_sums_of_either_sign_do_not_wrap_and_more_is_refused() -> None:
    fixed = FixedPoint(clients=5, largest=10.0, step=1.0, prime=101)  # 5 * 10 = 50 = (101 - 1) / 2
    for value in (10.0, -10.0):
        summed = PrimeField(101).sum([fixed.encode(np.array([value]))] * 5)
        assert fixed.decode(summed).tolist() == [5 * value]
    for changed in ({"clients": 6}, {"largest": 10.1}, {"step": 0.99}):
        with pytest.raises(ValueError, match="wrap beyond 50"):
            FixedPoint(**{"clients": 5, "largest": 10.0, "step": 1.0, "prime": 101, **changed})
    with pytest.raises(ValueError, match=r"take step=1\.25 or more"):
        FixedPoint(clients=6, largest=10.0, step=1.0, prime=101)
    FixedPoint(clients=6, largest=10.0, step=1.25, prime=101)
    with pytest.raises(ValueError, match="50 clients or fewer"):
        FixedPoint(clients=51, largest=1.0, step=1.0, prime=101)
    with pytest.raises(ValueError, match="inf steps"):
        FixedPoint(clients=1, largest=1e300, step=1e-300)


def test_stochastic_rounding_is_right_on_average_and_off_by_less_than_a_step() -> None:
    fixed = FixedPoint(clients=1, largest=4.0, step=0.5, rounding="stochastic")
    values = np.repeat([0.1, -1.3, 3.9, 2.0, -4.0], 4000)
    decoded = fixed.decode(fixed.encode(values, Randomness(b"round")))
    assert (np.abs(decoded - values) < 0.5).all()
    means = decoded.reshape(5, -1).mean(axis=1)
    # a step of 0.5 deviates by 0.25 at most, and a mean of 4000 by 0.004; what is a step already is never rounded
    assert np.abs(means - [0.1, -1.3, 3.9, 2.0, -4.0]).max() < 0.02
    assert means[3:].tolist() == [2.0, -4.0]
    with pytest.raises(ValueError, match="needs randomness"):
        fixed.encode(values)


def test_values_that_do_not_fit_are_refused_and_never_clipped() -> None:
    fixed = FixedPoint(clients=1, largest=1.0, step=0.5)
    with pytest.raises(ValueError, match="4 of 5 values are beyond largest=1 or not finite"):
        fixed.encode(np.array([1.0, 1.01, -2.0, float("nan"), float("-inf")]))


def test_all_faults_of_a_fixed_point_are_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"clients=0.*\nlargest=-1.*\nstep=0.*\nrounding=up.*\nprime=4"):
        FixedPoint(clients=0, largest=-1.0, step=0.0, rounding="up", prime=4)
