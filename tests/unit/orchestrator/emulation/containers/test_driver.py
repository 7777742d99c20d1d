"""Devices that nodes are given: what is found in a stand-in for a driver, who gets which, and what is refused."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import InputError, MachineError
from testbed.core.record.telemetry import Welcome
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.config.config import resolve
from testbed.orchestrator.emulation.containers import driver as module
from testbed.orchestrator.emulation.containers.driver import NO_DRIVER, Driver, check, driver_of, find
from testbed.orchestrator.emulation.containers.runc_container import Container
from testbed.orchestrator.emulation.containers.sandbox import Sandbox
from testbed.orchestrator.machine.rights import Rights
from testbed.orchestrator.run import preflight
from testbed.orchestrator.run.run_command import checked_spec, machine_checks
from testbed.orchestrator.run.workers.conversations import welcome

NODES = ("a-0", "a-1", "b-0")
SPEC = ("topo=lan", "workers=4", "workload=bytelm")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device nodes")


def made(place: Path, *, devices: int = 2, version: str = "580.159") -> Driver:
    """What is found of a driver that has such devices, by numbers that no device here has."""
    dev, lib = place / "dev", place / "lib"
    dev.mkdir()
    lib.mkdir()
    names = [
        *(f"nvidia{number}" for number in range(devices)),
        "nvidiactl",
        "nvidia-uvm",
        "nvidia-uvm-tools",
        "nvidia-modeset",
    ]
    for minor, name in enumerate(names):
        os.mknod(dev / name, stat.S_IFCHR | 0o660, os.makedev(195, minor))
    (dev / "nvidia9").touch()  # is no device
    for name in ("libcuda", "libnvidia-ml", "libnvidia-glcore"):
        (lib / f"{name}.so.{version}").write_text(name)
        (lib / f"{name}.so.1").symlink_to(f"{name}.so.{version}")
    return find(dev, [place / "nowhere", lib])


@needs_root
def test_devices_and_libraries_are_found_and_displays_left_out(tmp_path: Path) -> None:
    driver = made(tmp_path, devices=11)
    assert [device.path for device in driver.devices] == [f"/dev/nvidia{number}" for number in range(11)]
    assert [(one.path, one.major, one.minor) for one in driver.control] == [
        ("/dev/nvidiactl", 195, 11),
        ("/dev/nvidia-uvm", 195, 12),
    ]
    names = [path.name for path in driver.libraries]
    assert names == ["libcuda.so.1", "libcuda.so.580.159", "libnvidia-ml.so.1", "libnvidia-ml.so.580.159"]
    assert driver.version == "580.159"
    assert driver.environment()["LD_LIBRARY_PATH"] == str(tmp_path / "lib")
    usual = Driver(libraries=(module.SYSTEM[0] / module.NEEDED,))
    assert "LD_LIBRARY_PATH" not in usual.environment(), "torch's own libraries would come after the system's"
    assert NO_DRIVER.environment() == NO_DRIVER.facts(4) == {}


@needs_root
def test_ranks_share_devices_round_robin(tmp_path: Path) -> None:
    driver = made(tmp_path)
    given = [[device.path for device in driver.of_rank(rank)] for rank in range(3)]
    control = ["/dev/nvidiactl", "/dev/nvidia-uvm"]
    assert given == [["/dev/nvidia0", *control], ["/dev/nvidia1", *control], ["/dev/nvidia0", *control]]
    assert driver.facts(3) == {"accelerators": ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia0"], "driver": "580.159"}


def config_of(sandbox: Sandbox, node: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(Sandbox, "user", lambda _: (1, 1))

    class Root:
        path = Path("/nowhere")

    root: Any = Root()
    return Container(sandbox, root, node, "net", sandbox.work / "log")._config(["true"], {}, Path("/"))


@needs_root
def test_a_container_has_its_devices_and_nothing_else_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = made(tmp_path)
    places = (tmp_path, tmp_path, tmp_path / "socket", tmp_path, 10**9)
    without = config_of(Sandbox("r", *places, nodes=NODES), "a-1", monkeypatch)
    config = config_of(Sandbox("r", *places, nodes=NODES, driver=driver), "a-1", monkeypatch)
    made_there = config["linux"].pop("devices")
    assert [(one["path"], one["major"], one["minor"], one["fileMode"]) for one in made_there] == [
        ("/dev/nvidia1", 195, 1, 0o666),
        ("/dev/nvidiactl", 195, 2, 0o666),
        ("/dev/nvidia-uvm", 195, 3, 0o666),
    ]
    first, *rules = config["linux"]["resources"].pop("devices")
    assert first == {"allow": False, "access": "rwm"}, "all others stay shut"
    allowed = [{"allow": True, "type": "c", "major": 195, "minor": minor, "access": "rw"} for minor in (1, 2, 3)]
    assert rules == allowed, "and none may be made"
    more = [mount for mount in config["mounts"] if mount not in without["mounts"]]
    assert [mount["destination"] for mount in more] == [str(path) for path in driver.libraries]
    assert {mount["source"] for mount in more} == {str(path.resolve()) for path in driver.libraries}
    assert all("ro" in mount["options"] and "nodev" in mount["options"] for mount in more)
    assert without["linux"].pop("devices") == []
    assert without["linux"]["resources"].pop("devices") == [first]
    config["mounts"] = without["mounts"] = []
    assert config == without


@needs_root
def test_a_worker_is_told_with_how_many_devices_ranks_compute(tmp_path: Path) -> None:
    spec = resolve([*SPEC, "accelerator=cuda"]).spec
    told = welcome(spec, "local-1", "10.0.0.1", None, len(made(tmp_path).devices), is_back=False)
    assert told.accelerators == 2
    assert Welcome(**{**vars(told), "spec": {}}).accelerators == 2


@needs_root
def test_what_a_machine_lacks_is_told_with_the_way_on(tmp_path: Path) -> None:
    driver = made(tmp_path)
    assert check("cuda", 8, driver).ok and check("cuda_nccl", 2, driver).ok
    install, make = "install the driver, so that nvidia-smi works", "run nvidia-modprobe -u as root, which makes them"
    leave = "; or leave accelerator out"
    nothing = check("cuda", 4, Driver())
    assert nothing.needed and not nothing.ok
    assert "no /dev/nvidia0" in nothing.line and "no /dev/nvidiactl and no /dev/nvidia-uvm" in nothing.line
    assert "no libcuda.so.1 in LD_LIBRARY_PATH" in nothing.line and nothing.cure == f"{install}; {make}{leave}"
    lonely = check("cuda", 4, Driver(driver.devices, driver.control))
    assert not lonely.ok and "no libcuda.so.1" in lonely.line and "/dev/nvidia" not in lonely.found
    assert lonely.cure == install + leave
    for devices in (driver.devices, driver.devices[:1]):
        unmade = check("cuda", 4, Driver(devices, driver.control[:1], driver.libraries))
        assert unmade.found == "no /dev/nvidia-uvm" and unmade.cure == make + leave
    few = check("cuda_nccl", 4, driver)
    assert not few.ok and "no two ranks on one device: 4 workers, 2 device(s)" in few.line
    share = "use accelerator=cuda, whose ranks share a device, "
    assert few.cure == f"{share}at most 2 workers, or more devices{leave}"
    alone = check("cuda_nccl", 1, Driver(driver.devices[:1], driver.control, driver.libraries))
    assert not alone.ok and alone.cure == f"{share}or more devices{leave}"
    neither = check("cuda_nccl", 4, Driver(driver.devices, driver.control[:1], driver.libraries))
    assert neither.cure == f"{make}; {few.cure}"
    assert check("cuda_nccl", 4, Driver()).cure == nothing.cure, "how many it takes is told once there is one"
    assert not check("none", 4, Driver()).needed, "who computes on the processor needs none"


def test_the_loader_is_asked_first_where_the_driver_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_cached", lambda: iter([Path("/cached")]))
    found = module._searched({"LD_LIBRARY_PATH": "/named::relative"})
    assert found == [Path("/named"), Path("/cached"), *module.FOLDERS]


def test_no_driver_is_looked_for_where_nobody_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find", lambda: pytest.fail("nobody asked"))
    assert driver_of(resolve(SPEC).spec) is NO_DRIVER


def test_the_key_changes_the_hash_and_specs_without_it_have_theirs() -> None:
    plain, on_device = resolve(SPEC).spec, resolve([*SPEC, "accelerator=cuda"]).spec
    assert on_device.hash != plain.hash and "accelerator" not in plain.to_json()
    assert RunSpec.from_json(on_device.to_json()) == on_device


def test_what_gives_no_devices_is_refused_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError) as refused:
        assert resolve(["topo=lan", "workload=hand", "accelerator=cuda", "runtime=docker"]).spec
    told = "\n".join(refused.value.faults)
    assert "accelerator=cuda: nodes of runtime=docker" in told and "accelerator=cuda: workload=hand" in told
    with pytest.raises(InputError, match="dilation=guess: of accelerator=cuda neither links nor cores are reckoned"):
        assert resolve([*SPEC, "accelerator=cuda", "dilation=guess"]).spec
    with pytest.raises(InputError, match="accelerator=rocm: unknown; known: none, cuda, cuda_nccl"):
        assert resolve([*SPEC, "accelerator=rocm"]).spec
    monkeypatch.setattr(preflight, "run_checks", lambda **_: [])
    with pytest.raises(InputError) as caught:
        checked_spec(resolve([*SPEC, "accelerator=cuda"], runs_root=tmp_path), tmp_path, Rights(rootless=True))
    assert any(fault.startswith("accelerator=cuda: only root") for fault in caught.value.faults)


def test_a_run_needs_what_it_asks_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find", Driver)
    for asked, needed in (("none", False), ("cuda", True), ("rocm", False)):
        found = machine_checks(resolve([*SPEC, f"accelerator={asked}"], runs_root=tmp_path), tmp_path)
        (one,) = [each for each in found if each.name == "accelerator"]
        assert one.needed == needed and not one.ok
    with pytest.raises(MachineError, match="accelerator: no /dev/nvidia0"):
        preflight.raise_lacking([check("cuda", 4)])
