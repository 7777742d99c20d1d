"""From `key=value` arguments to a `RunSpec`: Hydra at the edge, and every fault at once.

Group names are resolved here before Hydra composes, since Hydra stops at the first one it does not know. A plug-in's
parameters stay data: only `python -m testbed.worker check` may import it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hydra
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped]

from testbed.core.errors import InputError, raise_input_faults
from testbed.core.spec.run_spec import PROGRAMS, Part, RunSpec
from testbed.core.spec.schedule import Background, Change, outermost
from testbed.core.spec.topology import Topology
from testbed.orchestrator.config import programs
from testbed.orchestrator.config.background import compile_background
from testbed.orchestrator.config.events.compiler import ELASTIC_WORKLOAD, compile_events, read_events
from testbed.orchestrator.config.grammar.overrides import Override, first_line, parse_overrides, unknown
from testbed.orchestrator.config.grammar.script_arguments import ARGUMENTS
from testbed.orchestrator.config.keys import contents, default_names, key_faults, recommend, targets
from testbed.orchestrator.config.models import located
from testbed.orchestrator.config.part_files import folders_of, merged, read_part_file, with_files
from testbed.orchestrator.config.scale import apply_scale, scale_of
from testbed.orchestrator.config.settings import AUTO, GUESS, SETTINGS, read_limits, read_settings, with_run_defaults
from testbed.orchestrator.config.topology import TARGET, TopologyFile, build_topology, read_topology_file
from testbed.orchestrator.config.user_files.yaml_reader import MAX_NAME, is_path
from testbed.orchestrator.emulation.kernel import tc
from testbed.orchestrator.machine.clone import CONF_DIR, RUNS_ROOT

PARTS = ("workload", "strategy", "compressor", "device", "transform")
GROUPS = ("topo", *PARTS)


@dataclass(frozen=True)
class Resolved:
    """What came of the arguments."""

    faults: tuple[str, ...]
    settings: dict[str, Any]
    """Common keys that could be read, the rest at their defaults: preflight needs some even so."""
    stand_in: RunSpec | None
    """The spec, with the defaults in place of what is at fault; None where that cannot be had either."""
    parts_given: bool
    """Whether the user said anything about a plug-in that might be at fault."""

    @property
    def spec(self) -> RunSpec:
        """Raises:
        InputError: with every fault at once.
        """
        raise_input_faults(self.faults)
        assert self.stand_in is not None
        return self.stand_in


def compose(overrides: Sequence[str], conf_dir: Path = CONF_DIR) -> RunSpec:
    """The run that `overrides` ask for.

    Raises:
        InputError: with every fault at once.
    """
    return resolve(overrides, conf_dir).spec


def resolve(
    texts: Sequence[str],
    conf_dir: Path = CONF_DIR,
    *,
    emulated: bool = True,
    runs_root: Path = RUNS_ROOT,
    words: Sequence[str] = (),
) -> Resolved:
    """Like `compose`, but faults are returned beside what could be read.

    Args:
        words: command line of a user's script, behind `--`.
        runs_root: where the runs lie that may be begun with.
        emulated: whether it is to be run; otherwise its network may be larger than one can be built.
    """
    overrides, faults = parse_overrides(texts)
    known = [o for o in overrides if o.head in GROUPS or o.key in SETTINGS]
    try:
        faults += key_faults(overrides, default_names(conf_dir), conf_dir)
        return _Composition(known, conf_dir, faults, emulated=emulated, runs_root=runs_root).resolve(words)
    except (HydraException, OmegaConfBaseException, YAMLError, OSError) as error:
        return Resolved((*faults, f"configuration in {conf_dir}: {first_line(error)}"), {}, None, False)


def names(group: str, conf_dir: Path = CONF_DIR) -> list[str]:
    """Return the names of a group, sorted."""
    return sorted(path.stem for path in (conf_dir / group).glob("*.yaml"))


class _Composition:
    """One pass over the arguments; gathers `faults` as it goes and puts defaults in place of what is at fault."""

    def __init__(
        self, overrides: Sequence[Override], conf_dir: Path, faults: list[str], *, emulated: bool, runs_root: Path
    ) -> None:
        self.overrides = overrides
        self.emulated = emulated
        self.runs_root = runs_root
        self.conf_dir = conf_dir
        self.faults = faults
        self.defaults = default_names(conf_dir)
        self.chosen = {o.key: o.value_text for o in overrides if o.key in GROUPS}
        self.targets = {o.head: o.value_text for o in overrides if o.head in GROUPS and o.rest == "_target_"}
        self.topology_file: TopologyFile | None = None
        """Content of a topology given by its path; None for one of ours."""
        self.part_files: dict[str, dict[str, Any]] = {}
        """Contents of plug-ins given by their paths, by group."""
        self.lacking = {group for group in GROUPS if not self._has_known_name(group)}

    def resolve(self, words: Sequence[str]) -> Resolved:
        config = self._compose()
        settings = self._settings(config)
        topo = merged(self.topology_file.values if self.topology_file else {}, config.get("topo") or {})
        if not any(o.key == "workers" for o in self.overrides):
            settings["workers"] = self._recommended_workers(topo.get("run"), settings["workers"])
        self.faults += recommend(config, self.overrides, {**self.defaults, **self.chosen}["strategy"])
        parts = {group: self._part(group, config.get(group)) for group in PARTS}
        parts, faults = programs.fit(parts, self.overrides, words)
        self.faults += faults
        topology = self._topology(topo, settings["workers"])
        filled = with_run_defaults(settings, (config.get("workload") or {}).get("run") or {})
        if "workload" in self.lacking and filled["steps"] is None and filled["epochs"] is None:
            filled["steps"] = 1  # the workload's own, which is not known; that it is not, is a fault already
        filled["events"] = self._events(settings["events"], topology, parts["workload"])
        filled["background"] = self._background(settings["background"], topology, settings["seed"])
        filled["memory_limit"], faults = read_limits(settings["memory_limit"], topology)
        self.faults += faults
        filled["start_from"], faults = located(settings["start_from"], self.runs_root)
        self.faults += faults
        filled["scale"] = scale_of(parts["workload"])
        if topology is not None:
            has_changes = bool(filled["events"] or filled["background"])
            parts, topology, faults = apply_scale(parts, topology, has_changes=has_changes)
            self.faults += faults
        spec = self._spec(topology, parts, filled)
        given = any(o.head in PARTS for o in self.overrides)
        return Resolved(tuple(dict.fromkeys(self.faults)), settings, spec, given)

    def _has_known_name(self, group: str) -> bool:
        """Whether the group's name has a file; a class given by `_target_` alone needs none."""
        if group in self.targets and group not in self.chosen:
            return True
        name = self.chosen.get(group, self.defaults.get(group, ""))
        if is_path(name):
            try:
                if group == "topo":
                    self.topology_file = read_topology_file(Path(name))
                else:
                    self.part_files[group] = read_part_file(group, Path(name), targets(self.conf_dir / group))
            except InputError as error:
                self.faults += error.faults
                return False
            return True
        known = names(group, self.conf_dir)
        asked = f"{group}={name}" + ("" if group in self.chosen else " (the default)")
        if "/" in name or is_path(name.lower()):
            self.faults.append(f"{asked}: a path of a YAML file ends in .yaml or .yml; correct it")
        elif name not in known:
            self.faults.append(unknown(asked, name, known, "topology" if group == "topo" else group))
        return name in known

    def _compose(self) -> dict[str, Any]:
        """The whole configuration as plain data, without the groups that are at fault."""
        unnamed = {group for group in self.targets if group not in self.chosen}
        by_path = {*self.part_files, *(["topo"] if self.topology_file is not None else [])}
        arguments = [f"~{group}" for group in GROUPS if group in self.lacking | unnamed | by_path]
        for override in self.overrides:
            is_given_as_text = override.key in (*by_path, ARGUMENTS) or override.is_path
            if override.head not in self.lacking and not is_given_as_text:
                # "++": a parameter that the file does not name is for the plug-in to refuse, not for Hydra
                arguments.append(override.text if override.key in GROUPS else f"++{override.text}")
            elif override.is_path and override.head not in {*self.lacking, *by_path, override.key}:
                arguments.append(f"++{override.key}=''")  # is set below; until then no mandatory value lacks
        with hydra.initialize_config_dir(str(self.conf_dir.resolve()), version_base="1.3"):
            config = hydra.compose("config", overrides=arguments)
        values = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        assert isinstance(values, dict)
        given = [o for o in self.overrides if o.is_path and o.key not in GROUPS and o.head not in self.lacking]
        return with_files(values, {override.key: override.value for override in given}, self.part_files)

    def _settings(self, config: Mapping[str, Any]) -> dict[str, Any]:
        settings, faults = read_settings(config)
        self.faults += faults
        defaults, own_faults = read_settings(contents(self.conf_dir / "config.yaml"))
        if own_faults:
            raise OSError(f"config.yaml: {own_faults[0]}")
        return {key: settings.get(key, defaults[key]) for key in SETTINGS}

    def _part(self, group: str, values: Any) -> Part | None:
        """The plug-in as data; its parameters are checked where it may be imported."""
        if group in self.lacking:
            return None
        params = dict(values) if isinstance(values, dict) else {}
        target = str(params.pop("_target_", ""))
        if group == "workload":
            params.pop("run", None)
        name = self.chosen.get(group, self.defaults.get(group, group))
        if not TARGET.fullmatch(target):
            where = f"{group}._target_={target}" if group in self.targets else f"{group}={name}"
            self.faults.append(f"{where}: {target!r} is not of the form package.module.Class")
            return None
        file = Path(name) if group in self.part_files else None
        if file is not None:
            name = file.stem
        if group in self.targets:
            name = target.rpartition(".")[2][:MAX_NAME]
        return Part(name, target, params, folders_of(target, params, file))

    def _recommended_workers(self, run: Any, otherwise: int) -> int:
        """What the topology's `run:` says, since a network of ten regions needs ten workers."""
        workers = run.get("workers", otherwise) if isinstance(run, dict) else otherwise
        if isinstance(workers, int) and not isinstance(workers, bool) and workers > 0:
            return workers
        self.faults.append(f"topo: run.workers={workers} in its file: must be a whole number from 1")
        return otherwise

    def _topology(self, values: Mapping[str, Any], workers: int) -> Topology | None:
        if "topo" in self.lacking:
            return None
        params = dict(values)
        params.pop("run", None)
        target = str(params.pop("_target_", ""))
        name = self.chosen.get("topo", self.defaults.get("topo", "topo"))
        if self.topology_file is not None:
            name = Path(name).stem
        if "topo" in self.targets:
            name = target.rpartition(".")[2][:MAX_NAME]
        given = {o.rest.split(".")[0] for o in self.overrides if o.head == "topo" and o.rest}
        try:
            flags = {"emulated": self.emulated, "is_users": self.topology_file is not None}
            return build_topology(name, target, params, workers, given, **flags)
        except InputError as error:
            self.faults += self.topology_file.located(error.faults, given) if self.topology_file else error.faults
            return None

    def _events(self, value: Any, topology: Topology | None, workload: Part | None) -> tuple[Change, ...]:
        """Compiled for the topology; without one, only what reading the file tells."""
        try:
            listed = read_events(value)
            if topology is None:
                return ()
            # of a workload that is not known it cannot be said that it keeps its members
            changes = compile_events(listed, topology, workload.name if workload else ELASTIC_WORKLOAD)
            self.faults += [f"events: {fault}" for fault in tc.queue_faults(outermost(topology, changes)) if changes]
            return changes
        except InputError as error:
            self.faults += error.faults
            return ()

    def _background(self, value: Any, topology: Topology | None, seed: int) -> tuple[Background, ...]:
        try:
            return () if topology is None else compile_background(value, topology, seed)
        except InputError as error:
            self.faults += error.faults
            return ()

    def _spec(
        self, topology: Topology | None, parts: Mapping[str, Part | None], settings: Mapping[str, Any]
    ) -> RunSpec | None:
        """With defaults for what is at fault, so that the spec's own faults are found beside the others."""
        stand_ins = self._defaults() if topology is None or None in parts.values() else {}
        chosen = {key: part or stand_ins.get(key) for key, part in {**parts, "topology": topology}.items()}
        fields = {k: v for k, v in settings.items() if k != "workers" and not (k in _OPEN and v is None)}
        if (asked := fields["dilation"]) in (AUTO, GUESS):
            # chosen under the machine lock, once it is known how long a step takes; other programs have no steps
            workload = parts.get("workload")
            is_auto = workload is None or workload.target not in PROGRAMS
            fields |= {"dilation": 1.0, "auto_dilation": is_auto, "guessed_dilation": is_auto and asked == GUESS}
        whole: dict[str, Any] = {key: value or _NOTHING[key] for key, value in chosen.items()}
        try:
            spec = RunSpec(**whole, **fields)
        except InputError as error:
            self.faults += error.faults
            spec = RunSpec(**whole, steps=1)
        return None if None in chosen.values() else spec

    def _defaults(self) -> dict[str, Any]:
        """Every group at its default, where the defaults can be had."""
        spec = resolve([], self.conf_dir).stand_in if self.overrides else None
        return {} if spec is None else {**{g: getattr(spec, g) for g in PARTS}, "topology": spec.topology}


_OPEN = ("batch_size", "evaluate_every")
"""Where null means `RunSpec`'s own default."""
_NOTHING: dict[str, Any] = {
    **{group: Part("none", "none.none") for group in PARTS},
    "topology": Topology(name="none", regions=("none",), nodes=(), links=()),
}
"""Stands where nothing else can, so that the other keys of a spec are still checked."""
