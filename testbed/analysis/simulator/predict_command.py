"""`python -m testbed.analysis predict`: a question as JSON in, a prediction as text or JSON out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from testbed.analysis.simulator import calibration
from testbed.analysis.simulator.model.step_plan import plan
from testbed.analysis.simulator.prediction import KIND, Prediction, predict
from testbed.analysis.simulator.validation import Standing
from testbed.core.costs.sockets import LIBRARIES
from testbed.core.device.profile import Profile
from testbed.core.errors import InputError
from testbed.core.spec.run_spec import UNCHANGED, RunSpec
from testbed.core.units import format_size, format_time

# A prediction for people.

_MAX_LINKS = 5


def text(found: Prediction) -> str:
    spec, times, sent = found.spec, found.times, found.traffic
    regions = len({node.region for node in spec.topology.nodes})
    names = (spec.topo, spec.workload.name, spec.strategy.name, spec.compressor.name, spec.device.name)
    rows = [
        ("step time", format_time(times.step_s)),
        ("  computing", f"{format_time(found.plan.compute_s)} ({found.device_times} times)"),
        ("  exposed communication", format_time(times.exposed_s)),
        ("first step", format_time(times.first_step_s)),
        ("bound by", found.bound_by),
        ("payload a step", f"{format_size(sent.payload_bytes)} (dense {format_size(found.dense_bytes)})"),
        ("over the WAN a step", format_size(sent.wan_wire_bytes)),
    ]
    busiest = sorted(sent.wan, key=lambda link: link.carrying_s, reverse=True)
    for link in busiest[:_MAX_LINKS]:
        share = f"{link.carrying_s / times.step_s:.0%} of its rate"
        rows.append((f"  {link.name} from {link.source}", f"{format_size(link.wire_bytes)}, {share}"))
    if len(busiest) > _MAX_LINKS:
        rows.append((f"  and {len(busiest) - _MAX_LINKS} more", ""))
    width = max(len(head) for head, _ in rows) + 2
    kind = KIND if found.library is None else f"{KIND} with {found.library} over sockets"
    title = f"{'  '.join(names)}  {spec.workers} workers, {regions} regions  ({kind})"
    lines = [title, "", *(f"{head:{width}}{value}".rstrip() for head, value in rows), ""]
    lines += [*(f"not checked: {unknown}" for unknown in found.unknowns), *found.standing.lines()]
    return "\n".join(lines)


def answer(question: dict[str, Any], calibration_file: Path | None = None) -> Prediction:
    """
    Args:
        question: {"spec", "cpu", "device"}, the latter two profiles; perhaps "library".

    Raises:
        InputError: it is no such question, or one that cannot be answered.
    """
    try:
        spec = RunSpec.from_json(question["spec"])
        cpu, device = Profile.from_json(question["cpu"]), Profile.from_json(question["device"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"predict: not a spec with its profiles: {type(error).__name__}: {error}") from error
    library = question.get("library")
    if library is not None and library not in LIBRARIES:
        raise InputError(f"--library {library}: known are {', '.join(LIBRARIES)}")
    return predicted(spec, cpu, device, calibration.known(calibration_file), library=library)


def predicted(
    spec: RunSpec, cpu: Profile, device: Profile, known: calibration.Calibration, *, library: str | None = None
) -> Prediction:
    """
    Raises:
        InputError: the simulator does not know such runs, or the profiles are of another one.
    """
    if spec.transform != UNCHANGED:  # once steps are alike, it has done what it does
        if cpu.switched is None or device.switched is None:
            raise InputError(f"predict: transform={spec.transform.name}: the profile has no times of the changed model")
        cpu, device = cpu.switched, device.switched
    standing = Standing.of(spec, known.validation, library)
    return predict(spec, plan(spec, cpu, device), known.constants, standing, device, library=library)


def command(source: str, calibration_file: Path | None, *, as_json: bool, output: Path | None = None) -> str:
    """What to print for the question in the file `source`, or on standard input for `-`.

    Args:
        output: a file that takes the prediction as JSON besides.
    """
    try:
        question = json.loads(sys.stdin.read() if source == "-" else Path(source).read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"predict {source}: {error}") from error
    found = answer(question, calibration_file)
    as_text = json.dumps(found.to_json(), indent=2)
    if output is not None:
        output.write_text(as_text + "\n")
    return as_text if as_json else text(found)
