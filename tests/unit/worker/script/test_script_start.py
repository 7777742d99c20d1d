"""A user's script by its first process and the startup folder, against the same script by plain python."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed.orchestrator.run.workers import attended
from testbed.worker.script import first_process
from tests.waiting import HANG_S

ROOT = Path(__file__).resolve().parents[4]
SIDE = ROOT / "testbed" / "worker" / "script"
INIT = ("env", "--default-signal=INT", "unshare", "--pid", "--fork", "--kill-child")
"""Makes what follows the first process of a namespace, as in a node. Tests may run where SIGINT is ignored, and
children inherit that."""


def _environment(folder: Path) -> dict[str, str]:
    (folder / "go").touch()
    return {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "LONGHAUL_MARKS": str(folder / "marks")}


def _ours(folder: Path, *command: str, wrapper: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    start = [*wrapper, sys.executable, "-I", "-S", str(SIDE / "first_process.py"), sys.executable, *command]
    environment = {**_environment(folder), "PYTHONPATH": str(SIDE / "startup")}
    return subprocess.run(
        start, cwd=folder, env=environment, capture_output=True, text=True, timeout=HANG_S, check=False
    )


def _plain(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=_environment(folder),
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )


SCRIPTS = {
    "main": """
import sys, beside, __main__
print(__name__, sys.argv, __file__, __spec__, beside.VALUE, sys.orig_argv, sys.path[:2], sorted(vars(__main__)))
sys.exit(7)
""",
    "thread": """
import threading, time
class Late: pass
def late():
    time.sleep(0.2)
    print(Late, __name__)
threading.Thread(target=late).start()
""",
    "handlers": """
import atexit, sys
class Kept: pass
atexit.register(lambda: print("first", Kept, sys.modules["__main__"].Kept))
atexit.register(print, "second")
""",
    "pickle": """
import pickle
class Mine: pass
print(type(pickle.loads(pickle.dumps(Mine()))) is Mine)
""",
    "spawned": """
import multiprocessing
class Mine: pass
def work(got):
    print(type(got).__name__, flush=True)
if __name__ == "__main__":
    one = multiprocessing.get_context("spawn").Process(target=work, args=(Mine(),))
    one.start()
    one.join()
""",
    "raised": "raise KeyError('lost')",
    "text": "import sys; sys.exit('no data')",
    "hook": """
import sys
sys.excepthook = lambda *found: print(found[0].__name__, found[2].tb_next)
1 / 0
""",
    "syntax": "def broken(:",
    "at_once": """
import os, atexit
atexit.register(print, "never")
os._exit(9)
""",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_does_what_it_does_under_python(name: str, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("VALUE = 3\n")
    (tmp_path / "train.py").write_text(SCRIPTS[name])
    found, wanted = (run(tmp_path, "train.py", "--epochs", "2") for run in (_ours, _plain))
    assert (found.returncode, found.stdout, found.stderr) == (wanted.returncode, wanted.stdout, wanted.stderr)


def test_a_module_of_a_package_is_run_as_by_python(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("NAME = 'p'\n")
    (package / "train.py").write_text(
        "import sys\nfrom . import NAME\nprint(NAME, __name__, __spec__.name, __package__, sys.argv[1:], sys.path[0])\n"
    )
    found, wanted = (run(tmp_path, "-m", "package.train", "x") for run in (_ours, _plain))
    assert (found.returncode, found.stdout, found.stderr) == (wanted.returncode, wanted.stdout, wanted.stderr)


@pytest.mark.needs_root
@pytest.mark.parametrize("name", ["SIGKILL", "SIGABRT", "SIGTERM", "SIGINT"])
def test_a_signal_that_a_script_sends_itself_ends_it(name: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"import os, signal\nos.kill(os.getpid(), signal.{name})\nprint('lives on')\n")
    done = _ours(tmp_path, "train.py", wrapper=INIT)
    assert done.returncode == 128 + signal.Signals[name]
    assert "lives on" not in done.stdout
    assert done.stderr.rstrip().endswith(f"{first_process.NOTE}{name}")


@pytest.mark.needs_root
def test_orphans_are_reaped_and_the_end_of_one_is_not_the_scripts(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, time\nif os.fork() == 0:\n    os.fork() or os._exit(5)\n    os._exit(3)\n"
        "os.wait(); time.sleep(0.2)\nprint([p for p in os.listdir('/proc') if p.isdigit()] and 'done')\n"
    )
    done = _ours(tmp_path, "train.py", wrapper=INIT)
    assert (done.returncode, done.stdout) == (0, "done\n")


def test_signals_are_passed_on_to_the_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(11))\n"
        "open('ready', 'w').close()\ntime.sleep(60)\n"
    )
    command = [sys.executable, "-I", "-S", str(SIDE / "first_process.py"), sys.executable, "train.py"]
    with subprocess.Popen(command, cwd=tmp_path, env=_environment(tmp_path)) as process:
        deadline_s = time.monotonic() + HANG_S
        while not (tmp_path / "ready").exists() and time.monotonic() < deadline_s:
            time.sleep(0.01)
        process.terminate()
        assert process.wait(HANG_S) == 11


def test_a_script_waits_for_the_word_to_begin(tmp_path: Path) -> None:
    environment = _environment(tmp_path)
    (tmp_path / "go").unlink()
    (tmp_path / "train.py").write_text("open('begun', 'w').close()\n")
    command = [sys.executable, "-I", "-S", str(SIDE / "first_process.py"), sys.executable, "train.py"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment) as process:
        time.sleep(0.2)
        assert process.poll() is None and not (tmp_path / "begun").exists()
        (tmp_path / "go").touch()
        assert process.wait(HANG_S) == 0 and (tmp_path / "begun").exists()
    (tmp_path / "go").unlink()
    with subprocess.Popen(command, cwd=tmp_path, env=environment) as process:
        time.sleep(0.2)
        process.terminate()
        assert process.wait(HANG_S) == 128 + signal.SIGTERM


def test_both_sides_know_the_note_of_a_signal() -> None:
    assert first_process.NOTE == attended.NOTE


def test_another_sitecustomize_is_run_too(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('theirs')\n")
    (tmp_path / "train.py").write_text("import sys, sitecustomize\nprint(sitecustomize.__file__, sys.path)\n")
    environment = {**_environment(tmp_path), "PYTHONPATH": f"{SIDE / 'startup'}{os.pathsep}{tmp_path}"}
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(f"theirs\n{tmp_path / 'sitecustomize.py'}")
    assert "startup" not in done.stdout


@pytest.mark.tier("all")
def test_joining_and_leaving_a_group_are_noted(tmp_path: Path) -> None:
    """Subgroups are no leaving; a script that does not destroy its group leaves with its end."""
    (tmp_path / "train.py").write_text(
        "import sys, torch.distributed as dist\n"
        "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)\n"
        "dist.destroy_process_group(dist.new_group([0]))\n"
        "if len(sys.argv) > 1: dist.destroy_process_group()\n"
    )
    for words, marks in ((["destroy"], ["joined", "left"]), ([], ["joined", "left"])):
        assert _ours(tmp_path, "train.py", *words).returncode == 0
        noted = [line.split()[0] for line in (tmp_path / "marks").read_text().splitlines()]
        assert [what for what in noted if what in ("joined", "left")][:2] == marks
        assert (noted[0], noted[-1]) == ("started", "ended")
        (tmp_path / "marks").unlink()
