"""A runc with a known way out of a node is refused: by upstream's number, or by what its distribution has mended."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from testbed.orchestrator.emulation.containers import runc_escapes
from testbed.orchestrator.emulation.containers.runc_escapes import check, open_escapes

MENDED = (
    "runc (1.1.5+ds1-1+deb12u1) bookworm-security; urgency=high\n\n  * CVE-2024-21626: several container breakouts\n"
)
OLDER = "runc (1.1.5+ds1-1) unstable; urgency=medium\n\n  * New upstream version\n"
GRAVE = {"CVE-2019-5736", "CVE-2021-30465", "CVE-2024-21626"}
OF_2025 = {"CVE-2025-31133", "CVE-2025-52565", "CVE-2025-52881"}


@pytest.mark.parametrize(
    ("version", "changelog", "expected"),
    [
        ("1.1.5+ds1", MENDED, OF_2025),
        ("1.1.5+ds1", OLDER, OF_2025 | {"CVE-2024-21626"}),
        ("1.1.5", "", OF_2025 | {"CVE-2024-21626"}),
        ("1.1.11", MENDED, OF_2025 | {"CVE-2024-21626"}),  # the changelog is of another package's version
        ("1.1.12", "", OF_2025),
        ("v1.1.14", "", OF_2025),
        ("1.2.7", "", OF_2025),
        ("1.2.8", "", set()),
        ("1.3.2", "", OF_2025),
        ("1.3.3", "", set()),
        ("1.4.0", "", set()),
        ("1.5.1", "", set()),
        ("2.0.0", "", set()),
        ("1.0.0-rc6", "", GRAVE | OF_2025),
        ("1.0.3", "", OF_2025 | {"CVE-2024-21626"}),
    ],
)
def test_escapes_are_those_that_neither_number_nor_changelog_has_mended(
    version: str, changelog: str, expected: set[str]
) -> None:
    found = open_escapes(f"runc version {version}\ncommit: unknown\n", changelog)
    assert found is not None and {one.name for one in found} == expected


def _program(folder: Path, line: str) -> None:
    program = folder / "runc"
    program.write_text(f"#!/bin/sh\n{line}\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("line", "ok", "words"),
    [
        ("echo runc version 1.1.12", True, "has none that a node could take (CVE-2025-31133"),
        ("echo runc version 1.1.11", False, "has CVE-2024-21626"),
        ("echo crun version 1.8", False, "nobody knows"),
        ("exit 1", False, "says no version"),
    ],
)
def test_what_is_installed_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, ok: bool, words: str
) -> None:
    _program(tmp_path, line)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(runc_escapes, "CHANGELOGS", ())
    found = check(needed=True)
    assert (found.ok, found.needed) == (ok, True) and words in found.line


def test_a_package_is_judged_by_its_changelog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _program(tmp_path, "echo runc version 1.1.5+ds1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    log = tmp_path / "changelog.Debian.gz"
    monkeypatch.setattr(runc_escapes, "CHANGELOGS", (tmp_path / "none", log))
    for text, ok in ((MENDED, True), (OLDER, False)):
        log.write_bytes(gzip.compress(text.encode()))
        assert check(needed=True).ok == ok
    log.write_bytes(b"no archive")
    found = check(needed=True)
    assert not found.ok and not found.needed and "no changelog is installed" in found.line


def test_without_runc_there_is_nothing_to_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert check(needed=True).ok
