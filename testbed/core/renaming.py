"""Members of plug-ins that have a new name: the old name works for one major version, and says so."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, ClassVar


class Renamed:
    """Root of a base class of plug-ins.

    A subclass that defines a member by its old name has it by the new one too, and warns once, when the class is
    made. One that defines it by the new name has it by the old one too, so that a plug-in that still says
    `super().faults(...)` reaches it. Attributes that a constructor sets are not looked at.
    """

    renamed: ClassVar[Mapping[str, str]] = {}
    """New names by old ones."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own, said = dict(vars(cls)), []
        for old, new in cls.renamed.items():
            if new in own:
                setattr(cls, old, own[new])
            elif old in own:
                setattr(cls, new, own[old])
                said.append(f"{old} is {new} now")
        if said:
            tell_renamed(f"{cls.__module__}.{cls.__qualname__}", *said, stacklevel=3)


def tell_renamed(where: str, *said: str, stacklevel: int = 2) -> None:
    """Warn of old names, as "OLD is NEW now"; shown by default, since plug-ins are seldom run by their tests alone."""
    text = f"{where}: {', '.join(said)}; the old name goes with version 3.0"
    warnings.warn(text, FutureWarning, stacklevel=stacklevel + 1)
