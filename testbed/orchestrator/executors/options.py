"""Options of an executor, from a sweep's file and the command line; all faults at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from testbed.core.errors import raise_input_faults
from testbed.core.kinds import shown
from testbed.orchestrator.config.grammar.overrides import unknown

Check = Callable[[str, object], str | None]
"""Takes what the option is called and its value; returns what is wrong, or None."""


def check(executor: str, given: Mapping[str, object], known: Mapping[str, Check]) -> None:
    """
    Raises:
        InputError: one of the options does not exist or has no such value; with every fault.
    """
    faults = [unknown(f"{executor}: {key}", key, known, "option") for key in given if key not in known]
    checked = [known[key](f"{executor}: {key}", value) for key, value in given.items() if key in known]
    raise_input_faults([*faults, *(fault for fault in checked if fault is not None)])


def text(name: str, value: object) -> str | None:
    """Of one line, as an address or what a cluster calls its parts."""
    if isinstance(value, str) and value and value.isprintable() and value == value.strip():
        return None
    return f"{name}={shown(value)}: must be text of one line"
