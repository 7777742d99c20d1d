"""Our named topologies for `mn --custom scripts/mininet_topos.py --topo NAME,key=value,...` (docs/mininet.md)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.core.errors import InputError
from testbed.orchestrator import config
from testbed.orchestrator.emulation.mininet_topo import MininetTopo, end

BY_PATH = "file"
"""The name under which a file of the user's own is given, as `--topo file,path=./mynet.yaml`."""


def load(name: str, *positional: Any, **given: Any) -> MininetTopo:
    """The topology `name` with `workers` and its own parameters as given.

    Ends the program with every fault at once.
    """
    faults = [f"--topo {name},{value}: say what it is, as in workers={value}" for value in positional]
    if name == BY_PATH and "path" not in given:
        faults.append(f"--topo {BY_PATH}: say which, as in {BY_PATH},path=./mynet.yaml")
    asked = [f"topo={Path(str(given.pop('path')))}" if name == BY_PATH and "path" in given else f"topo={name}"]
    asked += [f"{key if key == 'workers' else f'topo.{key}'}={value}" for key, value in given.items()]
    try:
        if faults:
            raise InputError(*faults)
        return MininetTopo(config.compose(asked).topology)
    except InputError as error:
        end("\nlonghaul: ".join(error.faults))
        raise


topos: dict[str, Callable[..., MininetTopo]] = {
    name: functools.partial(load, name) for name in (*config.names("topo"), BY_PATH)
}
"""As `mn` takes them."""
