"""An extension of griffe: examples of docstrings become blocks of code, which Markdown would take for quotations."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^( *)>>> .*(?:\n(?! *$).*)*", re.MULTILINE)


class Examples(griffe.Extension):
    """Puts fences around each example, up to the next empty line."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for each object once it is read."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """Return a docstring with its examples in fences.

    >>> print(fenced("One more.\\n\\n>>> 1 + 1\\n2\\n\\nArgs:\\n    a: A number."))
    One more.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    <BLANKLINE>
    Args:
        a: A number.
    """
    return _EXAMPLE.sub(lambda found: f"{found[1]}```pycon\n{found[0]}\n{found[1]}```", text)
