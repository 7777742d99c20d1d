"""`scripts/gpu-check.sh [OUT.json]`: what a machine with an accelerator has, and whether Longhaul works there.

One table on standard output and one JSON file, build/gpu-check.json without an argument; the status is always 0. What
cannot be tried is in the table as left out, with the reason. Needs the standard library alone; what it starts has
limits, and all of it ends within LIMIT_S.
"""

from __future__ import annotations

import contextlib
import ctypes.util
import importlib.metadata
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = float(os.environ.get("GPU_CHECK_LIMIT_S", "300"))
COMMANDS = ("ip", "tc", "iptables", "runc", "unshare", "sysctl", "mnexec", "nsenter")
PACKAGES = (*("torch", "numpy", "hydra-core", "pyroute2", "NetfilterQueue", "pydantic", "rich", "PyYAML"), "zstandard")
WORDS = ("topo=lan", "workload=bytelm", "steps=6", "evaluate_every=6", "seed=3")
TOLERANCE = 1e-3
"""Most by which losses on the device may differ, relative to the processor's."""

Outcome = str  # "ok", "differs", "failed", "left out"


@dataclass
class Row:
    """One line of the table."""

    step: str
    outcome: Outcome
    found: str
    seconds: float = 0.0
    data: Any = None


@dataclass
class Checks:
    """Rows so far, and the time that is left."""

    end_s: float
    rows: list[Row] = field(default_factory=list)

    def left_out(self, step: str, why: str) -> None:
        self.rows.append(Row(step, "left out", why))

    def add(self, step: str, limit_s: float, act: Callable[[float], tuple[Outcome, str, Any]]) -> Row | None:
        """Take a step; whatever it raises is its row."""
        room_s = min(limit_s, self.end_s - time.monotonic())
        if room_s < min(limit_s, 5.0):
            self.left_out(step, f"no time is left of {LIMIT_S:g} s")
            return None
        began_s = time.monotonic()
        try:
            outcome, found, data = act(room_s)
        except subprocess.TimeoutExpired:
            outcome, found, data = "failed", f"ended after {room_s:.0f} s, its limit", None
        except Exception as error:
            outcome, found, data = "failed", f"{type(error).__name__}: {error}", None
        self.rows.append(Row(step, outcome, found, round(time.monotonic() - began_s, 1), data))
        return self.rows[-1]


def main(arguments: list[str]) -> int:
    """Take all steps, print the table, write the file; return 0."""
    out = Path(arguments[0] if arguments else ROOT / "build" / "gpu-check.json").absolute()
    checks = Checks(time.monotonic() + LIMIT_S - _END_S)  # what is running then has yet to end in order
    checks.add("system", 10, system)
    checks.add("commands", 10, commands)
    checks.add("python packages", 10, packages)
    checks.add("longhaul check", 60, machine)
    device = checks.add("device", 90, devices)
    has_device = device is not None and device.outcome == "ok"
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as scratch:
        wire_bytes(checks, has_device)
        torchrun(checks, has_device, Path(scratch))
    count = len(device.data["devices"]) if device is not None and has_device else 0
    emulated(checks, count)
    refused(checks, count)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"rows": [asdict(row) for row in checks.rows]}, indent=1) + "\n")
    show(checks.rows)
    print(f"written: {out}")
    return 0


def system(_: float) -> tuple[Outcome, str, Any]:
    release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    cgroups = "v2" if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "v1"
    found = {
        "system": release.get("PRETTY_NAME", "").strip('"'),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "root": os.geteuid() == 0,
        "cgroups": cgroups if Path("/sys/fs/cgroup").is_dir() and os.listdir("/sys/fs/cgroup") else "none",
        "libnetfilter_queue": ctypes.util.find_library("netfilter_queue"),
    }
    return "ok", ", ".join(f"{key} {value}" for key, value in found.items() if key != "memory_bytes"), found


def commands(_: float) -> tuple[Outcome, str, Any]:
    found = {name: shutil.which(name) for name in COMMANDS}
    lacking = [name for name, path in found.items() if path is None]
    said = ", ".join(f"{name} {path}" for name, path in found.items() if path)
    return ("differs" if lacking else "ok"), said + (f"; lacking: {', '.join(lacking)}" if lacking else ""), found


def packages(_: float) -> tuple[Outcome, str, Any]:
    found: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    lacking = [name for name, version in found.items() if version is None]
    said = ", ".join(f"{name} {version}" for name, version in found.items() if version)
    return ("differs" if lacking else "ok"), said + (f"; lacking: {', '.join(lacking)}" if lacking else ""), found


def machine(room_s: float) -> tuple[Outcome, str, Any]:
    """Namespaces, shapers, cgroups and rights, as each run asks for them."""
    done = ended([sys.executable, "-m", "testbed", "check"], room_s, {"COLUMNS": "240", "NO_COLOR": "1"})
    lines = [line.rstrip() for line in done.stdout.splitlines() if line.strip()]
    lacking = [line.strip() for line in lines if " lacks " in line or " missing " in line or " without " in line]
    said = lines[-1].strip() if lines else (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    return ("ok" if done.returncode == 0 else "failed"), said, {"lines": lines, "lacking": lacking}


def devices(room_s: float) -> tuple[Outcome, str, Any]:
    """Ask torch for devices; it is imported only where there is a device node or a library of the driver."""
    nodes = sorted(str(path) for path in Path("/dev").glob("nvidia*"))
    driver = Path("/proc/driver/nvidia/version")
    data = {"nodes": nodes, "driver": driver.read_text().splitlines()[0] if driver.exists() else None}
    if not nodes and not ctypes.util.find_library("cuda"):
        return "left out", "no /dev/nvidia* and no libcuda", data
    done = ended([sys.executable, "-c", _DEVICE], room_s)
    if done.returncode != 0:
        return "failed", (done.stderr.strip().splitlines() or ["no reason given"])[-1], data
    data |= json.loads(done.stdout.splitlines()[-1])
    return ("ok" if data["devices"] else "left out"), f"{data['devices']}, torch {data['torch']}", data


_DEVICE = """
import json, torch
print(json.dumps({"torch": torch.__version__, "nccl": torch.distributed.is_nccl_available(),
    "devices": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]}))
"""


def wire_bytes(checks: Checks, has_device: bool) -> None:
    """The law `devices`: payloads and what they decode to, of every codec, on the device and on the processor."""
    step = "codecs: bytes of the device"
    if not has_device:
        return checks.left_out(step, "no device to compare with the processor")

    def act(room_s: float) -> tuple[Outcome, str, Any]:
        done = ended([sys.executable, str(ROOT / "scripts" / "gpu_laws.py")], room_s)
        rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        broken = {row["name"]: row["detail"] for row in rows if row["outcome"] == "broken"}
        held = sum(row["outcome"] == "holds" for row in rows)
        if not rows:
            raise RuntimeError((done.stderr.strip().splitlines() or ["no reason given"])[-1])
        said = f"{held} hold" + "".join(f"; {name}: {why}" for name, why in broken.items())
        return ("ok" if not broken and done.returncode == 0 else "differs"), said, rows

    checks.add(step, 90, act)
    return None


def torchrun(checks: Checks, has_device: bool, scratch: Path) -> None:
    """Losses of runs under torchrun; on the device compared with those of the processor."""
    for strategy in ("ddp", "diloco"):
        kinds = ("none", "cuda") if has_device else ("none",)
        rows = [torchrun_row(checks, strategy, kind, scratch) for kind in kinds]
        compare(checks, f"torchrun, {strategy}, compared", rows)


def compare(checks: Checks, step: str, rows: list[Row | None]) -> None:
    """Compare the losses of a run on the processor with those of one on the device, where both were made."""
    found = [row.data["losses"] for row in rows if row is not None and row.outcome == "ok"]
    if len(rows) < 2:
        checks.left_out(step, "no device")
    elif len(found) < 2:
        checks.left_out(step, "one of the two runs did not end (above)")
    else:
        apart = max(abs(a - b) / abs(a) for a, b in zip(*found, strict=True))
        verdict = "ok" if apart <= TOLERANCE else "differs"
        checks.rows.append(Row(step, verdict, f"losses differ by {apart:.2g} at most, {TOLERANCE:g} allowed"))


def torchrun_row(checks: Checks, strategy: str, kind: str, scratch: Path) -> Row | None:
    def act(room_s: float) -> tuple[Outcome, str, Any]:
        place = scratch / f"{strategy}-{kind}"
        done = launched([*WORDS, f"strategy={strategy}", "--accelerator", kind], place, room_s)
        found = losses(done, place)
        return "ok", f"losses {found[0]:.4f} to {found[-1]:.4f}", {"losses": found}

    return checks.add(f"torchrun, {strategy}, {'device' if kind == 'cuda' else 'processor'}", 60, act)


def launched(words: list[str], place: Path, room_s: float) -> subprocess.CompletedProcess[str]:
    """One rank of its own, without the launcher, which would import torch once more: it has torchrun's variables."""
    port = free_ports()
    given = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    given |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port + 2)}
    command = [sys.executable, "-m", "testbed.worker", "torchrun", "--port", str(port), "--runs", str(place), *words]
    return ended(command, room_s, given)


def losses(done: subprocess.CompletedProcess[str], place: Path) -> list[float]:
    if done.returncode != 0:
        raise RuntimeError(f"status {done.returncode}: {' '.join((done.stdout + done.stderr).split())[-300:]}")
    return losses_of(next(place.glob("*/events.jsonl")))


def losses_of(events: Path) -> list[float]:
    lines = (json.loads(line) for line in events.read_text().splitlines())
    return [line["loss"] for line in lines if line["event"] == "step" and line["rank"] == 0]


def refused(checks: Checks, devices: int) -> None:
    """Runs with devices that must not begin: too few devices, and nodes or workloads that are given none."""
    few = "no two ranks on one device" if devices else "no /dev/nvidia0"
    asked = {
        f"accelerator=cuda_nccl workers={max(2, devices + 1)}": (3, [few]),
        "accelerator=cuda runtime=docker workload=hand": (
            2,
            ["runtime=docker are given no", "workload=hand is given no"],
        ),
    }
    if not devices:
        asked["accelerator=cuda"] = (3, [few])

    def act(room_s: float) -> tuple[Outcome, str, Any]:
        found, end_s = {}, time.monotonic() + room_s
        for words, (status, lines) in asked.items():
            command = [sys.executable, "-m", "testbed", "run", "--share", *WORDS, *words.split()]
            done = ended(command, end_s - time.monotonic())  # the first one imports torch
            kept = done.returncode == status and all(line in done.stderr for line in lines)
            found[words] = {"refused": kept, "status": done.returncode, "said": done.stderr.strip().splitlines()}
        others = [words for words, one in found.items() if not one["refused"]]
        return (
            ("failed" if others else "ok"),
            "; ".join(f"not so: {words}" for words in others) or ", ".join(found),
            found,
        )

    checks.add("accelerator: refusals", 45, act)


def emulated(checks: Checks, devices: int) -> None:
    """Runs over emulated links, on the processor and on the device, which workers share; records stay in runs/."""
    for workers in (2, 4):
        step = f"emulated, {workers} workers"
        rows = [emulated_row(checks, f"{step}, processor", workers, "none")]
        if devices:
            rows.append(emulated_row(checks, f"{step}, device", workers, "cuda"))
        else:
            checks.left_out(f"{step}, device", "no device")
        compare(checks, f"{step}, compared", rows)
    step = "emulated, a device each, NCCL"
    if devices < 2:
        checks.left_out(step, f"NCCL takes no two ranks on one device, and there are {devices}")
    else:
        emulated_row(checks, step, 2, "cuda_nccl")


def emulated_row(checks: Checks, step: str, workers: int, accelerator: str) -> Row | None:
    def act(room_s: float) -> tuple[Outcome, str, Any]:
        words = [f"workers={workers}", *WORDS, *([] if accelerator == "none" else [f"accelerator={accelerator}"])]
        done = ended([sys.executable, "-m", "testbed", "run", "--json", *words], room_s)
        if not done.stdout.strip():
            said = " ".join(done.stderr.split())
            return "failed", f"status {done.returncode}: {said[-300:]}", None
        summary = json.loads(done.stdout)
        kept = {key: summary.get(key) for key in ("run_id", "status", "verdict", "reasons", "steps", "time_s")}
        said = ", ".join(f"{key} {value}" for key, value in kept.items())
        if summary["status"] != "completed":
            return "failed", said, kept
        return "ok", said, kept | {"losses": losses_of(ROOT / "runs" / summary["run_id"] / "events.jsonl")}

    return checks.add(step, 75, act)


_END_S = 20.0
"""Seconds that a command which ran into its limit has to end in order."""


def ended(command: list[str], room_s: float, given: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Return what a command said; it is in a session of its own, all of which is ended at the limit."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | (given or {})
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE) | {"stdin": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=ROOT, env=environment, text=True, start_new_session=True, **pipes) as process:
        try:
            stdout, stderr = process.communicate(timeout=room_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)  # a run removes its network and nodes
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=_END_S)
            raise
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def free_ports() -> int:
    """The first of three in a row."""
    for first in range(31000, 32700, 3):
        with contextlib.suppress(OSError):
            for port in range(first, first + 3):
                socket.create_server(("", port)).close()
            return first
    raise RuntimeError("no three free ports in a row")


def show(rows: list[Row]) -> None:
    width = max(len(row.step) for row in rows)
    for row in rows:
        print(f"{row.step:{width}}  {row.outcome:8}  {row.seconds:6.1f} s  {' '.join(row.found.split())[:400]}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
