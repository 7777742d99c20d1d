"""Options of an executor, from a sweep's file and the command line; all faults at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from testbed.core.errors import raise_input_faults
from testbed.core.kinds import shown
from testbed.core.parameters import choice, number, whole
from testbed.orchestrator.config.grammar.overrides import unknown
from testbed.orchestrator.executors.executor import LOCAL, RAY, SLURM

Check = Callable[[str, object], str | None]
"""Takes what the option is called and its value; returns what is wrong, or None."""


def check(executor: str, given: Mapping[str, object]) -> None:
    """
    Raises:
        InputError: one of the options does not exist or has no such value; with every fault.
    """
    raise_input_faults(fault for _, fault in faults(executor, given))


def faults(executor: str, given: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield the key of each option that does not exist or has no such value, and a line about it."""
    known = KNOWN[executor]
    for key, value in given.items():
        fault = known[key](f"{executor}: {key}", value) if key in known else None
        if not known:
            fault = f"{executor}: {key}: this executor has no options; leave it out"
        elif key not in known:
            fault = unknown(f"{executor}: {key}", key, known, "option")
        if fault is not None:
            yield key, fault


def text(name: str, value: object) -> str | None:
    """Of one line, as an address or what a cluster calls its parts."""
    if isinstance(value, str) and value and value.isprintable() and value == value.strip():
        return None
    return f"{name}={shown(value)}: must be text of one line"


CLUSTERS = (SLURM, "local", "debug")
_MAX_MINUTES = 60 * 24 * 30
KNOWN: Mapping[str, Mapping[str, Check]] = {
    LOCAL: {},
    RAY: {"address": text},
    SLURM: {
        "cluster": partial(choice, known=CLUSTERS),
        "jobs": partial(whole, least=1, most=1000),
        "time_min": partial(whole, least=10, most=_MAX_MINUTES),
        "cpus": partial(whole, least=1, most=4096),
        "memory_gb": partial(number, above=0, most=65536),
        **dict.fromkeys(("partition", "account", "qos", "constraint", "exclude"), text),
    },
}
"""Options of each executor, with their checks."""
