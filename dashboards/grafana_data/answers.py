"""Asking @grafana/data, and the form in which its answers are kept."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
KEPT = HERE.parents[1] / "tests" / "unit" / "analysis" / "grafana_values.json"
TIME_LIMIT_S = 120.0
MIN_NODE_VERSION = (20, 19)
"""What jsdom asks for."""

Json = dict[str, Any]


def lacking() -> str | None:
    """Why @grafana/data cannot be asked here; None if it can."""
    node = shutil.which("node")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout if node else ""
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < MIN_NODE_VERSION:
        return f"Node {MIN_NODE_VERSION[0]}.{MIN_NODE_VERSION[1]} or later is not installed"
    if not (HERE / "node_modules" / "@grafana" / "data").is_dir():
        return "its packages are not installed (npm ci --prefix dashboards/grafana_data)"
    return None


def answered(asked: Mapping[str, Any]) -> Json:
    """The questions, each with its answer behind it.

    Raises:
        RuntimeError: Node failed, or @grafana/data knows no such unit, reducer or transformation.
    """
    done = _node("answers.js", told=json.dumps(asked))
    if done.returncode:
        raise RuntimeError(f"answers.js: {done.stderr.strip()}")
    found = json.loads(done.stdout)
    return {
        "made_with": f"@grafana/data {found['version']}, by python -m dashboards.grafana_data",
        "units": _behind(asked["units"], found["units"]),
        "reducers": _behind(asked["reducers"], found["reducers"]),
        "transformations": [
            {**case, "answer": answer}
            for case, answer in zip(asked["transformations"], found["transformations"], strict=True)
        ],
    }


def misfits(paths: Iterable[Path]) -> list[str]:
    """What in these dashboards is not as @grafana/schema declares it.

    Raises:
        RuntimeError: Node failed, or @grafana/schema knows no such panel.
    """
    done = _node("types.js", *(str(path) for path in paths))
    if done.returncode:
        raise RuntimeError(f"types.js: {done.stderr.strip()}")
    return done.stdout.splitlines()


def text(kept: Mapping[str, Any]) -> str:
    """A line for each unit, series and column: what differs is seen in a diff."""
    parts = [f' "made_with": {json.dumps(kept["made_with"])}']
    parts += [f' "{key}": [\n{_lines(kept[key])}\n ]' for key in ("units", "reducers")]
    cases = ",\n".join(f"  {{\n{_case(case)}\n  }}" for case in kept["transformations"])
    return "{\n" + ",\n".join([*parts, f' "transformations": [\n{cases}\n ]']) + "\n}\n"


def _node(script: str, *arguments: str, told: str = "") -> subprocess.CompletedProcess[str]:
    call = ["node", str(HERE / script), *arguments]
    return subprocess.run(call, input=told, capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False)


def _case(case: Mapping[str, Any]) -> str:
    frames = ",\n".join(
        f'    {{"refId": {_json(frame["refId"])}, "fields": [\n{_lines(frame["fields"], 5)}\n    ]}}'
        for frame in case["frames"]
    )
    answer = ",\n".join(f"    [\n{_lines(columns, 5)}\n    ]" for columns in case["answer"])
    return (
        f'   "steps": [\n{_lines(case["steps"], 4)}\n   ],\n'
        f'   "frames": [\n{frames}\n   ],\n   "answer": [\n{answer}\n   ]'
    )


def _lines(found: Iterable[Any], indent: int = 2) -> str:
    return ",\n".join(f"{' ' * indent}{_json(one)}" for one in found)


def _json(found: Any) -> str:
    return json.dumps(found, ensure_ascii=False, sort_keys=True)


def _behind(asked: Iterable[list[Any]], answers: Iterable[Any]) -> list[list[Any]]:
    return [[*one, answer] for one, answer in zip(asked, answers, strict=True)]
