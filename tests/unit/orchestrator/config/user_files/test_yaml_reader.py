"""The reader of users' YAML: core schema, names as written, and every refusal in one line, soon."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from testbed.core.errors import InputError
from testbed.orchestrator.config.user_files.yaml_reader import MAX_DEPTH, MAX_VALUES, parse_yaml, read_yaml

MOST_S = 2.0
"""Longest time that an input may take, of processor time, since other processes share the machine."""
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)
)


def _faults(text: str) -> tuple[str, ...]:
    with pytest.raises(InputError) as caught:
        parse_yaml(text, "x.yaml")
    return caught.value.faults


def test_names_are_the_text_of_the_scalar() -> None:
    text = "{regions: {no: 1, 010: 2, ~: 3, on: 4, null: 5, 1e3: 6}, links: [{a: no, b: 010}, {a: ~, b: 1_0}]}"
    values = parse_yaml(text, "").plain(["links.*.a", "links.*.b"])
    assert list(values["regions"]) == ["no", "010", "~", "on", "null", "1e3"]
    assert values["links"] == [{"a": "no", "b": "010"}, {"a": "~", "b": "1_0"}]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("010", 10),
        ("0x1F", 31),
        ("0o17", 15),
        ("1e3", 1000.0),
        ("-.5", -0.5),
        ("~", None),
        ("", None),
        ("True", True),
        ("no", "no"),
        ("on", "on"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("2026-01-31", "2026-01-31"),
        ("'5'", "5"),
        ("!!str 010", "010"),
    ],
)
def test_values_follow_the_core_schema(text: str, value: object) -> None:
    found = parse_yaml(f"a: {text}", "").plain()["a"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "line", "cause"),
    [
        ("a: 1\nb: 2\na: 3", 3, "the key 'a' is there twice, first in line 1; give it once"),
        ("a:\n  - {x: 1, 'x': 2}", 2, "the key 'x' is there twice"),
        ("a: 1\n---\nb: 2", 2, "second document"),
        ("%YAML 1.1\n---\na: 1", 2, "another version of YAML"),
        ("a: 1\nb: !!python/object:os.system x", 2, "the tag '!!python/object:os.system'"),
        ("x: &x {a: 1}\ny:\n  <<: *x", 3, "merge keys"),
        ("a: &a [*a]", 1, "inside its own anchor"),
        ("a: 1\nb: *c", 2, "no anchor above it"),
        ("a: .inf", 1, "not a finite number"),
        ("a: 1e999", 1, "too large"),
        ("a: 1e-999", 1, "too small"),
        ("a: 1\nb: 'c\nd: 2\n", 2, "a quote is not closed"),
        ('a: "c\nd: 2\n', 1, "a quote is not closed"),
        ("a: [1, 2", 1, "is not YAML"),
        ("a:\n\tb: 1", 2, "is not YAML"),
        ('a: 1\nb: "x\\0y"', 2, "control character U+0000"),
        ('a: "\\ud800"', 1, "control character U+D800"),
        ('a: "\\UFFFFFFFF"', 1, "is not YAML"),
        ("? [a]\n: 1", 1, "a key is a list"),
    ],
)
def test_what_is_left_to_chance_is_refused_with_its_line(text: str, line: int, cause: str) -> None:
    (fault,) = _faults(text)
    assert fault.startswith(f"x.yaml, line {line}: ") and cause in fault and "\n" not in fault


def test_faults_that_reading_survives_are_told_at_once() -> None:
    assert [fault.split(":")[0] for fault in _faults("a: 1\na: 2\nb: .nan\nc: {d: 1, d: 2}")] == [
        "x.yaml, line 2",
        "x.yaml, line 3",
        "x.yaml, line 4",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "[" * 1_000_000,
        "{a: " * 70_000,
        "- " * (MAX_DEPTH + 1),
        "\n".join(" " * depth + "a:" for depth in range(700)),
        BOMB,
        "a: " + "1" * 290_000,
        "[" + "x," * (MAX_VALUES + 1) + "]",
        "{" + ",".join("k: 1" for _ in range(9000)) + "}",
        ":" * 290_000,
    ],
    ids=["brackets", "braces", "dashes", "indents", "aliases", "digits", "values", "one key", "colons"],
)
def test_without_measure_is_refused_soon(text: str) -> None:
    begun_s = time.process_time()
    faults = _faults(text)
    assert time.process_time() - begun_s < MOST_S
    assert len(faults) <= 21 and all(len(fault) < 300 for fault in faults)


def test_a_mark_of_byte_order_and_other_line_ends_are_read(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\nb:\r\n  - c\r")
    assert read_yaml(path).plain() == {"a": 1, "b": ["c"]}


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"a: 1\nb: \0", ", line 2: holds the control character U+0000; remove it"),
        (b"a: 1\x1b[2J", ", line 1: holds the control character U+001B"),
        ("a: 1\nb: \u2028".encode(), ", line 2: holds the control character U+2028"),
        ("a: 1".encode("utf-16"), ", line 1: is UTF-16 or UTF-32"),
        (b"a: 1\nb: caf\xe9", ", line 2: is not UTF-8 text (byte 0xe9); save it as UTF-8"),
        (b"a" * 400_000, ": is larger than 300,000 bytes"),
    ],
)
def test_what_is_no_text_is_refused(tmp_path: Path, content: bytes, cause: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_yaml(path, "topo=x.yaml")
    (fault,) = caught.value.faults
    assert fault.startswith(f"topo=x.yaml{cause}")


def test_what_is_no_file_is_refused_without_being_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, cause in [
        (tmp_path, "is a folder"),
        (tmp_path / "pipe", "is a pipe"),
        (Path("/dev/zero"), "is a device"),
        (tmp_path / "none.yaml", "cannot be read: No such file"),
        (tmp_path / ("x" * 300), "cannot be read: File name too long"),
        (Path("a\0b"), "cannot hold the character"),
    ]:
        with pytest.raises(InputError, match=cause):
            read_yaml(path)


def test_faults_get_the_line_of_their_value() -> None:
    document = parse_yaml("rate: 1\nlinks:\n  - a: x\n    rtt: 5\nname: 'y'\n", "net.yaml")
    assert document.at("links", 0, "rtt") == "net.yaml, line 4"
    given = [
        "topo.links[0].rtt: no unit",
        "topo.links[0].rate: must be given",
        "topo.other=1: unknown",
        "name 'y' is odd",
    ]
    assert list(document.located(given, "topo")) == [
        "net.yaml, line 4: topo.links[0].rtt: no unit",
        "net.yaml, line 3: topo.links[0].rate: must be given",
        "topo.other=1: unknown",
        "net.yaml, line 5: name 'y' is odd",
    ]
