"""Descriptions of all plug-ins as data: from the classes, by way of the worker's side, which alone imports them.

The worker's answer is kept in the clone's .cache until one of the files that it depends on changes. Topologies and
programs are described here, without it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from testbed.core.declaration import described
from testbed.core.errors import InputError, raise_input_faults
from testbed.core.record.run_directory import write_json
from testbed.core.spec.run_spec import PROGRAMS, Part
from testbed.core.spec.topology import Topology
from testbed.orchestrator.cli.discovery.kinds import KINDS
from testbed.orchestrator.config.config import names, resolve
from testbed.orchestrator.config.grammar.overrides import unknown
from testbed.orchestrator.config.keys import contents
from testbed.orchestrator.config.topology import build_topology, read_topology_file
from testbed.orchestrator.config.trust import builder
from testbed.orchestrator.config.user_files.yaml_reader import is_path, read_yaml
from testbed.orchestrator.machine.clone import CLONE, CONF_DIR
from testbed.orchestrator.machine.ownership import give_to_caller, outermost_new
from testbed.orchestrator.terminal.status_line import Following

CACHE = CLONE / ".cache" / "plugins.json"
TIME_LIMIT_S = 120.0
_SOURCES = ("compressors", "testbed/core", "testbed/worker", "experiments/conf")
_COMMENT = re.compile(r"^(\w+): *(.*?)(?:\s+# (.*))?$", re.MULTILINE)
Description = dict[str, Any]
_ALONE: Description = {"capabilities": {}, "excludes": [], "partners": {}, "refused": []}
"""Description of how a topology or a program goes together with others: nobody is asked."""


def descriptions(group: str) -> dict[str, Description]:
    """Return the descriptions of all plug-ins of a group, by name."""
    if group == "topo":
        return {name: _topology(name, *_built(name)) for name in names(group)}
    found = {**_answers()[group], **dict(_programs(group))}
    for one in found.values():
        for fault in one.get("faults", ())[:1]:
            one |= {
                "what": f"cannot be used: {fault}",
                "traits": {},
                "parameters": [],
                **_ALONE,
                "source": "",
                "about": "",
            }
    return {name: _with_length(group, found[name], CONF_DIR / group / f"{name}.yaml") for name in sorted(found)}


def description(group: str, name: str) -> Description:
    """Return the description of one plug-in.

    Args:
        name: Its name, or the path of a user's YAML file.

    Raises:
        InputError: There is none of this name, or the file or its class has faults; every fault at once.
    """
    if is_path(name):
        return _of_file(group, name)
    if name not in (known := names(group)):
        raise InputError(unknown(f"{group}={name}", name, known, "topology" if group == "topo" else group))
    if group == "topo":
        return _topology(name, *_built(name))
    found = {**_answers()[group], **dict(_programs(group))}[name]
    raise_input_faults(found.get("faults", ()))
    return _with_length(group, found, CONF_DIR / group / f"{name}.yaml")


def _of_file(group: str, path: str) -> Description:
    spec = resolve([f"{group}={path}", "steps=1"]).spec
    if group == "topo":
        values = read_topology_file(Path(path)).values
        return _topology(path, values["_target_"], values, spec.topology)
    part: Part = getattr(spec, group)
    found: Description = _asked({group: [part]}, {group: [part.name]})[group][part.name]
    raise_input_faults(found.get("faults", ()))
    return {**_with_length(group, found, Path(path)), "name": path}


def _with_length(group: str, found: Description, path: Path) -> Description:
    """Return the description of a workload with the length that its file recommends, and others as they are."""
    run = read_yaml(path).plain().get("run") if group == "workload" else None
    return {**found, "run": run} if run else found


def _built(name: str) -> tuple[str, dict[str, Any], Topology]:
    """Return function, parameters and network of a topology of ours."""
    params = contents(CONF_DIR / "topo" / f"{name}.yaml")
    run: Any = params.get("run") or {}
    target = str(params["_target_"])
    given = {key: value for key, value in params.items() if key not in ("_target_", "run")}
    workers = run.get("workers", contents(CONF_DIR / "config.yaml")["workers"])
    return target, params, build_topology(name, target, given, workers, ())


def _topology(name: str, target: str, params: Mapping[str, Any], topology: Topology) -> Description:
    build = builder(target)
    parameters = [one for one in described(build, params) if one["name"] not in ("name", "workers")]
    docstring = " ".join((build.__doc__ or "").split("Args:")[0].split())
    comments = _head(Path(name) if is_path(name) else CONF_DIR / "topo" / f"{name}.yaml")
    links = topology.wan_links or topology.access_links
    profiles = [profile for link in links for _, _, profile in link.directions()]
    return {
        "name": name,
        "target": target,
        "what": (comments[0] if comments else docstring.partition(". ")[0]).rstrip("."),
        "about": "\n".join([docstring, *comments[1:]]).strip() if comments else docstring.partition(". ")[2],
        "source": "; ".join(dict.fromkeys(profile.source for profile in profiles)),
        "traits": {
            "regions": list(topology.regions),
            "workers": len(topology.nodes),
            "wan_links": len(topology.wan_links),
            "rate_bit_s": sorted({profile.rate_bit_s for profile in profiles}),
            "rtt_s": sorted({link.rtt_s for link in links}),
        },
        **_ALONE,
        "parameters": parameters,
    }


def _head(path: Path) -> list[str]:
    """Return the comments at the beginning of a YAML file."""
    found = []
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            break
        found.append(line.lstrip("# ").strip())
    return found


def _programs(group: str) -> Iterator[tuple[str, Description]]:
    """Yield what a workload can be besides a class: a user's own script, or nothing."""
    for name in names(group):
        path = CONF_DIR / group / f"{name}.yaml"
        values = contents(path)
        if values["_target_"] not in PROGRAMS:
            continue
        meanings = {key: (text or "") for key, _, text in _COMMENT.findall(path.read_text())}
        absent = {"type": "", "values": "", "unit": "", "choices": None, "required": False, "null": True}
        keys = [key for key in values if key not in ("_target_", "run")]
        parameters = [{"name": key, **absent, "default": values[key], "meaning": meanings.get(key, "")} for key in keys]
        what, *about = [*_head(path), ""]
        texts = {"what": what.rstrip("."), "about": "\n".join(about).strip(), "source": ""}
        rest = {"traits": {"program": PROGRAMS[str(values["_target_"])]}, **_ALONE}
        yield name, {"name": name, "target": values["_target_"], **texts, **rest, "parameters": parameters}


def _answers() -> dict[str, dict[str, Description]]:
    """Return what the worker's side says of all plug-ins of this repository, from the cache if nothing has changed."""
    key = _key()
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads(CACHE.read_text())
        if kept["key"] == key:
            found: dict[str, dict[str, Description]] = kept["plugins"]
            return found
    found = _asked({}, {group: list(members) for group, members in _parts().items()})
    if any("faults" in one for members in found.values() for one in members.values()):
        return found  # it may lie in the environment, such as in a package that is missing
    with contextlib.suppress(OSError):  # a clone that cannot be written to asks each time
        new = outermost_new(CACHE)
        CACHE.parent.mkdir(parents=True, exist_ok=True)
        write_json(CACHE, {"key": key, "plugins": found})
        give_to_caller(new)
    return found


def _key() -> str:
    """Return a digest of the files that descriptions depend on, by their names, sizes and times."""
    digest = hashlib.sha256(sys.version.encode())
    for folder, folders, files in (one for source in _SOURCES for one in os.walk(CLONE / source)):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(name for name in files if name.endswith((".py", ".yaml"))):
            found = os.stat(os.path.join(folder, name))
            digest.update(f"{folder}/{name} {found.st_size} {found.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _parts() -> dict[str, dict[str, Part]]:
    """Return the plug-ins of this repository that have a class, by group and name."""
    found: dict[str, dict[str, Part]] = {}
    for group in (group for group in KINDS.values() if group != "topo"):
        for name in names(group):
            params = dict(contents(CONF_DIR / group / f"{name}.yaml"))
            target = str(params.pop("_target_"))
            params.pop("run", None)
            if target not in PROGRAMS:
                found.setdefault(group, {})[name] = Part(name, target, params)
    return found


def _asked(own: Mapping[str, list[Part]], asked: Mapping[str, list[str]]) -> dict[str, dict[str, Description]]:
    """Have the worker's side describe the plug-ins that are asked for.

    Args:
        own: Plug-ins of the user's.

    Raises:
        InputError: With every fault of theirs.
    """
    from testbed.orchestrator.run.questions.plugins import ask_worker

    parts = {group: {**members, **{one.name: one for one in own.get(group, ())}} for group, members in _parts().items()}
    listed = {group: [vars(one) for one in members.values()] for group, members in parts.items()}
    question = {"spec": resolve([]).spec.to_json(), "parts": listed, "asked": asked}
    with Following("plug-ins", None, sys.stderr) as following:
        following.tell("reading what the plug-ins declare (once for this code)")
        found: dict[str, dict[str, Description]] = ask_worker("describe", question, "plug-ins", TIME_LIMIT_S)["parts"]
    return found
