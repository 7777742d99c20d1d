"""Single questions to this machine. None changes it: what must be tried is tried in a throwaway network namespace."""

from __future__ import annotations

import errno
import importlib
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from testbed.core.units import format_size
from testbed.orchestrator.machine import docker_client
from testbed.orchestrator.machine.rights import OF_ROOT, Rights

PROBE_TIME_LIMIT_S = 10.0


@dataclass(frozen=True)
class Check:
    """One question, its answer, and what to do about it."""

    name: str
    needed: bool
    """Whether a run cannot be made without it."""
    ok: bool
    found: str
    meaning: str
    """What it is for, or what its lack means."""
    cure: str

    @property
    def line(self) -> str:
        return f"{self.name}: {self.found}; {self.meaning}: {self.cure}"


def has_module(name: str) -> bool:
    """Whether it can be imported, without importing it."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # ValueError: something put None in sys.modules
        return False


def is_root() -> bool:
    return os.geteuid() == 0


def with_system_directories(path: str) -> str:
    """`path` with the sbin directories, which a user's and plain su's lack."""
    parts = [part for part in path.split(os.pathsep) if part]
    return os.pathsep.join(parts + [d for d in ("/usr/local/sbin", "/usr/sbin", "/sbin") if d not in parts])


def root() -> Check:
    found = "root" if is_root() else f"not root (user id {os.geteuid()})"
    cure = "run with sudo, or make experiment; or longhaul run --rootless, which says what it has to do without"
    return Check("root", True, is_root(), found, "a run makes network namespaces", cure)


def operating_system() -> Check:
    ok = sys.platform == "linux"
    found = f"{os.uname().sysname} {os.uname().release}"
    return Check("Linux", True, ok, found, "namespaces are Linux's", "use a Linux machine, or a virtual one")


def mininet() -> Check:
    """Tried: it may be there and still not find a module that its release needs and this Python lacks."""
    found, lack = f"Python {sys.version_info[0]}.{sys.version_info[1]}", ""
    try:
        for name in ("mininet", "mininet.net"):
            importlib.import_module(name)
    except ImportError as error:
        lack = f" cannot import mininet: {error}"
    cure = "make setup (Debian: apt-get install mininet, and a .venv with --system-site-packages and setuptools)"
    return Check("Mininet", True, not lack, found + lack, "it makes the nodes and links", cure)


def binary(name: str, meaning: str, package: str, needed: bool = True) -> Check:
    """A program on PATH (see `with_system_directories`)."""
    path = shutil.which(name)
    return Check(name, needed, path is not None, path or "not found", meaning, f"apt-get install {package}")


def docker(*, needed: bool) -> Check:
    """A daemon that somebody started, and the image of the nodes in it."""
    lack = docker_client.lacking()
    found, cure = lack or (f"the daemon at {docker_client.daemon_host()} has {docker_client.IMAGE}", "")
    return Check("docker", needed, lack is None, found, "containers of the nodes with runtime=docker", cure)


_PROBE = """
ip link add probe0 type veth peer name probe1 && echo veth
tc qdisc add dev lo root tbf rate 10mbit burst 10kb latency 50ms && echo tbf
tc qdisc del dev lo root
tc qdisc add dev lo root netem delay 1ms && echo netem
iptables -w 5 -t mangle -A FORWARD -j NFQUEUE --queue-num 1 && echo nfqueue
ip link set dev lo up
for name in bbr cubic reno; do
    ip route replace 203.0.113.0/24 dev lo congctl $name && echo $name
done
mount -t sysfs sysfs /sys && echo sysfs
mount -t tmpfs tmpfs /tmp && mkdir /tmp/mask /tmp/root &&
    mount -t overlay overlay -o ro,lowerdir=/tmp/mask:/ /tmp/root && echo overlay
true
"""


def kernel_features(rights: Rights = OF_ROOT) -> frozenset[str] | None:
    """What the kernel does of _PROBE, by the word it prints; None where it cannot be tried."""
    if not (is_root() or rights.rootless) or shutil.which("unshare") is None:
        return None
    try:
        done = subprocess.run(
            [*rights.unshare(), "sh", "-c", _PROBE],
            env={**os.environ, **rights.environment()},
            capture_output=True,
            text=True,
            timeout=PROBE_TIME_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return frozenset()
    return frozenset(done.stdout.split()) if done.returncode == 0 else frozenset()


def namespaces(features: frozenset[str] | None) -> Check:
    lacking = [name for name in ("veth", "tbf") if features is not None and name not in features]
    found = "not tried (needs root and unshare)" if features is None else "works"
    if lacking:
        found = f"a private network namespace has no {' and no '.join(lacking)}"
    cure = "allow CAP_SYS_ADMIN and CAP_NET_ADMIN, and load the modules veth and sch_tbf"
    if features is not None and not features:
        found = "unshare makes no private namespaces"
        cure = "allow CAP_SYS_ADMIN and CAP_NET_ADMIN; in a chroot, enter the root by pivot_root"
    return Check("links and rates", True, not lacking, found, "links are veth pairs, rates are tbf's", cure)


SHAPER_CURES = {
    "netem": "modprobe sch_netem (Debian's and Ubuntu's kernels have it)",
    "nfqueue": (
        "modprobe xt_NFQUEUE nfnetlink_queue, apt-get install iptables, and NetfilterQueue for Python (make setup)"
    ),
}
"""By shaper, the one that `auto` prefers first."""


def usable_shapers(features: frozenset[str]) -> list[str]:
    """Those of `SHAPER_CURES` that work here, in their order."""
    there = {"netem": "netem" in features, "nfqueue": "nfqueue" in features and has_module("netfilterqueue")}
    return [name for name in SHAPER_CURES if there[name]]


def delay_shaper(features: frozenset[str] | None, asked: str = "auto") -> Check:
    """Whether WAN links can get their delay, by the asked shaper or by any."""
    meaning = "it gives WAN links their delay"
    if features is None:
        return Check("delay shaper", True, True, "not tried (needs root and unshare)", meaning, "")
    there = usable_shapers(features)
    found = ", ".join(f"{name} {'works' if name in there else 'does not work'}" for name in SHAPER_CURES)
    if asked == "auto":
        return Check("delay shaper", True, bool(there), found, meaning, "; or ".join(SHAPER_CURES.values()))
    other = f"; or shaper={there[0]}" if there else ""
    found = f"asked {asked}; {found}"
    return Check("delay shaper", True, asked in there, found, meaning, SHAPER_CURES[asked] + other)


def congestion_control(name: str, features: frozenset[str] | None) -> Check:
    """The one that the asked TCP profile pins."""
    ok = features is None or name in features
    found = "not tried (needs root and unshare)" if features is None else ("works" if ok else "not in this kernel")
    cure = f"modprobe tcp_{name}, or another tcp= profile"
    return Check(f"congestion control {name}", True, ok, found, "the TCP profile pins it", cure)


def clone_is_readable(clone: Path) -> Check:
    """Workers are nobody, or the clone's owner where it is closed to others; never root, who would own too much."""
    found = clone.stat()
    closed = found.st_mode & 0o005 != 0o005
    state = "closed to others" if closed else "open to all"
    meaning = "workers, who have no rights, read the code"
    cure = f"chmod -R o+rX {clone}"
    return Check("the clone", True, not (closed and found.st_uid == 0), f"{clone} is {state}", meaning, cure)


_CGROUPS = Path("/sys/fs/cgroup")


def cgroups() -> Check:
    """Version 2 at the root, or version 1 with the three controllers that limit a node."""
    version_2 = (_CGROUPS / "cgroup.controllers").exists()
    lacking = [] if version_2 else [c for c in ("cpu", "memory", "pids") if not (_CGROUPS / c).is_dir()]
    places = [_CGROUPS] if version_2 else [_CGROUPS / c for c in ("cpu", "memory", "pids") if c not in lacking]
    read_only = [str(place) for place in places if is_root() and not os.access(place, os.W_OK)]
    found = "version 2" if version_2 else "version 1"
    if lacking:
        found = f"no {', '.join(lacking)} controller"
    elif read_only:
        found = f"{', '.join(read_only)} cannot be written"
    cure = "mount the cgroup file system writable (in a container: run it privileged)"
    return Check("cgroups", True, not lacking and not read_only, found, "they limit and count each node", cure)


def overlay(features: frozenset[str] | None) -> Check:
    ok = features is None or "overlay" in features
    found = "not tried (needs root and unshare)" if features is None else ("works" if ok else "none over this root")
    cure = "a kernel with overlayfs; in a container, a root that an overlay can lie over"
    return Check("overlayfs", True, ok, found, "a node's root is an overlay over the machine's", cure)


def pressure() -> Check:
    ok = Path("/proc/pressure/cpu").exists()
    meaning = "tells whether tasks waited for a core; without it the verdict has idle time only"
    return Check("CPU pressure", False, ok, "there" if ok else "no /proc/pressure", meaning, "boot with psi=1")


def real_time() -> Check:
    """Tried on this thread, for a moment."""
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        os.sched_setscheduler(0, policy, parameters)
        ok = True
    except OSError:
        ok = False
    meaning = "keeps the delay shaper on time while training fills the cores"
    cure = "allow CAP_SYS_NICE; in a version 1 cpu cgroup set cpu.rt_runtime_us"
    return Check("SCHED_FIFO", False, ok, "permitted" if ok else "refused", meaning, cure)


def cores() -> Check:
    count = len(os.sched_getaffinity(0))
    meaning = "with one core, training and emulation disturb each other"
    return Check("CPU cores", False, count >= 2, str(count), meaning, "use two or more")


WORKER_MEMORY_BYTES = 250_000_000
"""A worker with an interpreter of its own and torch: about 220 MB, measured with 8 to 64 of them."""
SHARED_MEMORY_BYTES, FORKED_MEMORY_BYTES = 400_000_000, 46_000_000
"""The process that a training's workers are forked from, and what each adds: 3.3 GB measured with 64 and `digits`."""
HAND_MEMORY_BYTES = 5_000_000
"""A node that waits for `longhaul exec`."""


def available_memory_bytes() -> int:
    return next(
        int(line.split()[1]) * 1024
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemAvailable:")
    )


def memory(workers: int, program: str = "training") -> Check:
    by_program = {"hand": workers * HAND_MEMORY_BYTES, "training": SHARED_MEMORY_BYTES + workers * FORKED_MEMORY_BYTES}
    needed = by_program.get(program, workers * WORKER_MEMORY_BYTES)
    available = available_memory_bytes()
    found = f"{available / 1e9:.1f} GB available, {workers} workers take about {needed / 1e9:.1f} GB"
    return Check("memory", True, available >= needed, found, "a node short of memory is killed", "fewer workers")


MIN_FREE_DISK_BYTES = 200_000_000


def disk(runs_root: Path) -> Check:
    """Return the free space where runs are to lie."""
    place = runs_root.absolute()
    while not place.exists():
        place = place.parent
    usage = shutil.disk_usage(place)
    meaning = f"a run's record and logs need up to {MIN_FREE_DISK_BYTES / 1e6:.0f} MB"
    if usage.total == 0:  # such as /proc
        found = f"{place} is in a file system that stores no files"
        return Check("disk", True, False, found, meaning, "give --runs a directory on a disk")
    found = f"{format_size(usage.free)} free in {place}"
    cure = "free space, or give --runs another directory"
    return Check("disk", True, usage.free >= MIN_FREE_DISK_BYTES, found, meaning, cure)


def port(number: int) -> Check:
    """Tried as the exporter will: on loopback, connections in TIME_WAIT do not count."""
    found = "free" if number else "any free one"
    ok = True
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", number))
        except OSError as error:
            said = {errno.EADDRINUSE: "in use by another process", errno.EACCES: "only root may use it"}
            ok, found = False, said.get(error.errno or 0, error.strerror or str(error))
    cure = "give metrics_port=0 for any free one, or another number"
    return Check(f"metrics port {number}", True, ok, found, "/metrics is served there", cure)
