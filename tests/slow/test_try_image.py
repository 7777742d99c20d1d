"""`make try-image`: a privileged container of the image makes the README's run without a network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.core.errors import EXIT_COMPLETED, EXIT_INVALID
from tests.slow.bounded_runc import lacking
from tests.slow.dockerd import BOUNDED, served
from tests.slow.support import run, status_of

pytestmark = [pytest.mark.docker, pytest.mark.timeout(2400)]
IMAGE_LIMIT_S, RUN_LIMIT_S = 1000.0, 1200.0


@pytest.fixture(scope="module")
def command() -> Iterator[str]:
    """What `make try-image` says to type, with the image built; any runtime of Docker's but runc is the test's."""
    with served(real_time=True):
        built = run("bash scripts/try-image.sh", IMAGE_LIMIT_S)
        assert built.returncode == 0, built.stderr
        said = built.stdout.strip()
        assert said.startswith("docker run --rm --privileged ") and said.endswith(" longhaul-try")
        yield said.replace("--privileged", f"--privileged --runtime {BOUNDED}") if lacking() else said


def test_the_image_makes_the_readme_s_run_without_a_network(command: str, machine_lock: None) -> None:
    done = run(f'{command} make experiment TOPO=wan1g SET="steps=20 evaluate_every=10"', RUN_LIMIT_S)
    told = f"{done.stdout}\n{done.stderr}"
    assert status_of(done) in (EXIT_COMPLETED, EXIT_INVALID), told[-5000:]  # a busy machine's run may be invalid
    assert re.search(r"^ *oregon -> virginia +1, [\d.]+ +67, ", told, re.MULTILINE), told[-5000:]
    assert re.search(r"^steps +20 in ", told, re.MULTILINE) and "\nrun directory: runs/" in told, told[-5000:]


def test_the_image_is_set_up_and_has_the_clone_s_history(command: str) -> None:
    commit = run("git rev-parse HEAD", 20).stdout
    done = run(f"{command} bash -c 'make setup && git rev-parse HEAD && .venv/bin/longhaul show topologies wan1g'", 200)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(commit) and "wan1g" in done.stdout.removeprefix(commit)
    assert "setup:" not in done.stderr


def test_nothing_of_this_machine_but_packages_and_the_clone_is_in_it(command: str) -> None:
    where = Path(__file__).resolve().parents[2]
    listed = run(
        f"{command} bash -c 'ls -A /root /home /etc/ssh /var/lib/dpkg/info /opt 2>/dev/null; ls {where.parent}'", 60
    )
    lines = [line for line in listed.stdout.splitlines() if line and not line.endswith(":")]
    assert lines == [where.name]
