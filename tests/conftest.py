"""What the tests share: which of them this machine can run, and the lock for those that need it alone."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from dashboards.grafana_data.answers import lacking
from tests import chromium
from tests.machine import machine_held
from tests.tiers import TIERS, in_order, lies_in_other_tiers, tier_of

# Tests that several files derive from, whose assertions are to say as much as those of a test's own file.
pytest.register_assert_rewrite("tests.emulation.endings")
ROOT = Path(__file__).resolve().parents[1]
# Tests run side by side, one for each core; where each has a thread for each core too, threads wait for one another.
# To be set before torch is loaded, and handed on to all that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# The same examples each time, however slow the machine: what is found by chance belongs into a test of its own.
hypothesis.settings.register_profile(
    "shared", deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("shared")
_LEFT_OUT = pytest.StashKey[dict[str, int]]()


def has_root() -> bool:
    return os.geteuid() == 0


@functools.cache
def has_netem() -> bool:
    """Tried, in a namespace of its own: a module may be there and still not load."""
    if not has_root() or shutil.which("tc") is None:
        return False
    command = ["unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@functools.cache
def serves_everybody() -> bool:
    """Tried, as a user that nobody is: a user namespace, and this clone's interpreter."""
    if not has_root() or shutil.which("setpriv") is None:
        return False
    user = ["setpriv", "--reuid=61234", "--regid=61234", "--clear-groups", "--inh-caps=-all"]
    reads = ["-c", f"open({str(ROOT / 'pyproject.toml')!r}).close()"]
    command = [*user, "unshare", "--user", "--map-root-user", "--net", sys.executable, *reads]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def has_gpu() -> bool:
    return Path("/dev/nvidiactl").exists()


def has_chromium() -> bool:
    return chromium.program() is not None


def has_docker() -> bool:
    return has_root() and all(shutil.which(name) for name in ("dockerd", "docker"))


def has_slurm() -> bool:
    return has_root() and all(shutil.which(name) for name in ("munged", "slurmctld", "slurmd", "sbatch"))


@functools.cache
def takes_fonts() -> bool:
    """On Debian 12, whose fonts are asked for, always: there a font that is missing is a fault."""
    with contextlib.suppress(OSError):  # there is no such file
        system = platform.freedesktop_os_release()
        if (system["ID"], system.get("VERSION_ID")) == ("debian", "12"):
            return True
    from testbed.worker.data.glyph_images import font_faults  # numpy and Pillow, which most sessions need not wait for

    return not font_faults()


@functools.cache
def has_grafana_data() -> bool:
    return lacking() is None


NEEDS: dict[str, tuple[Callable[[], bool], str]] = {
    "needs_root": (has_root, "need root (make test calls sudo for them)"),
    "netem": (has_netem, "need root and a kernel with sch_netem"),
    "rootless": (serves_everybody, "need user namespaces for everybody, and a clone that everybody may read"),
    "gpu": (has_gpu, "need an NVIDIA device"),
    "chromium": (has_chromium, "need Chromium (make setup-browser installs it)"),
    "docker": (has_docker, "need root, dockerd and docker (apt-get install docker.io)"),
    "slurm": (has_slurm, "need root and Slurm (apt-get install munge slurm-client slurmctld slurmd)"),
    "fonts": (takes_fonts, "draw images from Debian 12's fonts, to the byte (workloads glyphs and tiny_vit)"),
    "grafana_data": (has_grafana_data, "need Node and @grafana/data (npm ci --prefix dashboards/grafana_data)"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=TIERS, help="run the tests of one tier alone; without it, all that are named")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files without a test of the tier that is run are not even read, which takes seconds for hundreds of them."""
    return True if lies_in_other_tiers(collection_path, config.getoption("tier")) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect other tiers, and what this machine cannot run: a skip would hide among the chosen ones, so the reason is
    printed."""
    kept, deselected = [], []
    left_out: dict[str, int] = {}
    tier = config.getoption("tier")
    for item in items:
        if tier is not None and tier_of(item) != tier:
            deselected.append(item)
            continue
        if ROOT / "tests" / "emulation" in item.path.parents:
            item.add_marker("needs_root")
        lacking = [why for mark, (there, why) in NEEDS.items() if item.get_closest_marker(mark) and not there()]
        (deselected if lacking else kept).append(item)
        for why in lacking[:1]:
            left_out[why] = left_out.get(why, 0) + 1
    config.stash[_LEFT_OUT] = left_out
    if deselected:
        config.hook.pytest_deselected(items=deselected)
    items[:] = in_order(kept)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Numbers drawn at random without a seed are the same whichever tests the process has run before."""
    random.seed(0)
    for name, seed in (("numpy.random", "seed"), ("torch", "manual_seed")):
        if name in sys.modules:
            getattr(sys.modules[name], seed)(0)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand over what was left out: with several processes each collects all tests, and the one that reports none."""
    if (told := getattr(session.config, "workeroutput", None)) is not None:
        told["left_out"] = session.config.stash.get(_LEFT_OUT, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    if told := getattr(node, "workeroutput", {}).get("left_out"):  # one that has crashed says nothing
        node.config.stash[_LEFT_OUT] = told


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for why, count in config.stash.get(_LEFT_OUT, {}).items():
        terminalreporter.write_line(f"left out: {count} tests that {why}")


@pytest.fixture(scope="session")
def machine_lock() -> Iterator[None]:
    """The machine alone, from the first emulation test to the last: `longhaul run` takes the same lock, so no other
    run's load falls into what a test measures. Runs that the tests start themselves are told to share."""
    with machine_held():
        yield
