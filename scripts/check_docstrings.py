"""Checks that docstrings of public definitions begin with a whole phrase on one line that ends with a full stop.

Modules that do not pass yet are in docstrings_to_rewrite.txt, each with its number of faults. The check fails where a
module has more, and where it has fewer: then `--shrink` lowers the number. Plug-ins, base classes and the communicator
are never in that list.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
LIST = Path("scripts/docstrings_to_rewrite.txt")
SOURCES = ("testbed", "compressors", "topologies", "dashboards", "longhaul", "experiments", "scripts")
BASES = (
    "compressors/base/*.py",
    "testbed/core/device/device.py",
    "testbed/worker/communication/communicator.py",
    "testbed/worker/interfaces/*.py",
)
"""Patterns of files whose classes others derive from or call. Public functions there are documented, and say what they
return."""
PLUG_INS = (
    "compressors/*.py",
    "topologies/*.py",
    "testbed/worker/strategies/*.py",
    "testbed/worker/transforms/*.py",
    "testbed/worker/workloads/*.py",
)
"""Patterns of files that users copy."""
FRAGMENT = re.compile(
    r"(Also|And|As|Because|Beside|But|By|How|In place of|In so|Its|Likewise|None|Nor|Of|Or|Since|So|Such|Than|That"
    r"|Their|Those|Under|Until|What|Whatever|When|Where|Whether|Which|While|Who|Whoever|Whom|Whose|Why|With|Without)\b"
)
"""Words that a sentence goes on with: a docstring that begins with one has no subject."""
ENTRY = re.compile(r"^    (\w+): of ", re.MULTILINE)
"""An argument that is described by a fragment."""
RESULT = re.compile(r"\b([Rr]eturn|Yield)\b")
"""Words with which a summary names the result."""
SECTIONS = ("Args:", "Returns:", "Yields:", "Raises:")


@dataclass(frozen=True)
class Definition:
    """A public definition, or an attribute with a docstring."""

    name: str
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Assign | ast.AnnAssign
    text: str | None
    overrides: bool = False
    """True if it is a member of a class that derives from a base class, which may document it."""


def main(arguments: Sequence[str]) -> int:
    """Print the faults that the list does not allow for; return 1 if there are any."""
    texts = {path: (ROOT / path).read_text() for path in sources()}
    bases = frozenset(name for path, text in texts.items() if _is_one_of(path, BASES) for name in classes(text))
    found = {path: list(faults(path, text, bases)) for path, text in texts.items()}
    listed = parse(ROOT / LIST)
    if "--shrink" in arguments:
        listed = {path: min(count, len(found[path])) for path, count in listed.items() if found.get(path)}
        (ROOT / LIST).write_text("".join(f"{path} {count}\n" for path, count in sorted(listed.items())))
    errors = list(disagreements(found, listed))
    print("\n".join(errors), end="\n" if errors else "")
    return 1 if errors else 0


def sources() -> Iterator[str]:
    """Yield every Python file of the code, relative to the root."""
    for folder in SOURCES:
        yield from (path.relative_to(ROOT).as_posix() for path in sorted((ROOT / folder).rglob("*.py")))


def classes(text: str) -> Iterator[str]:
    """Yield the names of the classes of a file."""
    yield from (node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef))


def parse(file: Path) -> dict[str, int]:
    """Return the list: numbers of faults by file."""
    return {path: int(count) for path, count in map(str.split, file.read_text().splitlines())}


def disagreements(found: Mapping[str, Sequence[str]], listed: Mapping[str, int]) -> Iterator[str]:
    """Yield a line for each fault that the list does not allow for, and for each line of the list that is wrong."""
    for path, count in listed.items():
        if path not in found:
            yield f"{LIST}: {path} does not exist; take it out"
        elif _is_one_of(path, (*BASES, *PLUG_INS)):
            yield f"{LIST}: {path} is a plug-in, a base class or the communicator; rewrite its docstrings"
        elif len(found[path]) < count:
            yield f"{LIST}: {path} has {len(found[path])} faults, {count} are listed; run {sys.argv[0]} --shrink"
    for path, lines in found.items():
        if len(lines) > listed.get(path, 0):
            yield from lines


def faults(path: str, text: str, bases: Set[str] = frozenset()) -> Iterator[str]:
    """Yield the faults of one file, each as `path:line: name: what is wrong`.

    Args:
        bases: Names of base classes; members of classes that derive from one need no docstring.
    """
    is_base = _is_one_of(path, BASES)
    for definition in definitions(ast.parse(text), bases):
        wrong = _fault(definition) or (_base_fault(definition) if is_base else None)
        if wrong is not None:
            yield f"{path}:{getattr(definition.node, 'lineno', 1)}: {definition.name}: {wrong}"


def _is_one_of(path: str, patterns: Sequence[str]) -> bool:
    return any(PurePosixPath(path).match(pattern) for pattern in patterns)


def definitions(tree: ast.Module, bases: Set[str]) -> Iterator[Definition]:
    """Yield the module, its public classes, functions and methods, and attributes that have a docstring."""
    yield Definition("module", tree, ast.get_docstring(tree))
    yield from _members(tree.body, bases, overrides=False)


def _members(body: Sequence[ast.stmt], bases: Set[str], *, overrides: bool) -> Iterator[Definition]:
    for node, following in zip_longest(body, body[1:]):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield Definition(node.name, node, ast.get_docstring(node))
            yield from _members(node.body, bases, overrides=any(_name(base) in bases for base in node.bases))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_public(node.name):
            yield Definition(node.name, node, ast.get_docstring(node), overrides)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            name = _name(node.targets[0] if isinstance(node, ast.Assign) else node.target)
            text = _text(following)
            if text is not None and _is_public(name):
                yield Definition(name, node, text)


def _is_public(name: str) -> bool:
    return not name.startswith("_") or name.startswith("__")


def _name(node: ast.expr) -> str:
    node = node.value if isinstance(node, ast.Subscript) else node.elts[0] if isinstance(node, ast.Tuple) else node
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _text(node: ast.stmt | None) -> str | None:
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return inspect.cleandoc(text)
    return None


def _fault(definition: Definition) -> str | None:
    if not definition.text:
        return None
    first, _, rest = definition.text.partition("\n")
    word = first.split()[0].rstrip(",:;.")
    if first in SECTIONS:
        return f"has no summary before {first}"
    if (fragment := FRAGMENT.match(first)) is not None:
        return f"begins with {fragment[0]!r}, in the middle of a sentence"
    if not (word[:1].isalnum() or word[:1] in "`\"'"):
        return f"begins with {word!r}, not with a phrase"
    if isinstance(definition.node, ast.Assign | ast.AnnAssign):
        return None if ". " in f"{first} " else "its first sentence does not end on its first line"
    if not first.endswith("."):
        return "its summary does not end with a full stop on its first line"
    if rest and not rest.startswith("\n"):
        return "its summary is not followed by an empty line"
    entry = ENTRY.search(rest)
    return None if entry is None else f"says of {entry[1]} what it is 'of', not what it is"


def _base_fault(definition: Definition) -> str | None:
    """Public functions of base classes are documented, and say what they return."""
    node = definition.node
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    if definition.overrides or node.name.startswith("_"):
        return None
    if any(_name(decorator) in ("property", "cached_property", "setter") for decorator in node.decorator_list):
        return None
    if not definition.text:
        return "has no docstring"
    returns = None if node.returns is None else ast.unparse(node.returns)
    summary = definition.text.partition("\n")[0]
    says = RESULT.search(summary) or any(f"\n{section}" in definition.text for section in ("Returns:", "Yields:"))
    return None if returns in (None, "None", "NoReturn") or says else f"does not say what it returns: {returns}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
