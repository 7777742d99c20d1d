"""Faults that can be planted in a function: each replaces one span of its source, so that the rest stays as it is."""

from __future__ import annotations

import ast
import io
import tokenize
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from types import CodeType

COMPARISON = "flipped comparison"
SIGN = "sign"
ONE = "plus or minus one"
TERM = "dropped term"
ARGUMENTS = "swapped arguments"

_FLIPS = {
    "<": ("<=", ">"),
    "<=": ("<", ">="),
    ">": (">=", "<"),
    ">=": (">", "<="),
    "==": ("!=",),
    "!=": ("==",),
    "is": ("is not",),
    "is not": ("is",),
    "in": ("not in",),
    "not in": ("in",),
}
_SIGNS = {"+": "-", "-": "+", "+=": "-=", "-=": "+="}
_NOT_SWAPPED = frozenset(
    {"max", "min", "maximum", "minimum", "gcd", "lcm", "hypot", "isclose", "allclose"}  # symmetric
    | {"isinstance", "issubclass", "getattr", "hasattr", "setattr", "cast"}  # nothing but a TypeError, or no effect
)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, order=True)
class Fault:
    """Replacement of the characters `start` to `end` of a file by `after`."""

    start: int
    end: int
    kind: str
    after: str

    def plant(self, text: str) -> str:
        return text[: self.start] + self.after + text[self.end :]


@dataclass(frozen=True)
class Operator:
    """An operator's place and spelling."""

    start: int
    end: int
    text: str


class Source:
    """A file's text with the positions of its syntax, counted in characters."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._lines = text.split("\n")
        self._starts = list(accumulate((len(line) + 1 for line in self._lines), initial=0))
        self._tokens = [
            Operator(self._starts[line - 1] + column, self._starts[last - 1] + end, text)
            for kind, text, (line, column), (last, end), _ in tokenize.generate_tokens(io.StringIO(text).readline)
            if kind in (tokenize.OP, tokenize.NAME)
        ]

    def start(self, node: ast.expr | ast.stmt) -> int:
        return self._offset(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._offset(node.end_lineno, node.end_col_offset)

    def of(self, node: ast.expr) -> str:
        return self.text[self.start(node) : self.end(node)]

    def operator(self, left: ast.expr, right: ast.expr) -> Operator:
        """The operator between two neighbouring operands, without the parentheses that stand around these."""
        first = bisect_left(self._tokens, self.end(left), key=lambda token: token.start)
        last = bisect_left(self._tokens, self.start(right), key=lambda token: token.start)
        tokens = [token for token in self._tokens[first:last] if token.text not in ("(", ")")]
        return Operator(tokens[0].start, tokens[-1].end, " ".join(token.text for token in tokens))

    def before(self, position: int) -> int:
        """The end of what precedes `position` and the white space in front of it."""
        return len(self.text[:position].rstrip())

    def behind(self, position: int) -> int:
        """The start of what follows `position` and white space."""
        return len(self.text) - len(self.text[position:].lstrip())

    def _offset(self, line: int, column: int) -> int:
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())


def functions(tree: ast.Module) -> Iterator[tuple[str, _Function]]:
    """Functions and methods by qualified name. Functions inside one belong to it; stubs and `__repr__` are left out."""
    yield from _functions(tree.body, "")


def _functions(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, _Function]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, _Function) and node.name not in ("__repr__", "__str__") and not _is_stub(node):
            yield f"{prefix}{node.name}", node


def _is_stub(node: _Function) -> bool:
    """True if the body is a docstring, an ellipsis or `raise NotImplementedError`."""
    return all(
        isinstance(one, ast.Raise | ast.Pass) or (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
        for one in node.body
    )


def faults(source: Source, function: _Function) -> list[Fault]:
    """All faults that can be planted in a function, in order of place. Some may not compile or change nothing."""
    found: set[Fault] = set()
    for node in _running(function):
        found.update(_comparisons(source, node))
        found.update(_signs(source, node))
        found.update(_ones(source, node))
        found.update(_terms(source, node))
        found.update(_arguments(source, node))
    return sorted(found)


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the nodes below one that run: no annotations, decorators, messages, or code for type checkers."""
    for child in _parts(node):
        if not isinstance(child, ast.JoinedStr | ast.Raise) and not _formats(child):
            yield child
            yield from _running(child)


def _parts(node: ast.AST) -> list[ast.AST]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            defaults = [one for one in (*node.args.defaults, *node.args.kw_defaults) if one is not None]
            return [*defaults, *(node.body if isinstance(node.body, list) else [node.body])]
        case ast.ClassDef():
            return [*node.body]
        case ast.AnnAssign():
            return [node.value] if node.value else []
        case ast.Assert():
            return [node.test]
        case ast.If(test=ast.Name("TYPE_CHECKING")):
            return [*node.orelse]
        case ast.Call() if _called(node) == "cast":
            return [*node.args[1:]]
        case _:
            return [*ast.iter_child_nodes(node)]


def _formats(node: ast.AST) -> bool:
    """True if the node puts values into a text."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Mod) and _is_text(node.left)
    return isinstance(node, ast.Call) and _called(node) == "format"


def _called(node: ast.Call) -> str:
    function = node.func
    return (
        function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else ""
    )


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_text(node.left) or _is_text(node.right)
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def _is_sequence(node: ast.expr) -> bool:
    """True if a sum with this operand joins sequences, so that a minus would be a TypeError."""
    if isinstance(node, ast.BinOp):
        return _is_sequence(node.left) or _is_sequence(node.right)
    return _is_text(node) or isinstance(node, ast.List | ast.ListComp | ast.Tuple)


def _comparisons(source: Source, node: ast.AST) -> Iterator[Fault]:
    if isinstance(node, ast.Compare):
        for left, right in pairwise([node.left, *node.comparators]):
            operator = source.operator(left, right)
            for after in _FLIPS[operator.text]:
                yield Fault(operator.start, operator.end, COMPARISON, after)


def _signs(source: Source, node: ast.AST) -> Iterator[Fault]:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield Fault(source.start(node), source.start(node) + 1, SIGN, "")
    elif isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Add | ast.Sub):
        left, right = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target, node.value)
        if not _is_sequence(left) and not _is_sequence(right):
            operator = source.operator(left, right)
            yield Fault(operator.start, operator.end, SIGN, _SIGNS[operator.text])


def _ones(source: Source, node: ast.AST) -> Iterator[Fault]:
    """Whole numbers, lengths, bounds of slices and arguments of `range`, one more and one less."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        text = source.of(node)
        for by in (1, -1):
            after = str(node.value + by) if text == str(node.value) else f"({text} {by:+d})"
            yield Fault(source.start(node), source.end(node), ONE, after)
    elif isinstance(node, ast.Call) and _called(node) == "len":
        yield from _shifted(source, node, "({} {} 1)")
    else:
        bounds: list[ast.expr | None] = []
        if isinstance(node, ast.Slice):
            bounds = [node.lower, node.upper]
        elif isinstance(node, ast.Call) and _called(node) == "range":
            bounds = [*node.args]
        for bound in bounds:
            if isinstance(bound, ast.Name | ast.Attribute | ast.Subscript | ast.BinOp):
                yield from _shifted(source, bound, "{} {} 1")


def _shifted(source: Source, node: ast.expr, form: str) -> Iterator[Fault]:
    text = source.of(node)
    if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div | ast.FloorDiv):
        text = f"({text})"
    for sign in "+-":
        yield Fault(source.start(node), source.end(node), ONE, form.format(text, sign))


def _terms(source: Source, node: ast.AST) -> Iterator[Fault]:
    """Sums, products, and conditions joined by `and` or `or`, without one of their terms."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div):
        operands, drops_first = [node.left, node.right], isinstance(node.op, ast.Add | ast.Mult)
        if _is_text(node):
            return
    elif isinstance(node, ast.BoolOp):
        operands, drops_first = node.values, True
    else:
        return
    operators = [source.operator(left, right) for left, right in pairwise(operands)]
    if drops_first:
        yield Fault(source.start(node), source.behind(operators[0].end), TERM, "")
    for number, operator in enumerate(operators):
        end = source.before(operators[number + 1].start) if operator is not operators[-1] else source.end(node)
        yield Fault(source.before(operator.start), end, TERM, "")


def _arguments(source: Source, node: ast.AST) -> Iterator[Fault]:
    """Neighbouring arguments, both positional or both by name, with each other's values; they must look alike."""
    if not isinstance(node, ast.Call) or _called(node) in _NOT_SWAPPED:
        return
    named = [keyword.value for keyword in node.keywords if keyword.arg is not None]
    for left, right in (*pairwise(node.args), *pairwise(named)):
        one, other = source.of(left), source.of(right)
        if one != other and _looks(left) == _looks(right) != ast.Starred:
            start, end = source.start(left), source.end(right)
            yield Fault(start, end, ARGUMENTS, other + source.text[source.end(left) : source.start(right)] + one)


def _looks(node: ast.expr) -> type:
    """Return the type of a literal; `object` for all that is computed."""
    if isinstance(node, ast.Constant):
        return type(node.value)
    literals = (ast.Starred, ast.JoinedStr, ast.Lambda, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.GeneratorExp)
    return type(node) if isinstance(node, literals) else object


def compiled(text: str) -> tuple[object, ...] | None:
    """Return the bytecode of a source without positions, to be compared; None if it does not compile."""
    try:
        return _meaning(compile(text, "mutant", "exec", dont_inherit=True))
    except SyntaxError:
        return None


def _meaning(code: CodeType) -> tuple[object, ...]:
    constants = tuple(_meaning(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts)
    names = (code.co_name, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    return (code.co_code, code.co_exceptiontable, constants, names, counts)
