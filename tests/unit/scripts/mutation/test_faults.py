"""Each kind of fault on small sources, and what is never changed."""

from __future__ import annotations

import ast

import pytest

from scripts.mutation.faults import ARGUMENTS, COMPARISON, ONE, SIGN, TERM, Source, compiled, faults, functions


def planted(text: str) -> dict[str, set[str]]:
    """Per kind, the sources that the faults of all functions make of `text`."""
    source, found = Source(text), dict[str, set[str]]()
    for _, function in functions(ast.parse(text)):
        for fault in faults(source, function):
            found.setdefault(fault.kind, set()).add(fault.plant(text))
    return found


def returned(expression: str) -> dict[str, set[str]]:
    """Per kind, what the faults make of an expression that a function returns."""
    head = "def f(a, b, c):\n    return "
    return {kind: {text.removeprefix(head) for text in texts} for kind, texts in planted(head + expression).items()}


@pytest.mark.parametrize(
    ("expression", "kind", "made"),
    [
        ("a < b", COMPARISON, {"a <= b", "a > b"}),
        ("(a) >= (b)", COMPARISON, {"(a) > (b)", "(a) <= (b)"}),
        ("a not in b", COMPARISON, {"a in b"}),
        ("a is  b == c", COMPARISON, {"a is not  b == c", "a is  b != c"}),
        ("a + b", SIGN, {"a - b"}),
        ("-a", SIGN, {"a"}),
        ("7", ONE, {"8", "6"}),
        ("0xff", ONE, {"(0xff +1)", "(0xff -1)"}),
        ("len(a)", ONE, {"(len(a) + 1)", "(len(a) - 1)"}),
        ("a[:b]", ONE, {"a[:b + 1]", "a[:b - 1]"}),
        ("range(a)", ONE, {"range(a + 1)", "range(a - 1)"}),
        ("a + b", TERM, {"a", "b"}),
        ("a - b", TERM, {"a"}),
        ("(a - c) * b", TERM, {"(a - c)", "b", "(a) * b"}),
        ("a and (b or c)", TERM, {"a", "(b or c)", "a and (b)", "a and (c)"}),
        ("a and b and c", TERM, {"b and c", "a and c", "a and b"}),
        ("a(b, c)", ARGUMENTS, {"a(c, b)"}),
        ("a(x=b,\n      y=c)", ARGUMENTS, {"a(x=c,\n      y=b)"}),
        ("a('é', 'ü') < b", ARGUMENTS, {"a('ü', 'é') < b"}),
        ("a('é') < b", COMPARISON, {"a('é') <= b", "a('é') > b"}),
    ],
)
def test_a_fault_replaces_its_place_alone(expression: str, kind: str, made: set[str]) -> None:
    assert returned(expression)[kind] == made


def test_an_accumulation_changes_its_sign() -> None:
    assert planted("def f(a, b):\n    a += b\n") == {SIGN: {"def f(a, b):\n    a -= b\n"}}


@pytest.mark.parametrize(
    "text",
    [
        "LIMIT = 3 < 4\n",
        "def f(a: Literal[3] = None) -> Literal[4]:\n    b: Literal[5] = a\n",
        "def f(a):\n    return f'{a + 1}' + 'x' + '%d' % (a + 1) + '{}'.format(a + 1)\n",
        "def f(a):\n    raise ValueError(a + 1)\n",
        "def f(a):\n    if TYPE_CHECKING:\n        a = 1\n",
        "@cache(1)\ndef f(a):\n    return a\n",
        "def f(a=1):\n    '''Stub.'''\n    ...\n",
        "class A:\n    b = 1\n\n    def __repr__(self):\n        return 1\n",
        "def f(a):\n    return True\n",
        "def f(a):\n    return max(a, a.b) or isinstance(a, a.b)\n",
    ],
)
def test_what_decides_nothing_is_left_alone(text: str) -> None:
    assert not {kind for kind in planted(text) if kind != TERM or "max" not in text}


def test_arguments_that_cannot_be_of_one_type_are_not_swapped() -> None:
    assert ARGUMENTS not in returned("a(b, 'x', *c)")
    assert ARGUMENTS not in returned("a(1, 'x')")


def test_functions_have_qualified_names_and_keep_those_inside_them() -> None:
    text = "class A:\n    def b(self):\n        def c():\n            return 1\n\n\nasync def d():\n    return 2\n"
    assert [name for name, _ in functions(ast.parse(text))] == ["A.b", "d"]
    assert len(planted(text)[ONE]) == 4


def test_bytecode_tells_what_changes_something() -> None:
    assert compiled("def f():\n    return -0\n") == compiled("def f():\n\n    return 0  # nothing\n")
    assert compiled("def f():\n    return 0\n") != compiled("def f():\n    return False\n")
    assert compiled("def f(a):\n    return a < 1\n") != compiled("def f(a):\n    return a > 1\n")
    assert compiled("def f(:\n") is None
