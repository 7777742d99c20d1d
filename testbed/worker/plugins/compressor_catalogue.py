"""Compressors by the names of their YAML files, built with given parameters."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

import testbed
from testbed.core.spec.run_spec import Part

CONF = Path(testbed.__file__).resolve().parents[1] / "experiments" / "conf" / "compressor"


def names() -> list[str]:
    return sorted(path.stem for path in CONF.glob("*.yaml"))


def part(name: str, params: Mapping[str, Any] | None = None) -> Part:
    settings: dict[str, Any] = yaml.safe_load((CONF / f"{name}.yaml").read_text()) | dict(params or {})
    return Part(name, settings.pop("_target_"), settings)


def built(target: str, params: Mapping[str, Any]) -> Any:
    """A compressor, with what its constructor raises; a parameter that names a class is built too."""
    module, _, cls = target.rpartition(".")
    return getattr(importlib.import_module(module), cls)(**{name: _ready(value) for name, value in params.items()})


def _ready(value: Any) -> Any:
    if isinstance(value, list):
        return [_ready(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    if "_target_" in value:
        return built(value["_target_"], {name: inner for name, inner in value.items() if name != "_target_"})
    return {name: _ready(inner) for name, inner in value.items()}
