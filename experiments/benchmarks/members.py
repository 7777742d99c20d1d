"""The compressors there are, and which files their figures depend on."""

from __future__ import annotations

from pathlib import Path

import yaml

from experiments.benchmarks import sources
from testbed.orchestrator.clone import CLONE

CONF = CLONE / "experiments" / "conf" / "compressor"
NAMES = tuple(sorted(path.stem for path in CONF.glob("*.yaml")))
_RUN_BY_PATH = {"codec_process": "codec_child"}
"""A module that is started, not imported, by another one beside it."""


def files(name: str) -> set[Path]:
    """The member's defaults, its own files, and all they import of the package."""
    settings = CONF / f"{name}.yaml"
    modules = ["compressors.base", *sources.targets(yaml.safe_load(settings.read_text()))]
    found = sources.files(modules, ("compressors.",))
    started = {path.with_stem(_RUN_BY_PATH[path.stem]) for path in found if path.stem in _RUN_BY_PATH}
    return found | started | {settings}
