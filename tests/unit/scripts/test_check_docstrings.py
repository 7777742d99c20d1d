"""The check of docstrings finds fragments and missing summaries, and its list only ever shrinks."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import check_docstrings as check

BASE, PLUG_IN, OTHER = "compressors/base/context.py", "compressors/topk.py", "testbed/core/errors.py"


def found(text: str, path: str = OTHER) -> list[str]:
    return [fault.split(": ", 1)[1] for fault in check.faults(path, text, {"Base"})]


@pytest.mark.parametrize(
    "text",
    [
        '"""Parts of a bucket."""',
        'def f():\n    """Return k, of all ranks.\n\n    Args:\n        k: Number of entries.\n    """',
        'X = 1\n"""Number of ranks. Of all regions, so that\nit is exact."""',
        'class A:\n    def b(self):\n        """True if it holds."""',
        'def _private():\n    """Of the bucket."""',
        'class _Private:\n    def a(self):\n        """Of the bucket."""',
        'def f():\n    def inner():\n        """Of the bucket."""',
        '_X = 1\n"""Of the bucket."""',
        "def f():\n    pass",
        'def f():\n    """Often read."""',
    ],
)
def test_whole_phrases_pass(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('"""What a bucket is."""', "module: begins with 'What'"),
        ('def f():\n    """Of the bucket."""', "f: begins with 'Of'"),
        ('class A:\n    """Likewise, but faster."""', "A: begins with 'Likewise'"),
        ('class A:\n    def b(self):\n        """In so many steps."""', "b: begins with 'In so'"),
        ('def f():\n    """(indices, values)."""', "f: begins with '(indices', not"),
        ('def f():\n    """\n    Raises:\n        ValueError: Always.\n    """', "f: has no summary before Raises:"),
        ('def f():\n    """Return the\n    bucket."""', "f: its summary does not end"),
        ('def f():\n    """Return the bucket"""', "f: its summary does not end"),
        ('def f():\n    """Return the bucket.\n    Always.\n    """', "f: its summary is not followed"),
        ('def f():\n    """Return k.\n\n    Args:\n        k: of entries.\n    """', "f: says of k what it is 'of'"),
        ('X = 1\n"""Whether it is."""', "X: begins with 'Whether'"),
        ('X: int = 1\n"""Number of ranks that are\nthere."""', "X: its first sentence"),
        ('X, Y = 1, 2\n"""By rank."""', "X: begins with 'By'"),
        ('class A:\n    x: int\n    """How far."""', "x: begins with 'How'"),
    ],
)
def test_fragments_are_found(text: str, fault: str) -> None:
    (line,) = found(text)
    assert line.startswith(fault)


def test_base_classes_say_what_they_return() -> None:
    assert found("def f() -> int: ...", BASE) == ["f: has no docstring"]
    assert found('def f() -> int:\n    """Count the ranks."""', BASE) == ["f: does not say what it returns: int"]
    for passes in (
        'def f() -> int:\n    """Count the ranks; return their number."""',
        'def f() -> int:\n    """Count the ranks.\n\n    Returns:\n        Their number.\n    """',
        'def f() -> None:\n    """Count the ranks."""',
        "class A:\n    @property\n    def ranks(self) -> int: ...",
        "class A(Base):\n    def f(self) -> int: ...",
        "class A:\n    def __len__(self) -> int: ...",
    ):
        assert found(passes, BASE) == []
    assert found("def f() -> int: ...") == []


def test_the_list_says_exactly_what_is_still_wrong() -> None:
    faults = {OTHER: ["a", "b"], PLUG_IN: ["c"], "testbed/core/units.py": []}
    assert list(check.disagreements(faults, {OTHER: 2, PLUG_IN: 1})) == [
        f"{check.LIST}: {PLUG_IN} is a plug-in, a base class or the communicator; rewrite its docstrings"
    ]
    assert list(check.disagreements(faults, {})) == ["a", "b", "c"]
    assert list(check.disagreements(faults, {OTHER: 1})) == ["a", "b", "c"]
    (fewer, _, gone, *_) = check.disagreements(faults, {OTHER: 3, PLUG_IN: 1, "testbed/core/gone.py": 1})
    assert f"{OTHER} has 2 faults, 3 are listed" in fewer
    assert "gone.py does not exist" in gone


def test_shrinking_lowers_numbers_and_never_raises_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check, "ROOT", tmp_path)
    (tmp_path / check.LIST).parent.mkdir()
    (tmp_path / "testbed").mkdir()
    fragments = 'X = 1\n"""Of one."""\nY = 2\n"""Of two."""\n'
    for name in ("better", "done", "worse"):
        (tmp_path / "testbed" / f"{name}.py").write_text("" if name == "done" else fragments)
    listed = tmp_path / check.LIST
    listed.write_text("testbed/better.py 5\ntestbed/done.py 1\ntestbed/worse.py 1\n")
    assert check.main([]) == 1
    assert "better.py has 2 faults, 5 are listed" in capsys.readouterr().out
    assert check.main(["--shrink"]) == 1  # one more than is listed
    assert listed.read_text() == "testbed/better.py 2\ntestbed/worse.py 1\n"
    assert capsys.readouterr().out.count("testbed/worse.py:") == 2


def test_the_tree_is_as_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main([]) == 0, capsys.readouterr().out
