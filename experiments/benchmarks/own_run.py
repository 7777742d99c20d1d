"""The directory of a run that a point performs in its own process."""

from __future__ import annotations

from pathlib import Path

from testbed.core.rundir import RunDir, new_run_id, write_json
from testbed.core.spec import RunSpec
from testbed.orchestrator import provenance


def directory(root: Path, spec: RunSpec, what: str) -> RunDir:
    """With what a run finds in it when it begins.

    Args:
        what: in place of a compressor, of the run's id.
    """
    run = RunDir.create(root, new_run_id(spec.topo, "benchmark", what, spec.hash))
    write_json(run.spec, {**spec.to_json(), "code_hash": provenance.code_hash()})
    return run
