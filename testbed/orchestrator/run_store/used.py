"""Files of the user's that a run uses: those that its spec names, and whether a kept run's are still the same."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from testbed.core.record.events.run import Used
from testbed.core.record.used_files import entries, is_covered, is_same_now, outside, place_of, unknown
from testbed.core.spec.redirects import PACKAGES
from testbed.core.spec.run_spec import PARTS, RunSpec
from testbed.orchestrator.config.part_files import targets_in
from testbed.orchestrator.machine.clone import CLONE

_MAX_LIST_BYTES = 4_000_000
_SIGNS = re.compile(r"""[\s=,:;@"'()\[\]{}]+""")
"""Signs around the name of a file within an argument: `--data=a.csv,b.csv`, `@more.txt`, `{"train": "a.csv"}`."""
_SYSTEM = ("/dev/", "/proc/", "/run/", "/sys/")
_SHORT_OPTION = re.compile(r"-[A-Za-z].")
"""Option of one letter, which its value may follow without a space."""


def named_files(spec: RunSpec, parts: Collection[str] = PARTS) -> list[str]:
    """Return the regular files that parameters name, and the folders that a script's arguments name; absolute paths.

    An argument names a file as itself, or as a part between signs such as `=`, `,`, `:` and `@`. The modules of classes
    that are not Longhaul's are named by `_target_`. Topologies, events and traces are in the spec as they were read.

    Args:
        parts: Parts of the spec whose parameters are looked at.
    """
    params = spec.workload.params
    # where relative names begin: in the script's working directory, or in that of our training
    folders = [str(params["directory"])] if "directory" in params else []
    folders += [str(Path(str(params["script"])).parent)] if "script" in params else []
    folders = folders or [str(CLONE)]
    # a variable's value is in the spec as it is: what many point to, such as certificates, is the system's
    texts = {
        text
        for part in parts
        for key, value in getattr(spec, part).params.items()
        if (part, key) != ("workload", "environment")
        for text in _texts(value)
    }
    folders += spec.module_folders
    found = {path for text in texts for path in _named(text, folders, os.path.isfile)}
    if "workload" in parts and spec.program == "script":
        found |= {path for text in _texts(params.get("args")) for path in _folders(text, folders)}
    return sorted({*(path for path in found if not is_covered(os.path.realpath(path))), *_modules(spec, parts)})


def _modules(spec: RunSpec, names: Collection[str]) -> list[str]:
    """Return the files of the modules, and of the packages around them, that targets of the user's name."""
    parts = [getattr(spec, name) for name in names]
    targets = {(one, part.folders) for part in parts for one in (part.target, *targets_in(part.params))}
    return outside(path for target, folders in targets for path in _origins(target, folders))


def _origins(target: str, folders: Sequence[str]) -> Iterator[str]:
    """Yield where modules lie, package by package, as `worker.plugins.modules` finds them; nothing is imported."""
    if target.partition(".")[0] in PACKAGES:
        return
    places = [*folders, *sys.path]
    for segment in target.split("."):
        spec = PathFinder.find_spec(segment, places)
        if spec is None:
            return
        if spec.has_location and spec.origin is not None:
            yield spec.origin
        places = list(spec.submodule_search_locations or ())


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def _folders(text: str, folders: list[str]) -> Iterator[str]:
    """Yield the folders that an argument names, but for the system's, and those around the script, home or Longhaul.

    What lies in those changes for many reasons, so that each run would be a new one.
    """
    around = [
        os.path.realpath(one) for one in (*folders, str(CLONE), str(Path.home()), tempfile.gettempdir(), *_SYSTEM)
    ]
    for path in _named(text, folders, os.path.isdir):
        real = os.path.join(os.path.realpath(path), "")
        if not any(f"{one}{os.sep}".startswith(real) for one in around) and not real.startswith(_SYSTEM):
            yield path


def _named(text: str, folders: list[str], is_kind: Callable[[str], bool]) -> Iterator[str]:
    candidates = {text, text.partition("=")[2], *_SIGNS.split(text)}
    candidates |= {one[2:] for one in tuple(candidates) if _SHORT_OPTION.match(one)}
    for name in candidates - {""}:
        for folder in folders:
            path = os.path.join(folder, os.path.expanduser(name))
            try:
                if is_kind(path):
                    yield os.path.abspath(path)
                    break
            except (OSError, ValueError):  # no name of a file
                continue


def used_before(spec: RunSpec, since_unix_s: float | None = None) -> Iterator[Used]:
    """Yield the event of the files that a spec names, as they are now; none if it names none.

    Args:
        since_unix_s: Moment from which on a change makes unknown what was used.
    """
    if found := entries(named_files(spec), since_unix_s=since_unix_s):
        yield Used.of(None, found)


def used_by_script(rank: int, listed: Path, *, has_completed: bool, since_unix_s: float) -> Used:
    """Return the event of a user's script that has ended.

    Args:
        listed: File in which the script's processes have noted the modules that they had loaded.
        has_completed: True if the script ended with status 0. What it used is not known then without a list.
    """
    try:
        with listed.open("rb") as file:
            lines = file.read(_MAX_LIST_BYTES).decode(errors="surrogateescape").splitlines()
    except OSError:
        lines = []
        if has_completed:
            return Used.of(rank, [unknown(f"modules of rank {rank}, which it did not tell")])
    return Used.of(rank, entries(outside(lines), since_unix_s=since_unix_s))


def as_here(event: Mapping[str, Any], since_unix_s: float) -> dict[str, Any]:
    """Return a rank's event with its files as they are on this machine.

    What is not here a rank has made itself, in its own folders, so that it is a result and nothing that was used.
    """
    known = [one for one in event["files"] if one["size_bytes"] is None and one["modified_s"] == 0.0]
    paths = [str(place_of(str(one["path"]))) for one in event["files"] if one not in known]
    return {**event, **Used.of(event["rank"], [*entries(paths, since_unix_s=since_unix_s), *known]).to_json()}


def is_current(spec: RunSpec, summary: Mapping[str, Any]) -> bool:
    """Return True if all files that a kept run used are as they were, and the spec names no others."""
    used = [one for one in summary.get("used_files") or () if isinstance(one, Mapping)]
    known = {os.path.abspath(place_of(str(one.get("path")))) for one in used}
    return known.issuperset(named_files(spec)) and all(is_same_now(one) for one in used)
