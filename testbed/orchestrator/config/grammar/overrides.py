"""`key=value` arguments as Hydra reads them, with every malformed one reported in a line of its own."""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override as HydraOverride
from hydra.core.override_parser.types import OverrideType
from hydra.errors import HydraException

from testbed.core.errors import nearest
from testbed.core.units import is_above_0
from testbed.orchestrator.config.grammar.doubled_keys import require_single_keys
from testbed.orchestrator.config.grammar.script_arguments import ARGUMENTS, AS_IN

_PATH = re.compile(r"\.{0,2}/|~/")
"""Beginning of a path that cannot be a value of another kind."""
MAX_CHARACTERS, MAX_DEPTH = 20_000, 50
"""Bounds of one argument: Hydra's grammar takes a second for 20,000 characters, and minutes for nested brackets."""
_SHOWN = 200
"""Characters of an argument at fault that are shown."""
_FILE = re.compile(r".*\.[A-Za-z]\w*")
_SWEEP = "several values are a sweep; a run takes one"
_KEY = re.compile(r"\+{0,2}([A-Za-z_][\w.]*)")


@dataclass(frozen=True)
class Override:
    """One argument: `compressor.density=0.01` has the head "compressor" and the rest "density"."""

    text: str
    """As given, without a leading sign."""
    key: str
    value: Any
    is_path: bool = False
    """True if the value is a path as it was typed, which Hydra must not read."""

    @property
    def head(self) -> str:
        return self.key.partition(".")[0]

    @property
    def rest(self) -> str:
        return self.key.partition(".")[2]

    @property
    def value_text(self) -> str:
        """The value as a name; a name such as `null` or `8` is not text to Hydra."""
        return "null" if self.value is None else str(self.value)


def parse_overrides(texts: Sequence[str]) -> tuple[list[Override], list[str]]:
    """The overrides that can be read, and a fault for each that cannot."""
    parser = OverridesParser.create()
    overrides: list[Override] = []
    faults: list[str] = []
    for text in texts:
        if (found := path_given(text)) is not None:
            if _are_several(found[1]):
                faults.append(f"{text}: {_SWEEP}")
            else:
                overrides.append(Override(text.lstrip("+"), *found, is_path=True))
            continue
        try:
            overrides.append(_checked(text, read_override(text, parser)))
        except HydraException as error:
            faults.append(unread(text, error))
        except ValueError as error:
            faults.append(f"{text if len(text) <= _SHOWN else text[:_SHOWN] + '…'}: {error}")
    faults += _repeated(overrides)
    return overrides, faults


def path_given(text: str, *, must_exist: bool = False) -> tuple[str, str] | None:
    """Return the key and the path of `key=path`; None if the value is something else.

    A path is taken as it is typed, with commas, brackets, spaces and `=`. It begins with /, ./, ../ or ~/, or is that
    of a file that exists.

    Args:
        must_exist: True where a comma may separate several values.
    """
    key, has_value, value = text.partition("=")
    match = _KEY.fullmatch(key)
    if not (has_value and match) or "\0" in value:
        return None
    is_there = _FILE.fullmatch(value) is not None and Path(value).is_file()
    is_plain = _PATH.match(value) is not None and not must_exist
    return (match[1], os.path.expanduser(value)) if is_there or is_plain else None


def _are_several(path: str) -> bool:
    """Return True if no file has this path, while commas separate paths of which some have one."""
    return "," in path and not Path(path).exists() and any(Path(one).is_file() for one in path.split(","))


def is_path_alone(text: str) -> bool:
    """Return True if an argument is a path, not key=value: it begins as one, or is that of a YAML file that exists."""
    return _PATH.match(text) is not None or (text.endswith((".yaml", ".yml")) and Path(text).is_file())


def read_override(text: str, parser: OverridesParser) -> HydraOverride:
    """`key=value` of one value or of several.

    Raises:
        HydraException: it cannot be read.
        ValueError: it is something else that Hydra knows, or a key stands twice within the value.
    """
    if is_path_alone(text):
        raise ValueError(f"is a path without a key; give key=path, as in topo={text}")
    if "=" not in text and text[:1] != "~":
        raise ValueError("not of the form key=value")
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"has {len(text)} characters, at most {MAX_CHARACTERS}; use a file")
    if _depth(text) > MAX_DEPTH:
        raise ValueError(f"brackets are nested more than {MAX_DEPTH} deep")
    parsed = parser.parse_override(text)
    if parsed.type is OverrideType.DEL or not isinstance(parsed.key_or_group, str):
        raise ValueError("nothing can be removed; give key=value")
    if not parsed.key_or_group:
        raise ValueError("no key before '='; give key=value")
    if parsed.package is not None:
        raise ValueError("'@' is not used here; give key=value")
    require_single_keys(text)
    return parsed


def _depth(text: str) -> int:
    """Return how many brackets are open at most; those within quotes count too."""
    steps = (1 if one in "([{" else -1 for one in text if one in "()[]{}")
    return max(itertools.accumulate(steps), default=0)


def unread(text: str, error: HydraException) -> str:
    """The line for what Hydra cannot read."""
    is_of_script = text.lstrip("+").startswith(f"{ARGUMENTS}=")
    remedy = f"{ARGUMENTS} {AS_IN}" if is_of_script else "quote a value that has special characters"
    return f"{text}: cannot be read: {first_line(error)}; {remedy}"


def _checked(text: str, parsed: HydraOverride) -> Override:
    if parsed.is_sweep_override():
        raise ValueError(_SWEEP)
    value = parsed.value()
    if parsed.key_or_group != ARGUMENTS and not _is_finite(value):
        raise ValueError("must be a finite number")
    if value == 0 and isinstance(value, float) and is_above_0(text.partition("=")[2]):
        raise ValueError("is too small; give a number that a computer can hold")
    return Override(text=text.lstrip("+"), key=parsed.key_or_group, value=value)


def _is_finite(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, list):
        return all(_is_finite(item) for item in value)
    if isinstance(value, dict):
        return all(_is_finite(item) for item in value.values())
    return True


def _repeated(overrides: Sequence[Override]) -> Iterator[str]:
    by_key: dict[str, list[str]] = {}
    for override in overrides:
        by_key.setdefault(override.key, []).append(override.value_text)
    for key, values in by_key.items():
        if len(values) > 1:
            yield f"{key}: given {len(values)} times ({', '.join(values)}); give it once"
    for override in overrides:
        for key in _inner_keys(override.key, override.value):
            if key in by_key:
                yield f"{key}: given twice, alone and in {override.text}; give it once"


def _inner_keys(key: str, value: object) -> Iterator[str]:
    """Yield the keys within a mapping as they are when given alone, such as `compressor.inner.density`."""
    for inner, found in value.items() if isinstance(value, dict) else ():
        yield f"{key}.{inner}"
        yield from _inner_keys(f"{key}.{inner}", found)


def unknown(asked: str, name: str, known: Iterable[str], what: str = "", meant: str | None = None) -> str:
    """Return the line for a name that does not exist: what was asked, what was probably meant, the known ones.

    Args:
        meant: What was probably meant, where the caller knows more than the names.
    """
    names = sorted(known)
    near = meant or nearest(name, names)
    guess = f"; did you mean {near}?" if near else ";"
    return f"{asked}: unknown {what}{guess} known: {', '.join(names) or 'none'}".replace("unknown ;", "unknown;")


def first_line(error: BaseException) -> str:
    """The first line of an error's text, since later ones speak of Hydra's inside."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
