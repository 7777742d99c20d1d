"""`make site`: README.md, docs/ and the pages at the root as a site in build/site, every link of it checked.

Links between our pages are kept; one to another file of this tree leads to a copy of it that comes with the site, and
one to a folder to a list of its files, so that the site needs no network. A link that leads nowhere,
a page that has no place in mkdocs.yml, or a heading that is not there, ends it with what is wrong, all at once.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a script of this folder, called by its path

from scripts import reference_pages

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"
PROJECT = ("CHANGELOG.md", "CONTRIBUTING.md", "LIMITATIONS.md", "SECURITY.md")
"""Pages at the root, beside the README."""
LINK = re.compile(r"(?<!\\)(\]\()([^)\s#]*)(#[^)\s]*)?(\))")
_CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
_MARKER = re.compile(r"^<!--.*?-->$", re.MULTILINE)
_AS_TEXT = {".cff", ".py", ".sh", ".toml", ".yaml", ".yml", ""}
"""Shown by browsers once they are called .txt."""


def pages() -> dict[str, str]:
    """Where each of our pages stands in the site, by its path in the tree."""
    found = {path.relative_to(ROOT).as_posix(): path.relative_to(ROOT / "docs").as_posix() for path in _docs()}
    found |= {name: f"project/{name}" for name in PROJECT}
    return {"README.md": "index.md", "dashboards/README.md": "project/dashboards.md", **found}


def _docs() -> list[Path]:
    return sorted((ROOT / "docs").rglob("*.md"))


class Copies:
    """Files and folders that pages link to, and where their copies stand."""

    def __init__(self) -> None:
        self._pages = pages()
        self._wanted: dict[str, str] = {}
        self.faults: list[str] = []

    def place(self, target: str, said_by: str) -> str | None:
        """Of a path in the tree; None, and a fault, where there is nothing."""
        if target in self._pages:
            return self._pages[target]
        path = ROOT / target
        if not path.exists() or not path.resolve().is_relative_to(ROOT):
            self.faults.append(f"{said_by}: links to {target}, which is not there")
            return None
        if target.startswith("docs/") and path.is_file():
            self._wanted[target] = target.removeprefix("docs/")
        elif path.is_dir():
            self._wanted[target] = f"source/{target}/index.md"
        else:
            self._wanted[target] = f"source/{target}{'.txt' if path.suffix in _AS_TEXT else ''}"
        return self._wanted[target]

    def write(self, folder: Path) -> None:
        """Lists of folders first: they want more copies."""
        for target in [target for target in self._wanted if (ROOT / target).is_dir()]:
            page = folder / self._wanted[target]
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(self._list(target))
        for target, place in self._wanted.items():
            if (ROOT / target).is_file():
                (folder / place).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / target, folder / place)

    def _list(self, target: str) -> str:
        lines = [f"# {target}", ""]
        for path in sorted((ROOT / target).iterdir()):
            name = path.relative_to(ROOT).as_posix()
            if path.is_file() and not path.name.startswith("."):  # mkdocs leaves those out
                place = self.place(name, target)
                assert place is not None
                lines.append(f"- [{path.name}]({posixpath.relpath(place, f'source/{target}')})")
        return "\n".join(lines) + "\n"


def translated(text: str, page: str, copies: Copies) -> str:
    """The page as it stands in the site: its links, and tables that the markers of generated regions would swallow."""
    place = pages()[page]

    def link(match: re.Match[str]) -> str:
        opening, target, anchor, closing = match[1], match[2], match[3] or "", match[4]
        if not target or "://" in target or target.startswith("mailto:"):
            return match[0]
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
        found = copies.place(wanted, page)
        return match[0] if found is None else f"{opening}{_towards(place, found)}{anchor}{closing}"

    parts = _CODE.split(_MARKER.sub("", text))
    return "".join(part if index % 2 else LINK.sub(link, part) for index, part in enumerate(parts))


def _towards(place: str, found: str) -> str:
    return posixpath.relpath(found, posixpath.dirname(place) or ".")


def gather(folder: Path) -> list[str]:
    """Every page and what it links to, in `folder`; returns faults."""
    copies = Copies()
    for page, place in pages().items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(translated((ROOT / page).read_text(), page, copies))
    copies.write(folder)
    reference_pages.write(folder)
    return copies.faults


class _Loader(yaml.SafeLoader):
    """Keeps what only mkdocs can make, such as functions of extensions."""


class _Kept:
    def __init__(self, tag: str, node: yaml.Node) -> None:
        self.tag, self.node = tag, node


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda _loader, suffix, node: _Kept(suffix, node))


def navigation() -> list[Any]:
    """That of mkdocs.yml, with every page of a folder that it names."""
    config = yaml.load((ROOT / "mkdocs.yml").read_text(), _Loader)
    return [_expanded(entry) for entry in config["nav"]]


def _expanded(entry: dict[str, Any]) -> dict[str, Any]:
    ((title, inner),) = entry.items()
    if isinstance(inner, list):
        return {title: [_expanded(one) for one in inner]}
    folder = ROOT / "docs" / inner
    if folder.is_dir():
        return {
            title: [{_title(path): path.relative_to(ROOT / "docs").as_posix()} for path in sorted(folder.glob("*.md"))]
        }
    return {title: inner}


def _title(path: Path) -> str:
    return path.read_text().split("\n", 1)[0].removeprefix("# ")


def named(entries: list[Any]) -> Iterator[str]:
    """Every page of a navigation."""
    for entry in entries:
        for inner in entry.values():
            if isinstance(inner, list):
                yield from named(inner)
            else:
                yield inner


def build(folder: Path) -> list[str]:
    """The site in `folder`/site; returns faults, or what mkdocs said of them."""
    pages_folder = folder / "site-pages"
    shutil.rmtree(pages_folder, ignore_errors=True)
    if faults := gather(pages_folder):
        return list(dict.fromkeys(faults))
    inherited = {"INHERIT": str(ROOT / "mkdocs.yml"), "docs_dir": pages_folder.name, "site_dir": "site"}
    inherited |= {"plugins": {"mkdocstrings": {"handlers": {"python": {"paths": [str(ROOT)]}}}}}
    config = folder / "mkdocs.yml"
    config.write_text(
        yaml.safe_dump({**inherited, "nav": navigation()}, sort_keys=False, allow_unicode=True, width=200)
    )
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # an announcement, on every call
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(config)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    said = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("INFO")]
    return said or ["mkdocs ended without a word"] if done.returncode else []


def main() -> int:
    faults = build(BUILD)
    sys.stderr.writelines(f"site: {fault}\n" for fault in faults)
    if not faults:
        sys.stdout.write(f"{(BUILD / 'site' / 'index.html').relative_to(ROOT)}\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
