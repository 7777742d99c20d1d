"""Emulated times and bytes of each cell against its configuration's run at the lowest k."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.benchmarks.invariance.measure import ALONE, CONFIGURATIONS
from experiments.common.tables import Found, disturbed, table

NEAR = 0.03
_HEADS = (
    "configuration",
    "where",
    "k",
    "S",
    "step, s",
    "off: %",
    "bytes a step x S",
    "off: %",
    "payload x S: %",
    "verdict",
)


@dataclass(frozen=True)
class Cell:
    """One point and the run that it is compared with; None if that is lacking or was refused."""

    point: Found
    base: Found | None

    @property
    def is_refused(self) -> bool:
        return "refused" in self.point["result"]

    @property
    def is_base(self) -> bool:
        return self.point is self.base

    def of(self, key: str) -> float:
        """Return a figure at full size: times are so already, bytes are S times fewer."""
        return full_size(self.point, key)

    def off(self, key: str) -> float | None:
        if self.base is None or self.is_refused:
            return None
        return self.of(key) / full_size(self.base, key) - 1

    @property
    def agrees(self) -> bool:
        """True if both time and bytes are near; a refused cell does not agree."""
        errors = [self.off(key) for key in ("step_s", "wan_bytes_step")]
        return all(error is not None and abs(error) <= NEAR for error in errors)


def full_size(point: Found, key: str) -> float:
    scale = 1 if key == "step_s" else point["asked"]["scale"]
    return float(point["result"][key] * scale)


def cells(points: Sequence[Found]) -> list[Cell]:
    """Return all cells in the order of the configurations; the run at the lowest k is one that was alone."""
    order = {name: index for index, name in enumerate(CONFIGURATIONS)}
    bases = {name: _base(name, points) for name in CONFIGURATIONS}
    ordered = sorted(points, key=lambda one: (order[one["asked"]["configuration"]], _place(one), one["asked"]["k"]))
    return [Cell(point, bases[point["asked"]["configuration"]]) for point in ordered]


def invariance(points: Sequence[Found]) -> str:
    found = cells(points)
    compared = [cell for cell in found if not cell.is_base]
    near = sum(cell.agrees for cell in compared)
    refused = sum(cell.is_refused for cell in compared)
    said = (
        f"{near} of {len(compared)} cells agree within {NEAR:.0%} in time and bytes with the lowest k"
        f" ({refused} refused, which counts as not agreeing)."
    )
    return f"{said}\n\n{table(_HEADS, map(_row, found))}"


def _place(point: Found) -> tuple[bool, str]:
    place = point["asked"]["place"]
    return place != ALONE, place


def _base(name: str, points: Sequence[Found]) -> Found | None:
    """Return the run at the lowest k that was not refused."""
    wanted = [
        {"configuration": name, "place": ALONE, "k": k, "scale": scale}
        for k, scale in CONFIGURATIONS[name].combinations
    ]
    ran = [one for asked in wanted for one in points if one["asked"] == asked and "refused" not in one["result"]]
    return ran[0] if ran else None


def _row(cell: Cell) -> list[str]:
    asked, found = cell.point["asked"], cell.point["result"]
    where = [asked["configuration"], asked["place"], str(asked["k"]), str(asked["scale"])]
    if cell.is_refused:
        return [*where, "-", "-", "-", "-", "-", "refused"]
    return [
        *(*where, f"{cell.of('step_s'):.4f}", _off(cell, "step_s")),
        *(f"{cell.of('wan_bytes_step') / 1e6:.2f} MB", _off(cell, "wan_bytes_step"), _off(cell, "payload_bytes_step")),
        found["verdict"] + disturbed(cell.point),
    ]


def _off(cell: Cell, key: str) -> str:
    error = cell.off(key)
    if cell.is_base:
        return "base"
    return "-" if error is None else f"{100 * error:+.1f}"
