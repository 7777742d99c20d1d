"""Writes docs/parameters.md and the tables of parameters in other pages from what classes declare.

A region `<!-- parameters GROUP=NAME: begin -->` of a page of docs/ holds the table of the class that
experiments/conf/GROUP/NAME.yaml names; with a class instead of GROUP=NAME, that of the class. With `--check` nothing
is written, and every page that says otherwise is a fault, as is every YAML file whose defaults are not those of its
class. Where several files share a class they may differ from it; the page lists how.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from compressors.base.compressor import Compressor
from experiments.common.page import between
from testbed.core.declaration import OPTIONAL, REQUIRED, Parameter, declaration
from testbed.worker.data import partitions
from testbed.worker.methods.federated.aggregation import attacks, robust
from testbed.worker.methods.federated.aggregation.methods import RULES
from testbed.worker.methods.federated.clients import availability, oort
from testbed.worker.methods.federated.secure_aggregation import secure
from testbed.worker.methods.parameter_server.bounds import adaptive, baselines, break_even
from testbed.worker.methods.parameter_server.messages import plan_request
from topologies.parameters import Impairments

ROOT = Path(__file__).resolve().parents[1]
CONF, DOCS = ROOT / "experiments" / "conf", ROOT / "docs"
PAGE = DOCS / "parameters.md"
GROUPS = {
    "compressor": "Compressors",
    "strategy": "Strategies",
    "transform": "Transforms",
    "workload": "Workloads",
    "device": "Devices",
    "topo": "Topologies",
}
PARTS = {
    "strategy.uplink, strategy.downlink": (plan_request,),
    "strategy.bound": (adaptive, baselines),
    "strategy.gate": (break_even,),
    "strategy.partition, workload.partition": (partitions,),
    "strategy.selection": (oort,),
    "strategy.availability": (availability,),
    "strategy.defence": (robust,),
    "strategy.attack": (attacks,),
    "strategy.secure": (secure,),
}
"""Modules of the classes that are chosen inside a strategy or a workload by `_target_`, or are its settings, by key."""
_HEAD = """# Parameters

Set a parameter by its key: `compressor=topk compressor.density=0.001`. `null` is written so, and text with a unit in
quotes: `strategy.bucket_size='8 MiB'`. All mistakes are reported at once. `scripts/parameters_doc.py` writes this page
from the constructors of the classes; `longhaul show` prints the same for one plug-in.
"""
_MAX_SHOWN = 120
_ROWS = ("Parameter", "Type", "Values", "Default", "Meaning")


@dataclass(frozen=True)
class Entry:
    """One YAML file of a group."""

    group: str
    name: str
    target: str
    params: dict[str, Any]

    @property
    def path(self) -> str:
        return f"experiments/conf/{self.group}/{self.name}.yaml"


def entries() -> list[Entry]:
    found = []
    for group in GROUPS:
        for path in sorted((CONF / group).glob("*.yaml")):
            params = {name: value for name, value in yaml.safe_load(path.read_text()).items() if name != "run"}
            if (target := params.pop("_target_")).startswith("longhaul."):
                continue  # programs of a user's own, which have no class
            found.append(Entry(group, path.stem, target, params))
    return found


def declared(target: str) -> Callable[..., Any]:
    module, _, name = target.rpartition(".")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def faults(entry: Entry, shared: bool) -> Iterator[str]:
    """Yield what is wrong with a file's values, and with what its class declares."""
    parameters = {one.name: one for one in _parameters(entry)}
    for one in parameters.values():
        if one.kind is None or not one.sentence:
            yield f"{entry.target}: {one.name} lacks {'a kind in its type' if one.kind is None else 'a sentence'}"
        elif one.default not in (REQUIRED, OPTIONAL):
            yield from (f"{entry.target}: {line}" for line in one.faults(one.default))
    for name, value in entry.params.items():
        if name not in parameters:
            yield f"{entry.path}: {name}: unknown to {entry.target}"
        elif "_target_" not in str(value) and not _is_to_be_given(parameters[name], value):
            yield from (f"{entry.path}: {line}" for line in parameters[name].faults(value))
            default = _plain(parameters[name].default)
            if not shared and default not in (REQUIRED, OPTIONAL, value) and not _stands_for(default, value):
                yield f"{entry.path}: {name}: {value}, and {entry.target} declares {default}"


def _parameters(entry: Entry) -> list[Parameter]:
    own = list(declaration(declared(entry.target)))
    if entry.group != "topo":
        return own
    return [one for one in (*own, *declaration(Impairments)) if one.name not in ("name", "workers")]


def _is_to_be_given(parameter: Parameter, value: Any) -> bool:
    """True for the place of a value that the user has to give."""
    return value == "???" or (value is None and parameter.default is REQUIRED and not parameter.null)


def _stands_for(default: Any, value: Any) -> bool:
    """True for null, where a file shows what the class takes then."""
    return default is None and isinstance(value, dict)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def table(parameters: list[Parameter], values: dict[str, Any]) -> str:
    """Return the table of some parameters.

    Args:
        values: Values of the YAML file, for parameters without a default of their own.
    """
    lines = [_ROWS, ("---",) * len(_ROWS)]
    for one in parameters:
        default = values.get(one.name, one.default) if one.default in (REQUIRED, None) else one.default
        written = "required" if _is_to_be_given(one, default) else _written(default)
        lines.append((f"`{one.name}`", one.type_text, one.values_text, written, one.sentence))
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _written(value: Any) -> str:
    if value in (REQUIRED, OPTIONAL):
        return "required" if value is REQUIRED else "none"
    text: str = yaml.safe_dump(_plain(value), default_flow_style=True, width=10_000).splitlines()[0]
    return f"`{text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + '…'}`"


def section(found: list[Entry]) -> str:
    """Return the table of a class, and how files that share it differ."""
    impairments = {one.name for one in declaration(Impairments)} if found[0].group == "topo" else set()
    shown = [one for one in _parameters(found[0]) if one.name not in impairments and one.name != "feedback"]
    if not shown:
        return "No parameters."
    parts = [table(shown, found[0].params if len(found) == 1 else {})]
    defaults = {one.name: _plain(one.default) for one in shown}
    for entry in found if len(found) > 1 else ():
        own = [key for key, value in entry.params.items() if key != "feedback" and value != defaults.get(key)]
        said = ", ".join(f"`{name}={_written(entry.params[name]).strip('`')}`" for name in own)
        parts.append(f"Defaults of `{entry.group}={entry.name}`: {said or 'as in the table'}.")
    return "\n\n".join(parts)


def by_class(found: list[Entry]) -> dict[str, list[Entry]]:
    grouped: dict[str, list[Entry]] = {}
    for entry in found:
        grouped.setdefault(entry.target, []).append(entry)
    return grouped


def page(found: list[Entry]) -> str:
    parts = [_HEAD]
    for group, title in GROUPS.items():
        parts.append(f"## {title}\n")
        if group == "compressor":
            parts += ["All of them:\n", table(list(declaration(Compressor)), {}) + "\n"]
        if group == "topo":
            parts += ["WAN links of all of them:\n", table(list(declaration(Impairments)), {}) + "\n"]
        for several in by_class([entry for entry in found if entry.group == group]).values():
            parts += [f"### {group}={', '.join(entry.name for entry in several)}\n", section(several) + "\n"]
        if group == "strategy":
            parts += list(_parts())
    return "\n".join(parts)


def _parts() -> Iterator[str]:
    for keys, modules in PARTS.items():
        yield f"### {keys}\n"
        for cls in (one for module in modules for one in vars(module).values() if _is_of(one, module)):
            yield f"`{cls.__module__}.{cls.__qualname__}`:\n"
            yield table(list(declaration(cls)), {}) + "\n"
    yield "### strategy.server\n"
    for method, rule in RULES.items():
        yield f"`method={method}`:\n"
        own = [one for one in declaration(rule) if one.name not in ("clients", "alpha")]
        yield (table(own, {}) if own else "No parameters.") + "\n"


def _is_of(value: Any, module: ModuleType) -> bool:
    """True for a class of `module` that declares parameters."""
    if not inspect.isclass(value) or value.__module__ != module.__name__ or inspect.isabstract(value):
        return False
    return any(one.kind is not None for one in declaration(value))


def pages(found: list[Entry]) -> dict[Path, str]:
    """Return every page with tables of parameters, as it has to be."""
    named = {f"{entry.group}={entry.name}": entry for entry in found}
    written = {PAGE: page(found)}
    for path in sorted(DOCS.rglob("*.md")):
        text = path.read_text()
        for name in re.findall(r"<!-- parameters (\S+): begin -->", text):
            region = section([named[name]]) if name in named else table(list(declaration(declared(name))), {})
            text = written[path] = between(text, f"parameters {name}", region)
    return written


def main(arguments: Sequence[str]) -> int:
    found = entries()
    counts = {target: len(several) for target, several in by_class(found).items()}
    wrong = [fault for entry in found for fault in faults(entry, counts[entry.target] > 1)]
    for path, text in pages(found).items():
        if "--check" not in arguments:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            wrong.append(f"{path.relative_to(ROOT)} is not what classes declare: run scripts/parameters_doc.py")
    for fault in dict.fromkeys(wrong):
        print(fault)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
