"""Generated pages and tables: written, or compared with what they would be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def kept(files: Mapping[Path, str], source: str, script: str, *, check: bool, root: Path = ROOT) -> Iterator[str]:
    """Write files with their text; where `check`, write none and yield a line for each that differs.

    Args:
        source: What the text is made of, for these lines.
        script: File name of the generator to call, in this folder.
        root: Folder from which these lines name files.
    """
    for path, text in files.items():
        if not check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            yield f"{path.relative_to(root)} is not what {source}: run scripts/{script}"
