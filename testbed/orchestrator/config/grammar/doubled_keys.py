"""Keys that stand twice within one value on the command line, as in `events='[{at: 0 s, at: 1 s}]'`.

Hydra keeps the last one. In files they are refused, and so they are here.
"""

from __future__ import annotations

from typing import Any

from hydra.core.override_parser.overrides_parser import create_functions
from hydra.core.override_parser.overrides_visitor import HydraOverrideVisitor
from hydra.grammar.gen.OverrideLexer import CommonTokenStream, InputStream, OverrideLexer  # type: ignore[attr-defined]
from hydra.grammar.gen.OverrideParser import OverrideParser


def require_single_keys(text: str) -> None:
    """Refuse `key=value` if a mapping in the value holds a key twice. Hydra has read the text without an error.

    Raises:
        ValueError: A key is given twice; keys are compared as they are understood.
    """
    if "{" in text:
        parser = OverrideParser(CommonTokenStream(OverrideLexer(InputStream(text))))
        _Visitor(create_functions()).visit(parser.override())  # type: ignore[no-untyped-call]


class _Visitor(HydraOverrideVisitor):
    def visitDictContainer(self, ctx: OverrideParser.DictContainerContext) -> dict[str, Any]:
        """Return the mapping.

        Raises:
            ValueError: A key is given twice.
        """
        found: dict[str, Any] = {}
        for number in range(1, ctx.getChildCount() - 1, 2):
            pair = ctx.getChild(number)
            key, value = self.visitDictKeyValuePair(pair)
            if str(key) in found:
                raise ValueError(f"{pair.getChild(0).getText().strip()} is given twice in {{...}}; give it once")
            found[str(key)] = value
        return found
