"""Arguments of a user's script on our command line, in the spelling in which they were typed."""

from __future__ import annotations

ARGUMENTS = "workload.args"
AS_IN = 'must be a list of texts, as in [--epochs,2] or ["--lr=0.1"]; or put them behind --, as in -- --lr=0.1'
_OPEN, _CLOSE = "[{(", "]})"


def elements(typed: str) -> list[str | None]:
    """Return the elements of a list, such as `[--epochs, 2]`, each as it is spelt."""
    found: list[str | None] = []
    start, depth, quote = 1, 0, ""
    text = typed.strip()
    for at, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote and text[at - 1] != "\\" else quote
        elif letter in "'\"":
            quote = letter
        elif letter in _OPEN:
            depth += 1
        elif letter in _CLOSE:
            depth -= 1
        is_end = letter == "," and depth == 1 and not quote and text[at - 1] != "\\"
        if is_end or at + 1 == len(text):
            found.append(text[start:at].strip())
            start = at + 1
    return [] if found == [""] else found
