"""The flag `--trust FILE` of commands that draw topologies of users."""

from __future__ import annotations

import argparse
from pathlib import Path

_COMMANDS = ("run", "sweep", "tune", "budget", "topologies", "show", "profile", "predict", "plan", "up")


def add_trust(name: str, parser: argparse.ArgumentParser) -> None:
    """Add the flag to the parser of a command that has it."""
    if name in _COMMANDS:
        text = "a Python file of which a topology may name a function, as in _target_: ship.build of ship.py"
        parser.add_argument("--trust", type=Path, action="append", default=[], metavar="FILE", help=text)


def apply_trust(parsed: argparse.Namespace) -> None:
    """Let topologies name functions of the files that were given.

    Raises:
        InputError: One of them cannot be a module; every error at once.
    """
    if hasattr(parsed, "trust"):
        from testbed.orchestrator.config.trust import trust  # here: `list` and `--help` start at once

        trust(parsed.trust)
