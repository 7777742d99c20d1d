"""The commands by which a user finds out what there is: `show`, `new`, `completion`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

Add = Callable[..., argparse.ArgumentParser]
_NEW = ("compressor", "strategy", "workload", "topology", "sweep")
_SHOW_EPILOG = (
    "KIND: strategies, compressors, workloads, topologies, devices or transforms. NAME: one of them, or the path of a"
    " YAML file of yours; compressor=./signs.yaml says both."
)

_COMPLETION_EPILOG = (
    "Completes commands, flags, keys, plug-ins, their parameters and values, run ids, and for bash also what `sudo` and"
    " `make` are given here. Nothing of yours is run for it."
)


def add_commands(add: Add) -> None:
    """`add` makes a subcommand's parser of its name, its function, its words and its epilog."""
    one = add("show", show, "What there is: all of a kind, or one with its parameters.", _SHOW_EPILOG)
    one.add_argument("kind", metavar="KIND")
    one.add_argument("name", nargs="?", metavar="NAME")
    one.add_argument("--json", action="store_true", help="everything as JSON")
    one = add("new", new, "A working skeleton with its test: YAML, Python, and what tries it.")
    one.add_argument("kind", choices=_NEW, metavar="KIND", help=", ".join(_NEW))
    one.add_argument("name", metavar="NAME", help="small letters, digits and _; becomes the name of the files")
    text = "folder to write into, made if missing; the current one by default"
    one.add_argument("--folder", type=Path, default=Path(), metavar="DIR", help=text)
    text = 'Completion for a shell, as a script: eval "$(longhaul completion bash)" in ~/.bashrc.'
    one = add("completion", completion, text, _COMPLETION_EPILOG)
    one.add_argument("shell", choices=("bash", "zsh"), metavar="SHELL", help="bash or zsh")
    one.add_argument("--line", help=argparse.SUPPRESS)  # of the script: the command line up to the cursor
    one.add_argument("--breaks", default="", help=argparse.SUPPRESS)


def show(parsed: argparse.Namespace) -> int:
    from testbed.orchestrator.cli.discovery.show import show_plugins

    return show_plugins(parsed.kind, parsed.name, as_json=parsed.json)


def new(parsed: argparse.Namespace) -> int:
    from testbed.orchestrator.cli.discovery.skeletons import new as write

    return write(parsed.kind, parsed.name, parsed.folder)


def completion(parsed: argparse.Namespace) -> int:
    from testbed.orchestrator.cli.discovery.completion import complete, script

    if parsed.line is None:
        return script(parsed.shell)
    return complete(parsed.line, parsed.breaks, parsed.all_commands)
