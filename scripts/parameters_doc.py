"""Writes docs/parameters.md, its CSV file and the lists of parameters in other pages from what classes declare.

The page has keys and defaults, docs/tables/parameters.csv also the values allowed and the meanings.

A region `<!-- parameters GROUP=NAME: begin -->` of a page of docs/ holds the list of the class that
experiments/conf/GROUP/NAME.yaml names; with a class instead of GROUP=NAME, that of the class. With `--check` nothing
is written, and every page that says otherwise is a fault, as is every YAML file whose defaults are not those of its
class. Where several files share a class they may differ from it; the page lists how.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from compressors.base.compressor import Compressor
from experiments.common.page import between
from scripts.generated import ROOT, kept
from scripts.parameter_lines import Line, csv_text, is_to_be_given, lines, short, written
from testbed.core.declaration import OPTIONAL, REQUIRED, Parameter, declaration
from testbed.worker.data import partitions
from testbed.worker.methods.federated.aggregation import attacks, robust
from testbed.worker.methods.federated.aggregation.methods import RULES
from testbed.worker.methods.federated.clients import availability, oort
from testbed.worker.methods.federated.secure_aggregation import secure
from testbed.worker.methods.parameter_server.bounds import adaptive, baselines, break_even
from testbed.worker.methods.parameter_server.messages import plan_request
from topologies.parameters import Impairments

CONF, DOCS = ROOT / "experiments" / "conf", ROOT / "docs"
PAGE, TABLE = DOCS / "parameters.md", DOCS / "tables" / "parameters.csv"
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

Set a parameter by its key: `compressor=topk compressor.density=0.001`. This page lists keys with their defaults.
[parameters.csv](tables/parameters.csv) has the values allowed and the meaning of each, and `longhaul show KIND NAME`
prints them for one plug-in.

Write rates, sizes, times and percentages with a unit: `strategy.bucket_size='8 MiB'`, and objects as
`{_target_: module.Class, key: value}`. Times are emulated; rates hold each way. `…` stands for a long default.
`scripts/parameters_doc.py` writes this page.
"""


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
        elif "_target_" not in str(value) and not is_to_be_given(parameters[name], value):
            yield from (f"{entry.path}: {line}" for line in parameters[name].faults(value))
            default = _plain(parameters[name].default)
            if not shared and default not in (REQUIRED, OPTIONAL, value) and not _stands_for(default, value):
                yield f"{entry.path}: {name}: {value}, and {entry.target} declares {default}"


def _parameters(entry: Entry) -> list[Parameter]:
    own = list(declaration(declared(entry.target)))
    if entry.group != "topo":
        return own
    return [one for one in (*own, *declaration(Impairments)) if one.name not in ("name", "workers")]


def _stands_for(default: Any, value: Any) -> bool:
    """True for null, where a file shows what the class takes then."""
    return default is None and isinstance(value, dict)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def own_lines(found: Sequence[Entry]) -> list[Line]:
    """Return the lines of the class that some files name, without what all classes of a group have."""
    return lines(_shown(found[0]), _common(found))


def _shown(entry: Entry) -> list[Parameter]:
    common = {one.name for one in declaration(Impairments)} if entry.group == "topo" else {"feedback"}
    return [one for one in _parameters(entry) if one.name not in common]


def _common(found: Sequence[Entry]) -> dict[str, Any]:
    """Return the values that all of some files have; `NAME` where each has its own name."""
    names = found[0].params
    own = {name: "NAME" for name in names if len(found) > 1 and all(one.params.get(name) == one.name for one in found)}
    return {name: value for name, value in names.items() if all(one.params.get(name) == value for one in found)} | own


def differences(found: Sequence[Entry]) -> list[str]:
    """Return the other defaults of several files of a class, a text for each that has any."""
    shown = {line.name for line in own_lines(found)}
    defaults = {one.name: _plain(one.default) for one in _parameters(found[0]) if one.name in shown}
    defaults |= {name: value for name, value in _common(found).items() if defaults.get(name) in (REQUIRED, None)}
    said = []
    for entry in found if len(found) > 1 else ():
        changed = {
            name: value
            for name, value in entry.params.items()
            if name in shown and value != defaults[name] and (value, defaults[name]) != (entry.name, "NAME")
        }
        values = ", ".join(short(name, f"={written(value)}") for name, value in changed.items())
        said += [f"`{entry.name}`: {values}"] if values else []
    return said


def by_class(found: list[Entry]) -> dict[str, list[Entry]]:
    grouped: dict[str, list[Entry]] = {}
    for entry in found:
        grouped.setdefault(entry.target, []).append(entry)
    return grouped


def homes() -> dict[str, str]:
    """Return the page that has all about some plug-ins or classes, by the name of the region with their parameters."""
    pages_of = [(path.name, path.read_text()) for path in sorted(DOCS.glob("*.md"))]
    return {name: page for page, text in pages_of for name in re.findall(r"<!-- parameters (\S+): begin -->", text)}


def page(found: list[Entry]) -> str:
    parts, at_home = [_HEAD], homes()
    for group, title in GROUPS.items():
        general = _general(group)
        members = list(by_class([entry for entry in found if entry.group == group]).values())
        parts.append(f"\n## {title}\n")
        parts += [f"\nAll: {_keys(general)}.\n"] if general else []
        parts += [_item(several, _home(several, at_home)) for several in members if own_lines(several)]
        none = [f"`{entry.name}`" for several in members if not own_lines(several) for entry in several]
        parts += [f"\nNone: {', '.join(none)}."] if none else []
        parts += _parts(at_home) if group == "strategy" else []
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip("\n") + "\n"


def _general(group: str) -> list[Line]:
    """Return the lines of what all plug-ins of a group have."""
    cls = {"compressor": Compressor, "topo": Impairments}.get(group)
    return lines(declaration(cls), {}) if cls else []


def _keys(found: Sequence[Line]) -> str:
    return ", ".join(line.short for line in found) or "none"


def _item(several: Sequence[Entry], home: str | None) -> str:
    """Return the line of a class: its names, its keys or the page that has them, and other defaults by name."""
    names = ", ".join(f"`{entry.name}`" for entry in several)
    return "; ".join([f"- {names}: {_link(home) if home else _keys(own_lines(several))}", *differences(several)])


def _home(several: Sequence[Entry], at_home: Mapping[str, str]) -> str | None:
    return next((at_home[key] for one in several if (key := f"{one.group}={one.name}") in at_home), None)


def _link(page_name: str) -> str:
    return f"[{page_name.removesuffix('.md')}]({page_name})"


def _parts(at_home: Mapping[str, str]) -> Iterator[str]:
    for keys, members in parts_by_key().items():
        yield f"\n### {keys}\n"
        for title, own in members.items():
            yield f"- `{title}`: {_link(at_home[title]) if title in at_home else _keys(own)}"


def parts_by_key() -> dict[str, dict[str, list[Line]]]:
    """Return the lines of classes that are chosen inside a plug-in, by its key and by class or method."""
    found = {
        keys: {
            f"{cls.__module__}.{cls.__qualname__}": lines(declaration(cls), {})
            for module in modules
            for cls in vars(module).values()
            if _is_of(cls, module)
        }
        for keys, modules in PARTS.items()
    }
    found["strategy.server"] = {
        f"method={method}": lines([one for one in declaration(rule) if one.name not in ("clients", "alpha")], {})
        for method, rule in RULES.items()
    }
    return found


def rows(found: list[Entry]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the CSV file: each parameter of each plug-in, and of each class inside one."""
    for group in GROUPS:
        yield from (line.row(group, "all") for line in _general(group))
        for entry in (one for one in found if one.group == group):
            yield from (line.row(group, entry.name) for line in lines(_shown(entry), entry.params))
    for keys, members in parts_by_key().items():
        yield from (line.row(keys, title) for title, own in members.items() for line in own)


def _is_of(value: Any, module: ModuleType) -> bool:
    """True for a class of `module` that declares parameters."""
    if not inspect.isclass(value) or value.__module__ != module.__name__ or inspect.isabstract(value):
        return False
    return any(one.kind is not None for one in declaration(value))


def pages(found: list[Entry]) -> dict[Path, str]:
    """Return every page with tables of parameters, as it has to be."""
    named = {f"{entry.group}={entry.name}": entry for entry in found}
    found_pages = {PAGE: page(found), TABLE: csv_text(rows(found))}
    for path in sorted(DOCS.rglob("*.md")):
        text = path.read_text()
        for name in re.findall(r"<!-- parameters (\S+): begin -->", text):
            one = own_lines([named[name]]) if name in named else lines(declaration(declared(name)), {})
            region = "\n".join(line.whole for line in one)
            text = found_pages[path] = between(text, f"parameters {name}", region)
    return found_pages


def main(arguments: Sequence[str]) -> int:
    found = entries()
    counts = {target: len(several) for target, several in by_class(found).items()}
    wrong = [fault for entry in found for fault in faults(entry, counts[entry.target] > 1)]
    wrong += kept(pages(found), "classes declare", "parameters_doc.py", check="--check" in arguments, root=ROOT)
    for fault in dict.fromkeys(wrong):
        print(fault)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
