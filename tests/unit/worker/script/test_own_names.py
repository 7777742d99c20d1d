"""A script's modules of the names that Longhaul's packages have, next to the hook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.waiting import HANG_S

ROOT = Path(__file__).resolve().parents[4]
STARTUP = ROOT / "testbed" / "worker" / "script" / "startup"
HOOK = "from testbed.worker import ddp_hook\nhook = ddp_hook('topk', density=0.1)\n"
USE = "again = ddp_hook('powersgd', rank=2)\nprint('RIGHT' if own.MINE and again._first.inner.rank == 2 else 'WRONG')\n"


FORKS = """
import json, os, runpy, sys, traceback
import torch  # once for all scripts
base = [place for place in sys.path if place]
for line in sys.stdin:
    folder, path = json.loads(line)
    if not os.fork():
        os.chdir(folder)
        for stream in (1, 2):
            os.dup2(os.open("said", os.O_CREAT | os.O_WRONLY | os.O_APPEND), stream)
        sys.path[:], sys.argv[:] = [path, *base], ["train.py"]
        sys.modules.pop("sitecustomize", None)
        if path.endswith("startup"):
            import sitecustomize
        sys.path.insert(0, folder)
        try:
            runpy.run_path("train.py", run_name="__main__")
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(0)
    os.wait()
    print(flush=True)
"""
"""Runs scripts as `python train.py` with PYTHONPATH does, each in a fork, but that torch is there already."""
Ask = Callable[[Path, str, Path], str]


@pytest.fixture(scope="module")
def forked() -> Iterator[Ask]:
    environment = {"PATH": os.environ["PATH"]}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-B", "-c", FORKS], cwd="/", env=environment, text=True, **pipes) as process:
        assert process.stdin is not None and process.stdout is not None

        def said(folder: Path, text: str, path: Path) -> str:
            (folder / "train.py").write_text(text)
            process.stdin.write(json.dumps([str(folder), str(path)]) + "\n")
            process.stdin.flush()
            process.stdout.readline()
            return (folder / "said").read_text().strip()

        yield said
        process.stdin.close()


def _said(folder: Path, text: str, path: Path) -> str:
    (folder / "train.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-B", "train.py"],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    return done.stdout.strip() or done.stderr


FIRST, LAST, TWICE = HOOK + "{own}" + USE, "{own}" + HOOK + USE, "{own}" + HOOK + "del own\n{own}" + USE
"""The hook before the script's own module, after it, and between."""
ALL = pytest.mark.tier("all")


def _with_own(folder: Path, form: str, text: str) -> str:
    """Write the script's own `compressors`, and return the script."""
    file = folder / form.format(name="compressors")
    file.parent.mkdir(exist_ok=True)
    file.write_text("MINE = True\n")
    own = "import compressors.topk as own\n" if "topk" in form else "import compressors as own\n"
    return text.replace("{own}", own)


@pytest.mark.parametrize(
    ("path", "text"), [pytest.param(ROOT, LAST, id="clone"), pytest.param(STARTUP, TWICE, marks=ALL, id="run")]
)
def test_a_scripts_own_compressors_live_next_to_ours(path: Path, text: str, tmp_path: Path) -> None:
    assert _said(tmp_path, _with_own(tmp_path, "{name}.py", text), path) == "RIGHT"


@pytest.mark.tier("all")
@pytest.mark.parametrize(
    ("path", "form", "text"),
    [
        (ROOT, "{name}.py", FIRST),
        (ROOT, "{name}/__init__.py", TWICE),
        (ROOT, "{name}/topk.py", FIRST),
        (STARTUP, "{name}/__init__.py", FIRST),
        (STARTUP, "{name}/topk.py", TWICE),
    ],
)
def test_in_each_form_and_order(path: Path, form: str, text: str, forked: Ask, tmp_path: Path) -> None:
    assert forked(tmp_path, _with_own(tmp_path, form, text), path) == "RIGHT"


@pytest.mark.tier("all")
def test_other_names_of_ours_are_the_scripts(forked: Ask, tmp_path: Path) -> None:
    text = HOOK
    for name in ("topologies", "experiments", "scripts", "tests", "dashboards"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "sizes.py").write_text("MINE = True\n")
        text += f"import {name}.sizes as own\nassert own.MINE\n"
    assert forked(tmp_path, text + USE, STARTUP) == "RIGHT"


def test_without_the_hook_no_name_is_ours_that_a_script_has(tmp_path: Path) -> None:
    (tmp_path / "testbed.py").write_text("MINE = True\n")
    assert _said(tmp_path, "import testbed\nprint(testbed.MINE)\n", STARTUP) == "True"


@pytest.mark.tier("all")
@pytest.mark.parametrize("path", [ROOT, STARTUP], ids=["clone", "run"])
def test_a_compressor_of_the_script_derives_from_the_hooks_base_class(path: Path, forked: Ask, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from compressors.topk import TopK\nclass Mine(TopK):\n    pass\n")
    text = HOOK + (
        "from compressors.base.compressor import Compressor\nfrom mine import Mine\n"
        "made = ddp_hook('mine', _target_='mine.Mine', density=0.5)\n"
        "print(isinstance(made._first.inner, Mine), issubclass(Mine, Compressor), isinstance(hook._first, Compressor))"
    )
    assert forked(tmp_path, text, path) == "True True True"
