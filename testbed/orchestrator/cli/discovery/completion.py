"""Completion of command lines: the shell's part, which `longhaul completion bash|zsh` prints, and what it asks.

Commands and flags come from the command line's own parser, keys from the configuration, parameters and their values
from what plug-ins declare. A plug-in of a user's is never imported for that: its YAML file has the keys.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.core.errors import EXIT_COMPLETED, LonghaulError
from testbed.core.record.run_directory import RUN_ID
from testbed.core.record.summary import STATUSES, VERDICTS
from testbed.core.spec.run_spec import ACCELERATORS, CAPTURES, CHECKPOINTS, PARTS, RUNTIMES, SHAPERS, TCP_PROFILES
from testbed.orchestrator.cli.discovery.kinds import KINDS
from testbed.orchestrator.machine.clone import CLONE, CONF_DIR, RUNS_ROOT
from testbed.orchestrator.terminal.terminal import tell

GROUPS = ("topo", *PARTS)
_VALUES: Mapping[str, Sequence[str]] = {
    "accelerator": ACCELERATORS,
    "capture": CAPTURES,
    "checkpoint": CHECKPOINTS,
    "dilation": ("auto", "guess"),
    "runtime": RUNTIMES,
    "shaper": SHAPERS,
    "tcp": TCP_PROFILES,
}
_FILTERED = ("list", "compare", "report")
_FILTERS: Mapping[str, Sequence[str]] = {"status": STATUSES, "verdict": VERDICTS, "since": ("1h", "1d", "7d")}
_OF_BUDGET = ("target_step_s", "price_per_gb")
_OPEN_ENDS = ("=", "/", ".")
"""Ends of candidates that go on, so that no space follows."""


def complete(line: str, breaks: str, parser: argparse.ArgumentParser) -> int:
    """Print what may come next, one candidate a line, and return the exit status.

    Args:
        line: Command line up to the cursor.
        breaks: Characters at which the shell begins a new word; candidates lack what the user typed up to the last.
        parser: Parser of all commands.
    """
    words = _words(line)
    typed = words.pop()
    cut = max((typed.rfind(character) for character in breaks if character in "=:"), default=-1) + 1
    try:
        found = sorted({one for one in _candidates(words, typed, parser) if one.startswith(typed)})
    except (LonghaulError, OSError):  # such as a YAML file that is being written: nothing is known of it
        found = []
    for one in found:
        tell(_quoted(one)[cut:])
    return EXIT_COMPLETED


def _words(line: str) -> list[str]:
    """Return the words of a line, the one at the cursor last; a quote may still be open."""
    for closing in ("", "'", '"'):
        try:
            words = shlex.split(line + closing)
        except ValueError:
            continue
        return [*words, ""] if not words or (line[-1:].isspace() and not closing) else words
    return [*line.split(), ""]


def _quoted(candidate: str) -> str:
    """Return the candidate as a shell takes it: a value with spaces in quotes, its key without."""
    key, has_value, value = candidate.partition("=")
    return candidate if not re.search(r"[\s'\"()\[\]{}$&;|<>*?!#]", value) else f"{key}{has_value}{shlex.quote(value)}"


def _candidates(words: list[str], typed: str, parser: argparse.ArgumentParser) -> Iterable[str]:
    own = next((place for place, word in enumerate(words) if Path(word).name == "longhaul"), None)
    if own is None:
        return _of_make(words, typed) if words and Path(words[0]).name == "make" else ()
    commands = next(one for one in parser._actions if isinstance(one, argparse._SubParsersAction)).choices
    given = words[own + 1 :]
    command = next((word for word in given if not word.startswith("-")), None)
    if command is None:
        return [*commands, *_flags(parser)]
    if command not in commands or "--" in given:
        return ()
    return _of_command(command, commands[command], given[given.index(command) + 1 :], typed)


def _flags(parser: argparse.ArgumentParser) -> list[str]:
    shown = [one for one in parser._actions if one.help != argparse.SUPPRESS]
    return [flag for one in shown for flag in one.option_strings if flag.startswith("--")]


def _of_command(command: str, parser: argparse.ArgumentParser, words: list[str], typed: str) -> Iterable[str]:
    options = {flag: one for one in parser._actions for flag in one.option_strings}
    places = [one for one in parser._actions if not one.option_strings]
    given: list[str] = []
    awaited: argparse.Action | None = None
    for word in words:
        if awaited is not None:
            awaited = None
        elif word in options:
            awaited = options[word] if options[word].nargs != 0 else None
        else:
            given.append(word)
    if awaited is None and typed.startswith("-"):
        return _flags(parser)
    if awaited is None and not places:
        return ()
    action = awaited or places[min(len(given), len(places) - 1)]
    if awaited is None and len(given) >= len(places) and action.nargs not in ("*", "+"):
        return ()
    return _of_action(command, action, given, typed)


def _of_action(command: str, action: argparse.Action, given: list[str], typed: str) -> Iterable[str]:
    metavar = str(action.metavar or "")
    if action.choices is not None:
        return [str(choice) for choice in action.choices]
    if action.dest == "overrides":
        runs = _run_ids() if "RUN_ID" in metavar else ()
        sweeps = _sweeps() if "NAME" in metavar and not given else ()
        return [*runs, *sweeps, *_overrides(command, given, typed, several="a,b" in metavar)]
    special: dict[tuple[str, str], Callable[[], Iterable[str]]] = {
        ("show", "kind"): lambda: KINDS,
        ("show", "name"): lambda: _named(KINDS.get(given[0], given[0]), typed),
        ("topologies", "name"): lambda: _named("topo", typed),
        ("laws", "target"): lambda: _named("compressor", typed),
        ("sweep", "executor"): lambda: ("local", "ray", "slurm"),
        ("tune", "by"): lambda: ("time", "bytes", "both"),
    }
    if (command, action.dest) in special:
        return special[command, action.dest]()
    if "RUN_ID" in metavar:
        return _run_ids()
    return _paths(typed) if metavar in ("FILE", "DIR") else ()


def _overrides(command: str, given: Sequence[str], typed: str, *, several: bool) -> Iterator[str]:
    """Yield keys, or values of the key that was typed.

    Args:
        several: True if a key takes several values, with commas.
    """
    key, has_value, value = typed.partition("=")
    if command in _FILTERED:
        yield from _filters(key, value) if has_value else (f"{one}=" for one in _filter_keys())
        return
    chosen = {**_defaults(), **dict(word.split("=", 1) for word in given if "=" in word)}
    if command == "topologies" and given:
        chosen["topo"] = given[0]
    if command == "laws":
        found = _parameters("compressor", given[0] if given else "none")
        yield from _of_parameters("", found, key, has_value)
        return
    group, dot, _ = key.partition(".")
    if dot and group in GROUPS:
        found = _parameters(group, chosen.get(group, "").split(",")[0])
        yield from _of_parameters(f"{group}.", found, key, has_value)
    elif not has_value:
        yield from (f"{one}{end}" for one in GROUPS for end in _OPEN_ENDS[::2])
        yield from (f"{one}=" for one in (*_settings(), *(_OF_BUDGET if command == "budget" else ())))
    else:
        before = value[: value.rfind(",") + 1] if several else ""
        yield from (f"{key}={before}{one}" for one in _values(key, value[len(before) :]))


def _of_parameters(prefix: str, found: Mapping[str, Sequence[str]], key: str, has_value: str) -> Iterator[str]:
    for name, values in found.items():
        if not has_value:
            yield f"{prefix}{name}="
        elif key == prefix + name:
            yield from (f"{key}={value}" for value in values)


def _values(key: str, typed: str) -> Iterable[str]:
    if key in GROUPS:
        return _named(key, typed)
    if key == "start_from":
        return _run_ids()
    return _VALUES.get(key) or (_paths(typed) if key in ("events", "background") else ())


def _filter_keys() -> Sequence[str]:
    return ("topo", "workload", "strategy", "compressor", "workers", "seed", *_FILTERS)


def _filters(key: str, value: str) -> Iterator[str]:
    before = value[: value.rfind(",") + 1]
    yield from (f"{key}={before}{one}" for one in _FILTERS.get(key) or (_names(key) if key in GROUPS else ()))


def _names(group: str) -> list[str]:
    return sorted(path.stem for path in (CONF_DIR / group).glob("*.yaml"))


def _named(group: str, typed: str) -> list[str]:
    """Return names, and YAML files of the user's; folders once a path was begun."""
    ends = (".yaml", "/") if "/" in typed or typed.startswith(".") else ".yaml"
    return [*_names(group), *(path for path in _paths(typed) if path.endswith(ends))]


def _parameters(group: str, name: str) -> dict[str, Sequence[str]]:
    """Return the values that are known of each parameter of a plug-in: its choices, or else its default."""
    from testbed.orchestrator.cli.discovery.catalogue import description
    from testbed.orchestrator.config.user_files.yaml_reader import is_path, read_yaml

    if is_path(name):
        keys: Any = read_yaml(Path(name).expanduser()).plain()
        return {str(key): () for key in keys if key not in ("_target_", "run")}
    return {one["name"]: _choices(one) for one in description(group, name)["parameters"]}


def _choices(parameter: Mapping[str, Any]) -> list[str]:
    default = parameter["default"]
    shown = [str(default)] if isinstance(default, str | int | float) and not isinstance(default, bool) else []
    return [*(parameter["choices"] or shown), *(["null"] if parameter["null"] else [])]


def _settings() -> list[str]:
    return [key for key in _config() if key != "defaults"]


def _defaults() -> dict[str, str]:
    return {
        str(group): str(name) for one in _config()["defaults"] if isinstance(one, dict) for group, name in one.items()
    }


def _config() -> dict[str, Any]:
    from testbed.orchestrator.config.keys import contents

    return dict(contents(CONF_DIR / "config.yaml"))


def _run_ids() -> list[str]:
    return [path.name for path in RUNS_ROOT.glob("*") if RUN_ID.fullmatch(path.name)]


def _sweeps() -> list[str]:
    return sorted(path.stem for path in (CLONE / "experiments" / "sweeps").glob("*.yaml"))


def _paths(typed: str) -> Iterator[str]:
    """Yield the files and folders that begin as typed; folders end with a slash."""
    folder, name = os.path.split(typed)
    try:
        with os.scandir(os.path.expanduser(folder) or ".") as found:
            for one in found:
                if one.name.startswith(name) and (name or not one.name.startswith(".")):
                    yield os.path.join(folder, one.name) + ("/" if one.is_dir() else "")
    except OSError:
        return


def _of_make(words: Sequence[str], typed: str) -> Iterable[str]:
    """Yield what comes in a line of make, in this repository: targets, and the variables that they read."""
    text = (CLONE / "Makefile").read_text()
    reads = dict(re.findall(r"^READS_([a-z-]+) := (.*)", text, re.MULTILINE))
    targets = re.findall(r"^([a-z-]+):.* ## ", text, re.MULTILINE)
    variable, has_value, value = typed.partition("=")
    goals = [word for word in words[1:] if word in targets]
    if not has_value:
        return [*(targets if not goals else ()), *(f"{one}=" for goal in goals for one in reads.get(goal, "").split())]
    folders = CLONE / "experiments" / "reproductions"
    values = {
        "SWEEP": _sweeps(),
        "SYSTEM": [path.parent.name for path in folders.glob("*/declaration.py")],
        "EXECUTOR": ["local", "ray", "slurm"],
    }
    found = values[variable] if variable in values else _values(variable.lower(), value)
    return [f"{variable}={one}" for one in found]


def script(shell: str) -> int:
    """Print the shell's part of the completion, and return the exit status."""
    ask = f"PYTHONPATH={shlex.quote(str(CLONE))} {shlex.quote(sys.executable)} -P -m testbed completion {shell}"
    text = (Path(__file__).parent / "shells" / f"completion.{shell}").read_text()
    tell(text.replace("@ASK@", ask).replace("@MAKEFILE@", shlex.quote(str(CLONE / "Makefile"))).rstrip("\n"))
    return EXIT_COMPLETED
