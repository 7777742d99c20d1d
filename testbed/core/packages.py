"""What a machine with the worker alone lacks: the packages of the orchestrator and of the analysis."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

from testbed.core.errors import MachineError

OTHER_SIDE = ("duckdb", "hydra", "matplotlib", "omegaconf", "prometheus_client", "pyroute2", "rich")
"""Packages without which there is no orchestrator and no analysis."""


def lacking_packages() -> list[str]:
    return [name for name in OTHER_SIDE if importlib.util.find_spec(name) is None]


@contextmanager
def both_sides_needed() -> Iterator[None]:
    """Around a command that imports as it goes.

    Raises:
        MachineError: it came to a package of `OTHER_SIDE` that is not there.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        lacking = lacking_packages()
        if (error.name or "").partition(".")[0] not in lacking:
            raise
        raise MachineError(
            f"this machine lacks {', '.join(lacking)}, as one with the worker alone does (the extra `worker`), which"
            " serves for ranks under torchrun and nothing else: take a clone of the repository and `make setup`"
        ) from error
