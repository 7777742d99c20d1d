"""A script's modules of the names that Longhaul's packages have, next to the hook."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import HANG_S

ROOT = Path(__file__).resolve().parents[4]
STARTUP = ROOT / "testbed" / "worker" / "script" / "startup"
HOOK = "from testbed.worker import ddp_hook\nhook = ddp_hook('topk', density=0.1)\n"
USE = "again = ddp_hook('powersgd', rank=2)\nprint('RIGHT' if own.MINE and again._first.inner.rank == 2 else 'WRONG')\n"


def _said(folder: Path, text: str, *path: Path) -> str:
    (folder / "train.py").write_text(text)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(map(str, path))}
    done = subprocess.run(
        [sys.executable, "-B", "train.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    return done.stdout.strip() or done.stderr


FIRST, LAST, TWICE = HOOK + "{own}" + USE, "{own}" + HOOK + USE, "{own}" + HOOK + "del own\n{own}" + USE
"""The hook before the script's own module, after it, and between."""
ALL = pytest.mark.tier("all")


@pytest.mark.parametrize(
    ("path", "form", "text"),
    [
        (ROOT, "{name}.py", LAST),
        (ROOT, "{name}.py", FIRST),
        pytest.param(ROOT, "{name}/__init__.py", TWICE, marks=ALL),
        pytest.param(ROOT, "{name}/topk.py", FIRST, marks=ALL),
        pytest.param(STARTUP, "{name}.py", TWICE, marks=ALL),
        pytest.param(STARTUP, "{name}/__init__.py", FIRST, marks=ALL),
        pytest.param(STARTUP, "{name}/topk.py", TWICE, marks=ALL),
    ],
)
def test_a_scripts_own_compressors_live_next_to_ours(path: Path, form: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / form.format(name="compressors")
    file.parent.mkdir(exist_ok=True)
    file.write_text("MINE = True\n")
    own = "import compressors.topk as own\n" if "topk" in form else "import compressors as own\n"
    assert _said(tmp_path, text.replace("{own}", own), path) == "RIGHT"


@pytest.mark.tier("all")
def test_other_names_of_ours_are_the_scripts(tmp_path: Path) -> None:
    text = HOOK
    for name in ("topologies", "experiments", "scripts", "tests", "dashboards"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "sizes.py").write_text("MINE = True\n")
        text += f"import {name}.sizes as own\nassert own.MINE\n"
    assert _said(tmp_path, text + USE, STARTUP) == "RIGHT"


def test_without_the_hook_no_name_is_ours_that_a_script_has(tmp_path: Path) -> None:
    (tmp_path / "testbed.py").write_text("MINE = True\n")
    assert _said(tmp_path, "import testbed\nprint(testbed.MINE)\n", STARTUP) == "True"


@pytest.mark.tier("all")
@pytest.mark.parametrize("path", [ROOT, STARTUP], ids=["clone", "run"])
def test_a_compressor_of_the_script_derives_from_the_hooks_base_class(path: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from compressors.topk import TopK\nclass Mine(TopK):\n    pass\n")
    text = HOOK + (
        "from compressors.base.compressor import Compressor\nfrom mine import Mine\n"
        "made = ddp_hook('mine', _target_='mine.Mine', density=0.5)\n"
        "print(isinstance(made._first.inner, Mine), issubclass(Mine, Compressor), isinstance(hook._first, Compressor))"
    )
    assert _said(tmp_path, text, path) == "True True True"
