"""`longhaul run`: all that can be wrong is found first, at once; then the run is made and its end is told."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.core.errors import InputError, LonghaulError, MachineError
from testbed.core.spec.run_spec import ACCELERATORS, PROCESSOR, SHAPERS, TCP_PROFILES, RunSpec
from testbed.orchestrator.config.config import Resolved, resolve
from testbed.orchestrator.machine.checks import Check
from testbed.orchestrator.machine.lock import require_free
from testbed.orchestrator.machine.rights import OF_ROOT, Rights
from testbed.orchestrator.run import preflight
from testbed.orchestrator.run.offers.taking import taking_first
from testbed.orchestrator.run.questions.plugins import check_parts
from testbed.orchestrator.run.questions.replay_needs import memory_faults
from testbed.orchestrator.run.seal import seal_killed_or_say
from testbed.orchestrator.terminal.summary_table import final_table
from testbed.orchestrator.terminal.terminal import say, show, tell

if TYPE_CHECKING:
    from testbed.orchestrator.run.supervisor import Outcome

_LATE_FIRST_S = 600.0
"""First change that many runs do not reach; times by a clock of the day or of a machine are later, too."""


def run(
    overrides: Sequence[str],
    runs_root: Path,
    *,
    quiet: bool = False,
    as_json: bool = False,
    share: bool = False,
    tell_run_id: int | None = None,
    rights: Rights = OF_ROOT,
    words: Sequence[str] = (),
    fix: bool = False,
) -> int:
    """Make the run that `overrides` ask for and return its exit status.

    Args:
        words: Command line of a user's script, behind `--`.
        fix: Take the first of what is offered where the run is refused.
        tell_run_id: a descriptor that takes the run's id as soon as it has one, and is closed then.

    Raises:
        InputError, MachineError: with every fault of the input and every lack of the machine together.
    """
    resolved = functools.partial(resolve, runs_root=runs_root, words=words)
    # the display writes to standard output, which under --json is the summary's alone
    options: dict[str, Any] = {"quiet": quiet, "display_fd": 2 if as_json else 1, "share": share, "rights": rights}

    def make(texts: Sequence[str]) -> Outcome:
        spec = checked_spec(resolved(texts), runs_root, rights, share=share)
        from testbed.orchestrator.run.supervisor import supervise  # Mininet and all: only if it is known to be there

        seal_killed_or_say(runs_root)
        for lost in rights.lost():
            say(f"rootless, so without {lost}")
        if spec.events and spec.events[0].t_s >= _LATE_FIRST_S:
            first_s = spec.events[0].t_s
            say(f"events: the first change is due {first_s:g} s after step 1, and a shorter run has none")
        return supervise(spec, runs_root=runs_root, tell_run_id=tell_run_id, **options)

    outcome = taking_first(overrides, make, resolved, say, fix=fix)
    if as_json:
        tell(json.dumps(outcome.summary, indent=2, allow_nan=False))
    elif quiet:
        _tell_essentials(outcome.summary, _short(outcome.run.path))
    else:
        show(final_table(outcome.summary, _short(outcome.run.path)))
    return outcome.exit_status


def _tell_essentials(summary: Mapping[str, Any], path: Path) -> None:
    """Three words a script can read; the folder last, which may have spaces. Why not to believe it is no result."""
    tell(f"{summary['run_id']} {summary['verdict']} {path}")
    for reason in summary["reasons"]:
        say(reason)


def checked_spec(resolved: Resolved, runs_root: Path, rights: Rights = OF_ROOT, *, share: bool = False) -> RunSpec:
    """The spec, if it can be run here.

    On a machine that another run has, only what the user wrote is checked: more would take that run's cores, and what
    it holds, such as its port, is no lack.

    Args:
        share: True if it may run beside others.

    Raises:
        InputError: something in the input is at fault; lacks of the machine are told along with it.
        MachineError: the input is well, but the machine lacks something.
    """
    faults = [*resolved.faults, *_beyond(rights, resolved)]
    try:
        require_free(share=share)
        lines = preflight.lacking(machine_checks(resolved, runs_root, rights))
        is_busy = False
    except MachineError as error:
        lines, is_busy = error.faults, True
    # starting torch takes seconds, so defaults are not checked again for somebody who misspelt a topology
    checkable = resolved.stand_in is not None and (resolved.parts_given or not (faults or lines)) and not is_busy
    broken: LonghaulError | None = None
    found: dict[str, Any] = {}
    if checkable and resolved.stand_in is not None and resolved.stand_in.program == "training":
        try:
            answer = check_parts(resolved.stand_in)
            faults += memory_faults(resolved.stand_in, answer)
            lines = (*lines, *answer.get("lacks", ()))
            found = {key: answer.get(key) for key in ("data_hash", "data_licence", "start_hash")}
        except InputError as error:
            faults += error.faults
        except LonghaulError as error:
            broken = error
    if faults:
        raise InputError(*dict.fromkeys(faults), *lines, *(broken.faults if broken else ()))
    if lines:
        raise MachineError(*lines, *(broken.faults if broken else ()))
    if broken:
        raise broken
    return dataclasses.replace(resolved.spec, **found)


def _beyond(rights: Rights, resolved: Resolved) -> Iterator[str]:
    """What is asked and cannot be done with these rights."""
    if rights.rootless and os.geteuid() == 0:
        yield "--rootless: this is root, who loses limits and priorities by it: leave it out, or call as another user"
    if rights.rootless and resolved.settings.get("memory_limit") is not None:
        yield "memory_limit: only root can limit a node's memory: leave out --rootless, or the limit"
    if rights.rootless and resolved.settings.get("runtime") == "docker":
        yield "runtime=docker: only root can join a container's network: leave out --rootless, or the runtime"
    if rights.rootless and (asked := resolved.settings.get("accelerator", PROCESSOR)) != PROCESSOR:
        yield f"accelerator={asked}: only root can give nodes devices: leave out --rootless, or the accelerator"


def machine_checks(resolved: Resolved, runs_root: Path, rights: Rights = OF_ROOT) -> list[Check]:
    """What this machine has and lacks for it, as far as it is known what is asked."""
    settings: dict[str, Any] = resolved.settings
    keys = ("metrics_port", "workers", "tcp", "shaper", "runtime", "accelerator")
    known = {key: settings[key] for key in keys if key in settings}
    if known.get("tcp") not in TCP_PROFILES:  # a fault of the input, reported as such
        known.pop("tcp", None)
    if known.get("shaper") not in SHAPERS:  # likewise
        known.pop("shaper", None)
    if known.get("accelerator") not in ACCELERATORS:  # likewise
        known.pop("accelerator", None)
    if not 0 <= known.get("metrics_port", 0) <= 65535:  # a fault of the input, reported as such
        known["metrics_port"] = None
    if (spec := resolved.stand_in) is not None:
        known["program"], known["rtt_s"] = spec.program, spec.outermost_topology.farthest_rtt_s
        known["dilation"] = 1.0 if spec.auto_dilation else spec.dilation
        known["is_capped"] = spec.topology.flow_cap_bit_s is not None
    return preflight.run_checks(**known, runs_root=runs_root, rights=rights)


def _short(path: Path) -> Path:
    """Relative to where the user is, if it lies below."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
