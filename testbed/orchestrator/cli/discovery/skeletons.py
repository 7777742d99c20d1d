"""`longhaul new`: a working plug-in, topology or sweep with its test, to be changed into one's own."""

from __future__ import annotations

import builtins
import importlib.util
import keyword
import os
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from testbed.core.errors import EXIT_COMPLETED, InputError, raise_input_faults
from testbed.core.user_files.text import shown
from testbed.orchestrator.cli.discovery.kinds import KINDS
from testbed.orchestrator.config.config import names
from testbed.orchestrator.config.user_files.yaml_reader import MAX_NAME
from testbed.orchestrator.machine.clone import CLONE
from testbed.orchestrator.machine.ownership import give_to_caller, outermost_new
from testbed.orchestrator.search.sweep.files import known as known_sweeps
from testbed.orchestrator.terminal.terminal import tell

TEMPLATES = Path(__file__).resolve().parent / "templates"
_NAME = re.compile(rf"[a-z][a-z0-9_]{{0,{MAX_NAME - 1}}}")
_YAML_WORDS = ("null", "true", "false", "yes", "no", "on", "off", "y", "n", "none", "nan", "inf", "auto")
"""Words that a command line or YAML reads as something else than a name."""


@dataclass(frozen=True)
class _Kind:
    """A kind of skeleton: its key on the command line, and the commands that try it, with the path as `{}`."""

    use: str
    others: tuple[str, ...] = ()


SKELETONS = {
    "compressor": _Kind("sudo .venv/bin/longhaul run compressor={}", (".venv/bin/longhaul laws {} --no-run",)),
    "strategy": _Kind("sudo .venv/bin/longhaul run strategy={}", (".venv/bin/longhaul show strategies {}",)),
    "workload": _Kind("sudo .venv/bin/longhaul run workload={}", (".venv/bin/longhaul show workloads {}",)),
    "topology": _Kind("sudo .venv/bin/longhaul run topo={}", (".venv/bin/longhaul topologies {}",)),
    "sweep": _Kind("sudo .venv/bin/longhaul sweep {}", ("sudo .venv/bin/longhaul sweep {} --plan",)),
}
"""Skeletons by kind; the folder of `TEMPLATES` with that name has the files."""


def new(kind: str, name: str, folder: Path) -> int:
    """Write a skeleton's files, say how to go on, and return the exit status.

    Args:
        kind: A key of `SKELETONS`.
        folder: Folder to write into; made if it is missing.

    Raises:
        InputError: The name cannot be used, a file exists, or the folder cannot be written to; every fault at once.
    """
    files = {folder / _file(template.name, name): template for template in sorted((TEMPLATES / kind).iterdir())}
    faults = [*_name_faults(kind, name), *_folder_faults(folder)]
    if not faults:
        faults += [f"{path}: exists; choose another name or --folder" for path in files if os.path.lexists(path)]
    raise_input_faults(faults)
    values = {"name": name, "cls": "".join(word.capitalize() for word in name.split("_")), "file": f"test_{name}.py"}
    outermost = outermost_new(folder / name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, template in files.items():
            with path.open("x") as file:
                file.write(string.Template(template.read_text()).substitute(values))
            give_to_caller(path)
    except OSError as error:
        raise InputError(f"--folder {folder}: cannot be written to: {error.strerror}; give another") from error
    if outermost != folder / name:
        give_to_caller(outermost)
    for path in files:
        tell(f"wrote {path}")
    for line in _next_steps(kind, folder, name):
        tell(line)
    return EXIT_COMPLETED


def _file(template: str, name: str) -> str:
    return {"module.py.tmpl": f"{name}.py", "plugin.yaml.tmpl": f"{name}.yaml", "test.py.tmpl": f"test_{name}.py"}[
        template
    ]


def _next_steps(kind: str, folder: Path, name: str) -> Iterator[str]:
    path = folder / f"{name}.yaml"
    given = str(path) if path.is_absolute() else f"./{path}"
    quoted = given if re.fullmatch(r"[\w./-]+", given) else f"'{given}'"
    yield "It works as it is. Test it, try it, then change it:"
    yield f"  .venv/bin/python -m pytest {quoted.replace(f'{name}.yaml', f'test_{name}.py')}"
    yield from (f"  {command.format(quoted)}" for command in (*SKELETONS[kind].others, SKELETONS[kind].use))


def _name_faults(kind: str, name: str) -> Iterator[str]:
    """Yield what is wrong with a name, which becomes that of a module, a file and a run."""
    where = f"new {kind} {shown(name)}"
    if not _NAME.fullmatch(name):
        plain = re.sub(r"[^a-z0-9_]+", "_", Path(name).name.removesuffix(".yaml").removesuffix(".py").lower())
        near = plain.lstrip("_0123456789").rstrip("_")[:MAX_NAME]
        guess = f"; did you mean {near}?" if _NAME.fullmatch(near) else ";"
        place = ", and --folder says where" if "/" in name else ""
        yield f"{where}: not a name{guess} it must be {MAX_NAME} small letters, digits and _ at most{place}"
        return
    group = {"topology": "topo"}.get(kind, kind)
    if name in (names(group) if group in KINDS.values() else known_sweeps()):
        yield f"{where}: is the name of one of Longhaul's; choose another"
    elif keyword.iskeyword(name) or keyword.issoftkeyword(name) or name in _YAML_WORDS or hasattr(builtins, name):
        yield f"{where}: is a word of Python or YAML; choose another"
    elif name.startswith("test_") or name == "conftest":
        yield f"{where}: is a name that pytest takes for its own; choose another"
    elif kind not in ("topology", "sweep") and importlib.util.find_spec(name) is not None:
        yield f"{where}: is the name of an installed module, which would hide yours; choose another"


def _folder_faults(folder: Path) -> Iterator[str]:
    place = folder.resolve()
    nearest = next(one for one in (place, *place.parents) if one.exists())
    if not nearest.is_dir():
        yield f"--folder {folder}: {nearest} is a file; give a folder"
    inside = place.relative_to(CLONE).parts[:1] if place.is_relative_to(CLONE) else ()
    if inside and inside[0] in ("compressors", "testbed", "topologies", "experiments", "dashboards"):
        yield f"--folder {folder}: lies in a package of Longhaul; begin elsewhere, and move it as docs/plug-ins.md says"
