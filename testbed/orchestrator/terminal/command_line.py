"""Parser of our command line, whose errors are one line and suggest what was probably meant."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from testbed.core.errors import EXIT_INPUT, nearest
from testbed.orchestrator.terminal.terminal import say


class CommandLineParser(argparse.ArgumentParser):
    """Parser of `longhaul`, and of each of its commands."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        near = nearest(str(value), known)
        guess = f"did you mean {near}? " if near else ""
        self.error(f"{value}: unknown {str(action.metavar or 'value').lower()}; {guess}known: {', '.join(known)}")

    def error(self, message: str) -> NoReturn:
        """Print the message and end with the status of bad input."""
        say(f"{message}; see {self.prog} --help")
        raise SystemExit(EXIT_INPUT)

    def refuse(self, words: Sequence[str]) -> NoReturn:
        """Report words that are no arguments of this command."""
        known = [word for word in self._option_string_actions if word.startswith("--")]
        near = [found for word in words if (found := nearest(word.partition("=")[0], known))]
        guess = f"; did you mean {' '.join(near)}?" if near else ""
        self.error(f"unknown argument: {' '.join(words)}{guess}")
