"""Keys of a run: those that do not exist, those that were probably meant, and those that a workload recommends."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from testbed.core.errors import nearest
from testbed.core.spec.redirects import KEY
from testbed.orchestrator.config.grammar.overrides import Override, unknown
from testbed.orchestrator.config.settings import SETTINGS

_RECOMMENDING = {"workload": ("workload", "steps"), "topo": ("topology", "workers")}
"""Groups whose files may hold a `run:`."""


def key_faults(overrides: Sequence[Override], defaults: Mapping[str, str], conf_dir: Path) -> Iterator[str]:
    """Yield a line for each key that a run does not have.

    Args:
        defaults: Groups of plug-ins, with the name that each has if none is given.
    """
    known = (*defaults, *SETTINGS)
    for override in overrides:
        if override.head in defaults:
            if override.head in _RECOMMENDING and override.rest.split(".")[0] == "run":
                what, key = _RECOMMENDING[override.head]
                key = override.rest.partition(".")[2] or key
                yield f"{override.text}: what a {what} recommends; give {key}=… itself"
        elif override.key not in SETTINGS:
            meant = _meant(override, {**defaults, **{o.key: o.value_text for o in overrides}}, defaults, conf_dir)
            yield unknown(override.text, override.key, known, "key", meant)


def recommend(config: Mapping[str, Any], overrides: Sequence[Override], strategy: str) -> Iterator[str]:
    """Give a strategy the parameters that suit the workload, but for those that the user gives; yield what is wrong.

    Args:
        config: Whole configuration. `run.strategy` of its `workload` has the parameters by strategy, and its `strategy`
            is changed.
        strategy: Name that is asked for.
    """
    suited = ((config.get("workload") or {}).get("run") or {}).get("strategy", {})
    given = {o.rest.split(".")[0] for o in overrides if o.head == "strategy" and o.rest}
    if not (isinstance(suited, dict) and all(isinstance(one, dict) for one in suited.values())):
        yield f"workload: run.strategy={suited} in its file: must be {{NAME: {{KEY: VALUE}}}}"
    elif KEY not in given:
        own = {key: value for key, value in suited.get(strategy, {}).items() if key not in given}
        config.get("strategy", {}).update(own)


def _meant(override: Override, chosen: Mapping[str, str], groups: Collection[str], conf_dir: Path) -> str | None:
    """Return the key that was probably meant: a part misspelt, or a parameter without the name of its part."""
    if override.rest:
        near = nearest(override.head, groups)
        return f"{near}.{override.rest}" if near else None
    for group in groups:
        if override.key in _parameters(conf_dir / group / f"{chosen[group]}.yaml"):
            return f"{group}.{override.key}"
    paths = (path for group in groups for path in (conf_dir / group).glob("*.yaml"))
    having = Counter(path.parent.name for path in paths if override.key in _parameters(path))
    return f"{having.most_common(1)[0][0]}.{override.key}" if having else None


def _parameters(path: Path) -> set[str]:
    return set(contents(path)) - {KEY, "run"} if path.is_file() else set()


def default_names(conf_dir: Path) -> dict[str, str]:
    """Return the groups of plug-ins, with the name that each has if none is given."""
    entries: Any = contents(conf_dir / "config.yaml")["defaults"]
    return {str(key): str(name) for one in entries if not isinstance(one, str) for key, name in one.items()}


def targets(group: Path) -> dict[str, str]:
    """Return the targets of the plug-ins in a folder of ours, by name."""
    return {path.stem: str(contents(path).get(KEY)) for path in group.glob("*.yaml")}


def contents(path: Path) -> dict[str, object]:
    """Return keys and values of a configuration file of ours; the file is read once while it is as it was."""
    found = path.stat()
    return _read(path, found.st_mtime_ns, found.st_size)


@functools.lru_cache(maxsize=1024)
def _read(path: Path, _changed_ns: int, _size: int) -> dict[str, object]:
    """Return keys and values. Each file takes milliseconds, and a suggestion looks at all."""
    content = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    return {str(key): value for key, value in content.items()} if isinstance(content, dict) else {}
