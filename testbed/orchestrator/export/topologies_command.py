"""`longhaul topologies`: all of them in a table, or one as text, as a picture, or as a lab of containerlab."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from testbed.core.errors import EXIT_COMPLETED, InputError, raise_input_faults
from testbed.core.spec import topology_svg
from testbed.core.spec.topology import Topology
from testbed.orchestrator.config.config import compose, names
from testbed.orchestrator.export import containerlab_topology
from testbed.orchestrator.export.topology_text import drawing, table
from testbed.orchestrator.machine.ownership import give_to_caller
from testbed.orchestrator.terminal.terminal import show, tell


def topologies(
    name: str | None, overrides: Sequence[str], *, svg: Path | None, containerlab: Path | None, image: str
) -> int:
    """Print or write what is asked for, and return the exit status.

    Args:
        name: Name of a topology or path of its YAML file; None: all of ours.
        svg: File for a picture.
        containerlab: File for a lab.
        image: Image of the lab's nodes; empty: the usual one.

    Raises:
        InputError: With every fault at once.
    """
    asked = [(flag, path) for flag, path in (("--svg", svg), ("--containerlab", containerlab)) if path]
    if name is None:
        raise_input_faults(
            f"{flag} {path}: say which topology, as in longhaul topologies us3 {flag} FILE" for flag, path in asked
        )
        show(table([compose([f"topo={one}"]).topology for one in names("topo")]))
        return EXIT_COMPLETED
    topology = compose([f"topo={name}", *overrides]).topology
    if svg:
        _write_svg(svg, topology)
        tell(f"{topology.name} is drawn in {svg}")
    if containerlab:
        containerlab_topology.write(containerlab, topology, image)
        tell(f"{topology.name} is a lab in {containerlab}: containerlab deploy -t {containerlab}")
    if not asked:
        tell(drawing(topology))
    return EXIT_COMPLETED


def _write_svg(path: Path, topology: Topology) -> None:
    """Raise InputError if the file cannot be written."""
    try:
        path.write_text(topology_svg.svg(topology))
    except OSError as error:
        raise InputError(f"--svg {path}: cannot be written: {error.strerror}") from error
    give_to_caller(path)
