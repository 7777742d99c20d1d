"""The fitted constants and how well they did elsewhere: one JSON file with its provenance."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from testbed.analysis.simulator.model.constants import IDEAL, Constants
from testbed.analysis.simulator.model.network import Network
from testbed.analysis.simulator.model.step_plan import StepPlan
from testbed.analysis.simulator.model.traffic import traffic
from testbed.analysis.simulator.timeline.steps import follow
from testbed.analysis.simulator.validation import Validation, traits
from testbed.core.errors import InputError
from testbed.core.record.run_directory import write_json
from testbed.core.spec.run_spec import RunSpec

SCHEMA_VERSION = 1
DEFAULT_FILE = Path(__file__).resolve().parents[3] / "experiments" / "calibration" / "simulator.json"
_GOODPUTS = [0.90 + 0.005 * step for step in range(21)]
_MESSAGES_S = [1e-4 * step for step in range(21)]


@dataclass(frozen=True)
class Emulated:
    """What a run on the emulator gave; steps from the second on."""

    spec: RunSpec
    plan: StepPlan
    step_s: float
    payload_bytes: float
    """Of a step, all ranks."""
    wan_bytes: float
    """Likewise, on the wire, all WAN links."""

    def error(self, constants: Constants) -> float:
        """Of the predicted step time."""
        network = Network(self.spec.topology, constants, tcp=self.spec.tcp, dilation=self.spec.dilation)
        return follow(self.plan, network).step_s / self.step_s - 1

    def bytes_errors(self, constants: Constants) -> tuple[float, float | None]:
        """Of payload, and of bytes over the WAN where there is one."""
        sent = traffic(self.plan, self.spec.topology, constants)
        wan = sent.wan_wire_bytes / self.wan_bytes - 1 if self.wan_bytes else None
        return sent.payload_bytes / self.payload_bytes - 1, wan


@dataclass(frozen=True)
class Calibration:
    constants: Constants = IDEAL
    validation: Validation | None = None
    provenance: dict[str, Any] = field(default_factory=dict)
    """Machine, commit, date, and the runs it was fitted to."""


def fit(runs: Sequence[Emulated]) -> Constants:
    """The constants with which predicted step times, and bytes over the WAN, are off least: least squares of errors."""
    candidates = [Constants(goodput=g, message_s=m) for g, m in itertools.product(_GOODPUTS, _MESSAGES_S)]
    best = min(candidates, key=lambda constants: sum(run.error(constants) ** 2 for run in runs))
    acknowledged, message_bytes = _bytes_constants([run for run in runs if run.wan_bytes])
    return dataclasses.replace(best, acknowledged=acknowledged, message_bytes=message_bytes)


def _bytes_constants(runs: Sequence[Emulated]) -> tuple[float, float]:
    def share(run: Emulated, constants: Constants) -> float:
        return traffic(run.plan, run.spec.topology, constants).wan_wire_bytes / run.wan_bytes

    if not runs:
        return 0.0, 0.0
    ideal = np.array([share(run, IDEAL) for run in runs])
    units = (Constants(acknowledged=1.0), Constants(message_bytes=1.0))
    columns = np.array([[share(run, unit) for unit in units] for run in runs]) - ideal[:, None]
    solved = np.linalg.lstsq(columns, 1.0 - ideal, rcond=None)[0]
    return max(0.0, float(solved[0])), max(0.0, float(solved[1]))


def validate(constants: Constants, runs: Sequence[Emulated]) -> Validation:
    wan = (run.bytes_errors(constants)[1] for run in runs)
    return Validation(
        tuple(run.error(constants) for run in runs),
        tuple(traits(run.spec) for run in runs),
        tuple(error for error in wan if error is not None),
    )


def write(path: Path, calibration: Calibration) -> None:
    known = calibration.validation
    data = {
        "schema_version": SCHEMA_VERSION,
        "constants": dataclasses.asdict(calibration.constants),
        "validation": None if known is None else dataclasses.asdict(known),
        "provenance": calibration.provenance,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, data)


def known(path: Path | None = None) -> Calibration:
    """That in the file, or else the repository's; where it has none, of an ideal network and validated on nothing.

    Raises:
        InputError: as of `read`.
    """
    return read(path or DEFAULT_FILE) if path is not None or DEFAULT_FILE.exists() else Calibration()


def read(path: Path) -> Calibration:
    """
    Raises:
        InputError: it cannot be read, or is none of this version.
    """
    try:
        data = json.loads(path.read_text())
        if data["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"version {data['schema_version']}, not {SCHEMA_VERSION}")
        found = data["validation"]
        validation = None
        if found is not None:
            validation = Validation(tuple(found["errors"]), tuple(found["traits"]), tuple(found.get("wan_errors", ())))
        return Calibration(Constants(**data["constants"]), validation, data["provenance"])
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"calibration {path}: {type(error).__name__}: {error}") from error
