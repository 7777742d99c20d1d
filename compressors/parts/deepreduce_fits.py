"""Curves that stand for sorted values: fit-poly and fit-dexp of DeepReduce. A library: no compressor is defined here.

Sorting loses which value is which entry's: each value's place in the order is sent too, in ceil(log2 k) bits.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

from compressors.base.payload import NonFiniteError
from compressors.base.streams import Stream
from compressors.parts.bits import BitReader, BitWriter, Bytes, Integers
from compressors.parts.deepreduce_values import ValueCodec, Values, as_bytes, floats

DEGREE = 5
_COEFFICIENTS = DEGREE + 1
_LARGEST = float(np.finfo(np.float32).max)
_STEEPEST = 60.0
"""Exponents beyond it are no fit of anything; e to it is finite in float32."""


class _Fit(ValueCodec):
    """Curves have values that are finite: a fit of huge ones may lead out of float32, and is cut off there."""

    loses = None
    unbiased = False
    carries_non_finite = False

    def _within(self, fitted: NDArray[np.float64], count: int) -> Values:
        if not np.isfinite(fitted).all():
            raise self._refused(count, "its curve holds NaN or infinity")
        return _clipped(fitted)


class FitPoly(_Fit):
    """Sorted values, those of each sign in at most `segments` stretches, a polynomial of degree 5 for each.

    Stretches are cut where the curve is farthest from its chord, the farthest of all first. Coefficients are found by
    least squares, in Chebyshev polynomials of a place scaled to [-1, 1].
    Wire: values that are not negative and stretches of theirs, 2 uint32; number of stretches, uint32; where each ends,
    uint32; 6 float32 for each; places of values, by planes; about 28 bytes a stretch and ceil(log2 k) bits a value.
    Differs from the paper: the number of stretches is a parameter, since that of the paper (the square root of how much
    slopes differ) depends on the unit of values.
    """

    number = 3

    def __init__(self, segments: int) -> None:
        self.segments = segments

    def encode(self, values: Values, stream: Stream) -> Bytes:
        ordered, places = _sorted(values, values, "fit_poly")
        not_negative = int((ordered >= 0).sum())
        cut = [*_cut(ordered, 0, not_negative, self.segments)]
        positive_ends = len(cut)
        cut += _cut(ordered, not_negative, len(ordered), self.segments)
        coefficients = np.zeros((len(cut), _COEFFICIENTS))
        start = 0
        for row, end in zip(coefficients, cut, strict=True):
            degree = min(DEGREE, end - start - 1)
            basis = chebyshev.chebvander(_scaled(end - start), degree)
            row[: degree + 1] = np.linalg.lstsq(basis, ordered[start:end], rcond=None)[0]
            start = end
        head = np.array([not_negative, positive_ends, len(cut), *cut], dtype="<u4").view(np.uint8)
        return np.concatenate([head, as_bytes(_clipped(coefficients.reshape(-1))), _packed(places)])

    def decode(self, data: Bytes, count: int) -> Values:
        if len(data) < 12:
            raise self._refused(count, f"{len(data)} bytes are less than its head")
        stretches = struct.unpack_from("<III", data[:12].tobytes())[2]
        body = 12 + 4 * stretches * (1 + _COEFFICIENTS)
        expected = body + _places_bytes(count)
        if stretches > 2 * self.segments or len(data) != expected:
            raise self._refused(count, f"{stretches} stretches in {len(data)} bytes, expected {expected}")
        ends = np.frombuffer(data[12 : 12 + 4 * stretches].tobytes(), dtype="<u4").astype(np.int64)
        if (np.diff(ends, prepend=0) <= 0).any() or (int(ends[-1]) if stretches else 0) != count:
            raise self._refused(count, "its stretches do not cover them")
        coefficients = floats(data[12 + 4 * stretches : body]).astype(np.float64).reshape(-1, _COEFFICIENTS)
        fitted, start = np.zeros(count), 0
        with np.errstate(all="ignore"):
            for row, end in zip(coefficients, ends.tolist(), strict=True):
                fitted[start:end] = chebyshev.chebval(_scaled(end - start), row)
                start = end
        return self._within(fitted, count)[self._places(data[body:], count)]

    def bits(self, count: int) -> float:
        return 8 * (12 + 28 * min(2 * self.segments, 1 + count // _COEFFICIENTS)) + count * _place_bits(count)

    def _places(self, data: Bytes, count: int) -> Integers:
        return _unpacked(data, count, f"fit_poly code of {count} values")


class FitDExp(_Fit):
    """Sorted magnitudes as a sum of two exponentials, a e^(p x) + c e^(q x), x from 0 to 1; signs apart.

    In closed form: with S the integral of y from 0 and SS that of S, by trapezoids, y is fitted by least squares to
    A SS + B S + C x + D; p and q are (B +- sqrt(B^2 + 4 A)) / 2, and a and c follow by least squares. Where the root is
    not real it counts as 0; p and q are kept within 60 of 0.
    Wire: p, q, a, c, float32; a sign bit for each value; places of values, by planes;
    16 bytes and 1 + ceil(log2 k) bits a value.
    """

    number = 4

    def encode(self, values: Values, stream: Stream) -> Bytes:
        ordered, places = _sorted(values, np.abs(values), "fit_dexp")
        return np.concatenate(
            [as_bytes(_clipped(np.array(_double_exponential(ordered)))), _signs(values), _packed(places)]
        )

    def decode(self, data: Bytes, count: int) -> Values:
        named = f"fit_dexp code of {count} values"
        signs = 16 + -(-count // 8)
        if len(data) != (expected := signs + _places_bytes(count)):
            raise self._refused(count, f"expected {expected} bytes, found {len(data)}")
        p, q, a, c = floats(data[:16]).astype(np.float64)
        x = _from_zero(count)
        with np.errstate(all="ignore"):
            fitted = self._within(a * np.exp(p * x) + c * np.exp(q * x), count)
        negative = np.unpackbits(data[16:signs], count=count, bitorder="little")
        return fitted[_unpacked(data[signs:], count, named)] * (1 - 2 * negative.astype(np.float32))

    def bits(self, count: int) -> float:
        return 128 + count * (1 + _place_bits(count))


def _clipped(values: NDArray[np.float64]) -> Values:
    return np.clip(values, -_LARGEST, _LARGEST).astype(np.float32)


def _sorted(values: Values, by: Values, name: str) -> tuple[NDArray[np.float64], Integers]:
    """(`by` from the largest to the smallest, of each value its place there)."""
    if not np.isfinite(values).all():
        raise NonFiniteError(f"{name}: the values hold NaN or infinity; the training has diverged")
    order = np.argsort(-by, kind="stable")
    places = np.empty(len(by), dtype=np.int64)
    places[order] = np.arange(len(by))
    return by[order].astype(np.float64), places


def _cut(ordered: NDArray[np.float64], start: int, end: int, most: int) -> list[int]:
    """Where stretches of `ordered` from `start` to `end` end; each is long enough for a fit."""
    if start == end:
        return []
    open_ = [(*_farthest(ordered, start, end), start, end)]
    while len(open_) < most:
        distance, knot, first, last = max(open_)
        if distance <= 0:
            break
        open_.remove((distance, knot, first, last))
        open_ += [(*_farthest(ordered, a, b), a, b) for a, b in ((first, knot), (knot, last))]
    return sorted(last for *_, last in open_)


def _farthest(ordered: NDArray[np.float64], start: int, end: int) -> tuple[float, int]:
    """(how far from its chord the curve is where it is farthest, the place), among those that may be cut at."""
    candidates = slice(start + _COEFFICIENTS, end - _COEFFICIENTS + 1)
    if candidates.start >= candidates.stop:
        return 0.0, start
    chord = np.linspace(ordered[start], ordered[end - 1], end - start)[_COEFFICIENTS : end - start - _COEFFICIENTS + 1]
    distances = np.abs(ordered[candidates] - chord)
    place = int(distances.argmax())
    return float(distances[place]), candidates.start + place


def _double_exponential(y: NDArray[np.float64]) -> tuple[float, float, float, float]:
    x = _from_zero(len(y))
    largest = float(y.max(initial=0.0)) or 1.0
    y = y / largest
    single, double = _integral(y, x), _integral(_integral(y, x), x)
    a, b, _, _ = np.linalg.lstsq(np.stack([double, single, x, np.ones_like(x)], axis=1), y, rcond=None)[0]
    root = max(0.0, b * b + 4 * a) ** 0.5
    p, q = (float(np.float32(min(max((b + sign * root) / 2, -_STEEPEST), _STEEPEST))) for sign in (1, -1))
    first, second = np.linalg.lstsq(np.stack([np.exp(p * x), np.exp(q * x)], axis=1), y, rcond=None)[0]
    return p, q, float(first * largest), float(second * largest)


def _integral(y: NDArray[np.float64], x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate([[0.0], np.cumsum((y[1:] + y[:-1]) / 2 * np.diff(x))])


def _scaled(count: int) -> NDArray[np.float64]:
    return np.linspace(-1.0, 1.0, count) if count > 1 else np.zeros(count)


def _from_zero(count: int) -> NDArray[np.float64]:
    return np.linspace(0.0, 1.0, count)


def _signs(values: Values) -> Bytes:
    return np.packbits(np.signbit(values), bitorder="little")


def _place_bits(count: int) -> int:
    return max(0, count - 1).bit_length()


def _places_bytes(count: int) -> int:
    return -(-count * _place_bits(count) // 8)


def _packed(places: Integers) -> Bytes:
    writer = BitWriter()
    writer.planes(places, _place_bits(len(places)))
    return writer.packed()


def _unpacked(data: Bytes, count: int, named: str) -> Integers:
    reader = BitReader(data, named)
    places = reader.planes(count, _place_bits(count))
    reader.end()
    # a place above the last is none a sender makes, and the last is as good an answer as any
    return np.minimum(places, max(0, count - 1))
