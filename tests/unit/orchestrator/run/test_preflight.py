"""What the machine lacks is said before anything is built, each lack with its cure."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from testbed.core.errors import MachineError
from testbed.orchestrator.config.config import compose, resolve
from testbed.orchestrator.machine import checks
from testbed.orchestrator.run import preflight
from testbed.orchestrator.run.run_command import checked_spec


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def lines(**wanted: object) -> tuple[str, ...]:
    return preflight.lacking(preflight.run_checks(**wanted))  # type: ignore[arg-type]


def test_not_root_says_how_to_become_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert any(line.startswith("root: not root (user id 1000)") and "run with sudo" in line for line in lines())


@pytest.mark.parametrize(("tcp", "name"), [("tuned", "slowed BBR"), ("stock", "slowed CUBIC")])
def test_times_of_tcp_that_do_not_stretch_are_lacking_where_a_run_asks_for_more(tcp: str, name: str) -> None:
    def told(**wanted: object) -> list[str]:
        return [line for line in lines(tcp=tcp, **wanted) if line.startswith(name)]

    assert not told(dilation=2.0, rtt_s=0.067)
    for asked in ({"dilation": 10.0, "rtt_s": 0.067}, {"is_capped": True}):
        (line,) = told(**asked)
        assert "unit tests try nothing" in line and "tcp=reno" in line


def test_a_missing_mininet_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mininet", None)
    (line,) = (line for line in lines() if line.startswith("Mininet"))
    assert "cannot import mininet" in line and "apt-get install mininet" in line


def test_what_mininet_itself_lacks_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "mininet").mkdir()
    (tmp_path / "mininet" / "__init__.py").touch()
    (tmp_path / "mininet" / "net.py").write_text("import distutils_of_another_python\n")
    for name in [name for name in sys.modules if name.partition(".")[0] == "mininet"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    check = checks.mininet()
    monkeypatch.delitem(sys.modules, "mininet")
    assert not check.ok and "No module named 'distutils_of_another_python'" in check.found
    assert "setuptools" in check.cure


def test_a_port_in_use_is_named_and_port_0_is_always_free(taken_port: int) -> None:
    (line,) = (line for line in lines(metrics_port=taken_port) if "metrics port" in line)
    assert line.startswith(f"metrics port {taken_port}: in use by another process")
    assert "metrics_port=0" in line
    assert not any("metrics port" in line for line in lines(metrics_port=0))


def test_require_tells_every_lack_at_once(monkeypatch: pytest.MonkeyPatch, taken_port: int, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setitem(sys.modules, "mininet", None)
    with pytest.raises(MachineError) as caught:
        preflight.require(compose([f"metrics_port={taken_port}"]), tmp_path)
    assert {line.split(":")[0] for line in caught.value.faults} >= {"root", "Mininet", f"metrics port {taken_port}"}


def test_one_shaper_is_enough_unless_another_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "has_module", lambda name: True)
    for name in ("netem", "nfqueue"):
        assert checks.delay_shaper(frozenset({name})).ok
        assert checks.delay_shaper(frozenset({name}), name).ok
    check = checks.delay_shaper(frozenset({"netem"}), "nfqueue")
    assert not check.ok and "netem works" in check.found
    assert "NetfilterQueue" in check.cure and "shaper=netem" in check.cure
    check = checks.delay_shaper(frozenset())
    assert not check.ok and "sch_netem" in check.cure and "NetfilterQueue" in check.cure


def test_iptables_is_needed_for_nfqueue_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.orchestrator.machine.checks.shutil.which", lambda name: None)
    monkeypatch.setattr(checks, "kernel_features", lambda *_: frozenset({"netem", "veth", "tbf", "bbr"}))
    assert not any(line.startswith("iptables") for line in lines())
    assert any(line.startswith("iptables") for line in lines(shaper="nfqueue"))


def test_a_machine_without_runc_lacks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.orchestrator.machine.checks.shutil.which", lambda name: None)
    monkeypatch.setattr(checks, "kernel_features", lambda *_: None)
    assert "runc" in {line.split(":")[0] for line in lines()}


def test_memory_goes_by_what_runs_in_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda self: "MemTotal: 16000000 kB\nMemAvailable:    8000000 kB\n")
    assert checks.memory(128, "training").ok
    assert not checks.memory(200, "training").ok
    assert not checks.memory(128, "script").ok
    assert checks.memory(128, "hand").ok
    assert not checks.memory(2000, "hand").ok


def test_the_memory_is_asked_for_what_runs_in_the_nodes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[tuple[int, str]] = []
    real = checks.memory
    monkeypatch.setattr(checks, "memory", lambda *args: asked.append(args) or real(*args))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for words in (["workload=hand"], []):
        resolved = resolve(["topo=lan", "workers=7", *words])
        with pytest.raises(MachineError):
            checked_spec(resolved, tmp_path)
        with pytest.raises(MachineError):
            preflight.require(resolved.spec, tmp_path)
    assert asked == [(7, "hand"), (7, "hand"), (7, "training"), (7, "training")]


def test_another_system_is_refused_without_asking_it_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.orchestrator.machine.checks.sys.platform", "darwin")
    assert any(line.startswith("Linux") for line in lines())
    assert len(preflight.run_checks()) == 2


def test_system_directories_are_added_once() -> None:
    path = checks.with_system_directories("/usr/bin:/usr/sbin")
    assert path.split(":") == ["/usr/bin", "/usr/sbin", "/usr/local/sbin", "/sbin"]


def test_the_table_shows_what_is_lacking_and_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    console = Console(width=200, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(preflight.table(preflight.run_checks()))
    console.file.close()
    text = console.export_text()
    assert "LACKS" in text and "run with sudo" in text
