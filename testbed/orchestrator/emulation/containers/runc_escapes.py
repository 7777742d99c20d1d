"""Known ways out of runc's containers, and whether the runc that is installed still has them.

An upstream build is judged by its number. A distribution keeps the number and mends what it ships, so a package is
judged by its changelog too.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import zlib
from dataclasses import dataclass
from pathlib import Path

from testbed.orchestrator.machine.checks import PROBE_TIME_LIMIT_S, Check

Version = tuple[int, int, int]


@dataclass(frozen=True)
class Escape:
    """One way out."""

    name: str
    fixed: tuple[Version, ...]
    """First release without it of each line of releases that was mended; every later line is without it."""
    matters: bool
    """True if a process in a node could take it. The others need a container's configuration, which is ours."""

    def is_fixed_in(self, version: Version) -> bool:
        of_line = [first for first in self.fixed if first[:2] == version[:2]]
        return version >= (of_line[0] if of_line else max(self.fixed))


ESCAPES = (
    Escape("CVE-2019-5736", ((1, 0, 0),), matters=True),
    Escape("CVE-2021-30465", ((1, 0, 0),), matters=True),
    Escape("CVE-2024-21626", ((1, 1, 12),), matters=True),
    Escape("CVE-2025-31133", ((1, 2, 8), (1, 3, 3), (1, 4, 0)), matters=False),
    Escape("CVE-2025-52565", ((1, 2, 8), (1, 3, 3), (1, 4, 0)), matters=False),
    Escape("CVE-2025-52881", ((1, 2, 8), (1, 3, 3), (1, 4, 0)), matters=False),
)
CHANGELOGS = tuple(Path(f"/usr/share/doc/{name}/changelog.Debian.gz") for name in ("runc", "runc-app", "runc-stable"))
_MAX_CHANGELOG_BYTES = 4_000_000
_NUMBER = re.compile(r"runc version v?(\d+)\.(\d+)\.(\d+)(-rc\S*)?")


def open_escapes(said: str, changelog: str) -> list[Escape] | None:
    """Return the known escapes that a runc has; None if its version cannot be read.

    Args:
        said: What `runc --version` prints.
        changelog: Of its package; empty for an upstream build. It counts if its newest entry is of this version.
    """
    match = _NUMBER.search(said)
    if match is None:
        return None
    major, minor, patch = map(int, match.groups()[:3])
    # a release candidate is older than its release
    version = (major, minor, patch - 1) if match[4] else (major, minor, patch)
    newest = changelog.partition("\n")[0]
    is_packages = re.search(rf"\({major}\.{minor}\.{patch}(?!\d)", newest) is not None
    mended = changelog if is_packages else ""
    return [one for one in ESCAPES if not one.is_fixed_in(version) and one.name not in mended]


def check(*, needed: bool) -> Check:
    """Ask whether runc lets a process of a node out, as far as is known; without runc there is nothing to ask."""
    name, meaning = "runc's escapes", "a worker runs anybody's code, which must not leave its node"
    cure = "update runc: apt-get install --only-upgrade runc, or 1.1.12 or later of upstream"
    path = shutil.which("runc")
    if path is None:
        return Check(name, False, True, "no runc", meaning, cure)
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=PROBE_TIME_LIMIT_S, check=False
        )
        said = done.stdout
    except (OSError, subprocess.TimeoutExpired):
        said = ""
    changelog = _changelog(path)
    found = open_escapes(said, changelog or "")
    line = " ".join(said.partition("\n")[0].split())[:60] or "a runc that says no version"
    if found is None:
        return Check(name, needed, False, f"{line}: nobody knows what it has", meaning, cure)
    grave = [one.name for one in found if one.matters]
    rest = [one.name for one in found if not one.matters]
    if grave and changelog is None and "+" in line:  # a distribution's mark behind upstream's number
        unknown = f"{line}: whether its package mended {', '.join(grave)} is not known, since no changelog is installed"
        return Check(name, False, False, unknown, meaning, cure)
    has = f"{line} has {', '.join(grave)}" if grave else f"{line} has none that a node could take"
    note = f" ({', '.join(rest)} need a configuration that Longhaul's containers do not have)" if rest else ""
    return Check(name, needed, not grave, f"{has}{note}", meaning, cure)


def _changelog(path: str) -> str | None:
    """Return the changelog of the package that the program is of; empty for one that was put there by hand.

    None if the machine has no changelogs, as images that leave out /usr/share/doc.
    """
    if os.path.realpath(path).startswith(("/usr/local/", "/opt/", "/home/", "/root/")):
        return ""
    for file in CHANGELOGS:
        try:
            with gzip.open(file) as lines:
                return lines.read(_MAX_CHANGELOG_BYTES).decode(errors="replace")
        except (OSError, EOFError, zlib.error):
            continue
    return None
