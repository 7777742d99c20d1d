"""Measured operations of K-FAC on an accelerator, and how long a strategy's own work takes by them.

Between two measured sizes seconds are a power of the size, which is exact for any power law. Below the smallest size an
operation takes what the smallest takes: never too little. Beyond the largest dimension there is nothing to go by.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.core.device.factored_layer import CHOLESKY, EIGEN, FACTOR, PRODUCT
from testbed.core.device.profile import WorkTimes
from testbed.core.errors import InputError

FORMAT, VERSION = "longhaul-operations", 1
OPERATIONS = (FACTOR, CHOLESKY, EIGEN)
_FOLDER = Path(__file__).parent / "data"


@dataclass(frozen=True, kw_only=True)
class Operations:
    """Seconds of K-FAC's operations on one device. The fields are the keys of the file."""

    device: str
    precision: str
    software: Mapping[str, str]
    """Versions, by name."""
    factor_rows: int
    """Rows of the matrix X whose product X^T X a factor is."""
    seconds: Mapping[str, tuple[tuple[int, float], ...]]
    """Seconds by dimension of each of `OPERATIONS`: (dimension, seconds), ascending."""
    provenance: Mapping[str, Any]

    @property
    def dimensions(self) -> tuple[int, ...]:
        """Dimensions that were measured, ascending; the same of each operation."""
        return tuple(dimension for dimension, _ in self.seconds[FACTOR])

    @property
    def most(self) -> int:
        """Largest dimension."""
        return self.dimensions[-1]

    def inverse_s(self, operation: str, dimension: int) -> float:
        """Return the seconds of one inverse, or of all eigenvectors."""
        return _between(self.seconds[operation], dimension)

    def product_s(self, flop: float) -> float:
        """Return the seconds of one product of matrices, as a measured factor of as many FLOPs has.

        Beyond the largest it goes on at that one's rate, which no longer depends on size.
        """
        known = [(2.0 * self.factor_rows * dimension**2, seconds) for dimension, seconds in self.seconds[FACTOR]]
        largest, seconds = known[-1]
        return seconds * flop / largest if flop > largest else _between(known, flop)

    def piece_s(self, piece: WorkTimes) -> float:
        """Return the seconds of a piece of work that `faults` finds nothing wrong with."""
        if piece.operation in (CHOLESKY, EIGEN):
            return self.inverse_s(piece.operation, piece.size)
        return piece.calls * self.product_s(piece.flop / piece.calls)

    def faults(self, work: Sequence[WorkTimes]) -> Iterator[str]:
        """Yield why pieces of work have no seconds, with what is allowed."""
        if unknown := [piece for piece in work if piece.operation not in (*OPERATIONS, PRODUCT)]:
            yield (
                f"it does not say how long {len(unknown)} pieces of the strategy's own work take (the first is"
                f" {unknown[0].name}); it has K-FAC's {', '.join(OPERATIONS)}; use device=paced, which goes by FLOPs"
            )
        if beyond := [one for one in work if one.operation in OPERATIONS and one.size > self.most]:
            largest = max(beyond, key=lambda piece: piece.size)
            yield (
                f"it has K-FAC's operations of dimensions up to {self.most:,}, and {len(beyond)} are of larger ones"
                f" (the largest is {largest.name}, of {largest.size:,}); use another model, or device=paced, which goes"
                " by FLOPs"
            )

    def unknowns(self, work: Sequence[WorkTimes]) -> Iterator[str]:
        """Yield phrases for what is not known of these seconds."""
        by_dimension = [piece for piece in work if piece.operation in OPERATIONS]
        known = self.dimensions
        least = known[0]
        if any(piece.size not in known and piece.size > least for piece in by_dimension):
            yield "how long K-FAC's operations of dimensions between measured ones take (interpolated)"
        if any(piece.size < least for piece in by_dimension):
            yield f"how long K-FAC's operations of dimensions below {least} take (as of {least}, the smallest measured)"
        if any(piece.operation in (FACTOR, PRODUCT) for piece in work):
            yield (
                f"how long factors of other than {self.factor_rows:,} rows and preconditioning take (as measured"
                " factors of as many FLOPs; rows are there already, without the unfolding of convolutions)"
            )

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, "version": VERSION, **dataclasses.asdict(self)}


@functools.cache
def operations(accelerator: str) -> Operations:
    """Return the measured operations of an accelerator, as scripts/device_timelines.py wrote them."""
    path = _FOLDER / f"{accelerator}-kfac.json"
    return operations_of(json.loads(path.read_text()), path.name)


def operations_of(data: Any, where: str) -> Operations:
    """Return the operations that JSON data hold.

    Args:
        where: Beginning of each fault, such as the name of the file.

    Raises:
        InputError: They hold none; a line for each fault.
    """
    keys = ("format", "version", *Operations.__annotations__)
    if not isinstance(data, Mapping) or (data.get("format"), data.get("version")) != (FORMAT, VERSION):
        raise InputError(f'{where}: is no table of operations: "format" must be "{FORMAT}", "version" {VERSION}')
    if unlike := [key for key in (*data, *keys) if (key in data) != (key in keys)]:
        raise InputError(*(f"{where}: {key}: {'is no key' if key in data else 'is missing'}" for key in unlike))
    if faults := [f"{where}: {fault}" for fault in _faults(data)]:
        raise InputError(*faults)
    seconds = {name: tuple((int(size), float(s)) for size, s in rows) for name, rows in data["seconds"].items()}
    return Operations(**{**{key: data[key] for key in Operations.__annotations__}, "seconds": seconds})


def timed(
    work: Sequence[WorkTimes],
    known: Operations,
    where: str,
    factor: float = 1.0,
    lengths_s: Mapping[str, float] | None = None,
) -> tuple[WorkTimes, ...]:
    """Return pieces of work with their seconds on a device.

    Args:
        where: Beginning of each fault.
        factor: Factor by which the device takes longer than the one whose operations are known.
        lengths_s: Seconds of all pieces of a kind together, where those are known; their pieces share them as they
            share the measured seconds.

    Raises:
        InputError: Pieces have no seconds; a line for each operation.
    """
    if faults := [f"{where}: {fault}" for fault in known.faults(work)]:
        raise InputError(*faults)
    seconds = [known.piece_s(piece) for piece in work]
    factors: dict[str, float] = {}
    for kind, length_s in (lengths_s or {}).items():
        whole_s = sum(one_s for piece, one_s in zip(work, seconds, strict=True) if piece.kind == kind)
        factors[kind] = length_s / whole_s if whole_s else factor
    return tuple(
        dataclasses.replace(piece, seconds=one_s * factors.get(piece.kind, factor))
        for piece, one_s in zip(work, seconds, strict=True)
    )


def _between(known: Sequence[tuple[float, float]], size: float) -> float:
    """Return the seconds of a size up to the largest one that is known."""
    if size <= known[0][0]:
        return known[0][1]
    (low, low_s), (high, high_s) = next(pair for pair in itertools.pairwise(known) if size <= pair[1][0])
    return low_s * math.pow(high_s / low_s, math.log(size / low) / math.log(high / low))


def _faults(data: Mapping[str, Any]) -> Iterator[str]:
    if not _is_number(data["factor_rows"]):
        yield f"factor_rows={data['factor_rows']!r}: must be a number above 0"
    tables = data["seconds"]
    if not isinstance(tables, Mapping) or set(tables) != set(OPERATIONS):
        yield f"seconds: must have {', '.join(OPERATIONS)}"
        return
    for name, rows in tables.items():
        if not isinstance(rows, Sequence) or len(rows) < 2 or not all(map(_is_row, rows)):
            yield f"seconds.{name}: must be [dimension, seconds] of two dimensions or more, all above 0"
        elif any(low[0] >= high[0] for low, high in itertools.pairwise(rows)):
            yield f"seconds.{name}: dimensions must ascend"
        elif [size for size, _ in rows] != [size for size, _ in tables[FACTOR]]:
            yield f"seconds.{name}: dimensions must be those of {FACTOR}"


def _is_row(row: Any) -> bool:
    return isinstance(row, Sequence) and len(row) == 2 and all(map(_is_number, row))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
