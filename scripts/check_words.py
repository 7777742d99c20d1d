"""Checks that documentation has none of the project's private words, which a reader has to learn before the text.

Pages that do not pass yet are in words_to_rewrite.txt, each with its number of such words. The check fails where a page
has more, and where it has fewer: then `--shrink` lowers the number. Code blocks, `code`, names of files as links,
links' targets and quotations in double quotes are not looked at, nor are decisions, which are records.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[1]
LIST = Path("scripts/words_to_rewrite.txt")
PAGES = ("README.md", "LIMITATIONS.md", "CONTRIBUTING.md")

INSTEAD: Final[Mapping[str, str]] = {
    r"all else": "everything else",
    r"anew": "again",
    r"another machine (takes|took|has taken)": "CPU steal",
    r"(could|can) (not )?be had": "is available, was not available here",
    r"beside": "in addition to, next to, during",
    r"delay lines?": "delay shaper",
    r"held (to|against)|holds? \w+ against": "compared with, checked against",
    r"hangs? on|hung on": "depends on",
    r"in so many": "in N",
    r"kin": "related methods",
    r"last words": "exit diagnostics",
    r"law ?books?": "conformance tests",
    r"likewise": "repeat the noun",
    r"middle nodes?": "link node",
    r"nobody|whoever": "name the actor, or say 'no rank'",
    r"of (ours|our own)": "Longhaul's, built-in",
    r"of one's own|one's own": "custom, or name the setting",
    r"on the wall|of the wall": "wall-clock",
    r"once more": "again",
    r"quick looks?": "smoke test",
    r"reckon(s|ed|ing)?": "assume, include",
    r"seal(s|ed|ing)?": "finalize",
    r"some (tens|dozens|hundreds) of": "give the figure",
    r"the machine (alone|to itself)": "exclusive use of the machine",
    r"times (as|so) (soon|fast|long|much|many|large|small|few)": "N x faster, N x more",
    r"times (less|fewer)": "N x fewer",
    r"vouch(es|ed)? for": "verified",
    r"what (came|becomes?|became) of": "result, outcome",
    r"zygotes?": "fork server",
}
"""Patterns of private words, each with what to write instead. None is ordinary English in this field, so that the check
needs no judgement; voice.md's other words, such as `late` or `goes on`, do need it."""
_WORDS = re.compile(
    "|".join(rf"(?P<w{n}>\b(?:{pattern})\b)" for n, pattern in enumerate(INSTEAD)).replace(" ", r"\s+"), re.IGNORECASE
)
_NOT_PROSE = re.compile(
    r"^```.*?^```|`[^`\n]*`|\[[\w.\\]+\](\([^)\n]*\))?|\]\([^)\n]*\)|\"[^\"\n]*\"|<!--.*?-->", re.MULTILINE | re.DOTALL
)


def main(arguments: Sequence[str]) -> int:
    """Print the private words that the list does not allow for; return 1 if there are any."""
    found = {path: list(faults(path, (ROOT / path).read_text())) for path in pages()}
    listed = {path: int(count) for path, count in map(str.split, (ROOT / LIST).read_text().splitlines())}
    if "--shrink" in arguments:
        listed = {path: min(count, len(found[path])) for path, count in listed.items() if found.get(path)}
        (ROOT / LIST).write_text("".join(f"{path} {count}\n" for path, count in sorted(listed.items())))
    errors = list(disagreements(found, listed))
    print("\n".join(errors), end="\n" if errors else "")
    return 1 if errors else 0


def pages() -> Iterator[str]:
    """Yield every page of the documentation, relative to the root."""
    yield from PAGES
    for path in sorted((ROOT / "docs").rglob("*.md")):
        if "decisions" not in path.parts:
            yield path.relative_to(ROOT).as_posix()


def faults(path: str, text: str) -> Iterator[str]:
    """Yield the private words of one page, each as `path:line: word: what to write instead`."""
    prose = _NOT_PROSE.sub(lambda cut: re.sub(r"[^\n]", " ", cut[0]), text)
    for match in _WORDS.finditer(prose):
        number = int(str(match.lastgroup)[1:])
        line = prose.count("\n", 0, match.start()) + 1
        yield f"{path}:{line}: '{' '.join(match[0].split())}': write '{list(INSTEAD.values())[number]}'"


def disagreements(found: Mapping[str, Sequence[str]], listed: Mapping[str, int]) -> Iterator[str]:
    """Yield a line for each word that the list does not allow for, and for each line of the list that is wrong."""
    for path, count in listed.items():
        if path not in found:
            yield f"{LIST}: {path} does not exist; take it out"
        elif len(found[path]) < count:
            yield f"{LIST}: {path} has {len(found[path])} words, {count} are listed; run {sys.argv[0]} --shrink"
    for path, lines in found.items():
        if len(lines) > listed.get(path, 0):
            yield from lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
