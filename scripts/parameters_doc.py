"""Writes docs/parameters.md and the lists of parameters in other pages from what classes declare.

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
from scripts.parameter_lines import Line, is_to_be_given, lines, listed, shared_lines, written
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

Set a parameter by its key: `compressor=topk compressor.density=0.001`. A line gives the key and its default, the
values allowed, and the meaning in one sentence; `longhaul show KIND NAME` prints all of it; for what is inside a
strategy, see the class's docstring. *Shared* names lines at the head of a section, `NAME` the plug-in. A default
without a point takes integers. Write rates, sizes, times and percentages with a unit: `strategy.bucket_size='8 MiB'`,
and objects as `{_target_: module.Class, key: value}`. Times are emulated; rates hold each way.
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
    common = {one.name for one in declaration(Impairments)} if found[0].group == "topo" else {"feedback"}
    shown = [one for one in _parameters(found[0]) if one.name not in common]
    return lines(shown, _common(found))


def _common(found: Sequence[Entry]) -> dict[str, Any]:
    """Return the values that all of some files have; `NAME` where each has its own name."""
    names = found[0].params
    own = {name: "NAME" for name in names if len(found) > 1 and all(one.params.get(name) == one.name for one in found)}
    return {name: value for name, value in names.items() if all(one.params.get(name) == value for one in found)} | own


def differences(found: Sequence[Entry]) -> list[str]:
    """Return a line with the other defaults of several files of a class; nothing if there are none."""
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
        values = ", ".join(f"`{name}={written(value)}`" for name, value in changed.items())
        said += [f"`{entry.name}`: {values}"] if values else []
    return [f"- {'; '.join(said)}."] if said else []


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
        general = {"compressor": Compressor, "topo": Impairments}.get(group)
        members = list(by_class([entry for entry in found if entry.group == group]).values())
        found_at = [_home(several, at_home) for several in members]
        shared = shared_lines(own_lines(one) for one, home in zip(members, found_at, strict=True) if not home)
        parts.append(f"\n## {title}\n")
        parts += _block("All:", [str(line) for line in lines(declaration(general), {})] if general else [])
        parts += _block("Shared by several:", [str(line) for line in shared.values()])
        for several, home in zip(members, found_at, strict=True):
            rows = [_link(home)] if home else listed(own_lines(several), shared)
            parts += _block(f"### {', '.join(entry.name for entry in several)}", rows + differences(several))
        none = [f"`{entry.name}`" for several in members if not own_lines(several) for entry in several]
        parts.append(f"\nNone: {', '.join(none)}." if none else "")
        parts += _parts(at_home) if group == "strategy" else []
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip("\n") + "\n"


def _block(title: str, rows: Sequence[str]) -> list[str]:
    """Return some lines under their title; nothing if there are none."""
    return [f"\n{title}\n", *rows] if rows else []


def _home(several: Sequence[Entry], at_home: Mapping[str, str]) -> str | None:
    return next((at_home[key] for one in several if (key := f"{one.group}={one.name}") in at_home), None)


def _link(page_name: str) -> str:
    return f"- Parameters: [{page_name.removesuffix('.md')}]({page_name})."


def _parts(at_home: Mapping[str, str]) -> Iterator[str]:
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
    for keys, members in found.items():
        shared = shared_lines(members.values())
        yield f"\n### {keys}\n"
        yield from _block("Shared by several:", [str(line) for line in shared.values()])
        for title, own in members.items():
            yield from _block(f"`{title}`:", [_link(at_home[title])] if title in at_home else listed(own, shared))


def _is_of(value: Any, module: ModuleType) -> bool:
    """True for a class of `module` that declares parameters."""
    if not inspect.isclass(value) or value.__module__ != module.__name__ or inspect.isabstract(value):
        return False
    return any(one.kind is not None for one in declaration(value))


def pages(found: list[Entry]) -> dict[Path, str]:
    """Return every page with tables of parameters, as it has to be."""
    named = {f"{entry.group}={entry.name}": entry for entry in found}
    found_pages = {PAGE: page(found)}
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
