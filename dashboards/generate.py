"""Writes dashboards/grafana/*.json, or with --check says which are not what the code makes of them.

python -m dashboards.generate [--check]
"""

from __future__ import annotations

import sys
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from dashboards.boards import compare, fidelity, links, run, sweep
from dashboards.vocabulary.frame import Board

FOLDER = Path(__file__).resolve().parent / "grafana"
BOARDS = {"run": run, "compare": compare, "links": links, "fidelity": fidelity, "sweep": sweep}


def text(board: Board) -> str:
    """The dashboard as JSON: the same bytes whenever and wherever it is made."""
    return JSONEncoder(sort_keys=True, indent=1, ensure_ascii=False).encode(board.build()) + "\n"


def files() -> dict[Path, str]:
    """Every dashboard's file, and what belongs into it."""
    return {FOLDER / f"{name}.json": text(module.board()) for name, module in BOARDS.items()}


def outdated(made: dict[Path, str]) -> list[str]:
    """Names of files that are missing, are not as made, or belong to no dashboard."""
    found = {path: path.read_text() for path in FOLDER.glob("*.json")}
    return sorted(path.name for path in {*made, *found} if made.get(path) != found.get(path))


def main(arguments: list[str]) -> int:
    made = files()
    if "--check" in arguments:
        names = outdated(made)
        if names:
            sys.stderr.write(f"dashboards/grafana: {', '.join(names)}: run python -m dashboards.generate\n")
        return 1 if names else 0
    for path, content in made.items():
        path.write_text(content)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
