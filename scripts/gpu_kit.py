"""`make gpu-kit`: what a bare GPU machine lacks, in build/gpu-kit and as build/gpu-kit.tar.xz.

Two folders: `site`, Python packages for PYTHON on x86-64 as pip unpacks them, and `system`, Debian packages unpacked,
each with its notice under usr/share/doc. torch, numpy and what they need are the machine's own. `kit.json` says what is
in it, and why anything is not. scripts/gpu-check.sh takes it from there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KIT = ROOT / "build" / "gpu-kit"
PYTHON = "3.12"
MOST_BYTES = 48 << 20
OF_MACHINE = {"numpy", "torch", "pillow", "scikit-learn", "scipy", "joblib", "threadpoolctl", "setuptools"}
"""Left to the machine: too large, or there with torch and torchvision; the check names what is missing."""
ASIDE = {"optuna", "bayesian-optimization", "cryptography"}
"""Left out: searches over many runs and secure aggregation, which the check does not try."""
RECORD = ("duckdb", "matplotlib", "contourpy", "cycler", "fonttools", "kiwisolver", "pyparsing", "python-dateutil")
"""Needed to seal a record, at least; the rest of the analysis is not taken."""
BELOW = ("antlr4-python3-runtime", "packaging", "annotated-types", "pydantic-core", "typing-extensions")
BELOW += ("typing-inspection", "markdown-it-py", "mdurl", "pygments", "ndindex", "msgpack")
"""Needed by those that are asked for by name."""
UNUSED = ("usr/share/man", "usr/share/locale", "usr/share/bash-completion", "usr/share/lintian", "matplotlib/tests")
UNUSED += ("blosc2/lib/cmake", "blosc2/lib/pkgconfig", "ndindex/tests")
DEBIAN = ("iproute2", "iptables", "runc", "mininet", "libnetfilter-queue1", "libnfnetlink0", "libmnl0", "libbpf1")
DEBIAN += ("libxtables12", "libnftnl11", "libip4tc2", "libip6tc2", "libnetfilter-conntrack3", "libseccomp2", "libelf1")
DEBIAN += ("libcap2", "libcap2-bin", "libtirpc3")


def main() -> int:
    """Make the kit, say how large it is, and refuse one that is too large; return the exit status."""
    shutil.rmtree(KIT, ignore_errors=True)
    (KIT / "site").mkdir(parents=True)
    told = {"python": PYTHON, "packages": python_packages(), "debian": debian_packages(), "left_out": source_packages()}
    slim()
    (KIT / "kit.json").write_text(json.dumps(told, indent=1) + "\n")
    archive = KIT.with_name("gpu-kit.tar.xz")
    subprocess.run(["tar", "-C", KIT.parent, "-cJf", archive, KIT.name], check=True)
    size_bytes = archive.stat().st_size
    print(f"{archive}: {size_bytes / 2**20:.1f} MiB of {MOST_BYTES >> 20}; left out: {told['left_out'] or 'nothing'}")
    return 1 if size_bytes > MOST_BYTES else 0


def slim() -> None:
    """Remove what is not run: manuals, tests, symbols for debuggers."""
    for part in UNUSED:
        for folder in (KIT / "system" / part, KIT / "site" / part):
            shutil.rmtree(folder, ignore_errors=True)
    libraries = [path for path in KIT.rglob("*.so*") if path.is_file() and not path.is_symlink()]
    subprocess.run(["strip", "--strip-unneeded", *libraries], check=True)


def pins() -> dict[str, str]:
    """Return the locked version of each package."""
    lines = (ROOT / "requirements" / "lock.txt").read_text().splitlines()
    found = (re.match(r"([A-Za-z0-9_.-]+)==(\S+)", line) for line in lines)
    return {match[1].lower(): match[2] for match in found if match}


def wanted() -> list[str]:
    """Return the packages of the orchestrator and of the worker, and what those need, by their pins."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = [re.split(r"[=\[]", pin)[0].lower() for side in ("orchestrator", "worker") for pin in extras[side]]
    names = dict.fromkeys(name.replace("_", "-").replace(".", "-") for name in [*asked, *RECORD, *BELOW])
    return [name for name in names if name not in OF_MACHINE | ASIDE]


def python_packages() -> list[str]:
    """Unpack wheels into `site`; return them as pins."""
    locked = pins()
    found = {name: f"{name}=={locked[name]}" for name in wanted() if name not in _SOURCES}
    binary = ["--only-binary=:all:", "--python-version", PYTHON, "--implementation", "cp"]
    binary += [f"--platform=manylinux_{minor}_x86_64" for minor in ("2_34", "2_28", "2_27", "2_17")]
    binary += ["--platform=manylinux2014_x86_64"]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target", KIT / "site"]
    subprocess.run([*command, *binary, *(pin for name, pin in found.items() if name not in _PURE_SOURCES)], check=True)
    subprocess.run([*command, *(pin for name, pin in found.items() if name in _PURE_SOURCES)], check=True)
    return list(found.values())


_PURE_SOURCES = {"antlr4-python3-runtime"}
"""Published as source alone, without anything to compile."""
_SOURCES = {"netfilterqueue"}
"""Published as source, and compiled for one Python."""


def source_packages() -> dict[str, str]:
    """Compile NetfilterQueue where there is the kit's Python with its headers; return what is left out, and why."""
    python = interpreter()
    reason = f"it is compiled, and there is no python{PYTHON} here; the check then needs netem on the machine"
    if python is None:
        return {"netfilterqueue": reason}
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([python, "-m", "venv", scratch], check=True)
        inner = Path(scratch, "bin", "python")
        pin = f"netfilterqueue=={pins()['netfilterqueue']}"
        done = subprocess.run(
            [inner, "-m", "pip", "install", "--quiet", "--no-deps", "--target", KIT / "site", pin],
            capture_output=True,
            text=True,
            check=False,
        )
    said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    return {} if done.returncode == 0 else {"netfilterqueue": f"it does not compile: {said}"}


def interpreter() -> Path | None:
    """Return the kit's Python on this machine: pyenv's command of that name answers only where a version is chosen."""
    name = f"python{PYTHON}"
    found = [Path(folder, name) for folder in os.environ.get("PATH", "").split(":")]
    found += sorted((Path.home() / ".pyenv" / "versions").glob(f"{PYTHON}*/bin/{name}"))
    for path in filter(Path.is_file, found):
        tried = subprocess.run([path, "-c", "import ensurepip"], capture_output=True, check=False)
        if tried.returncode == 0:
            return path
    return None


def debian_packages() -> list[str]:
    """Unpack Debian packages into `system`; return their files' names, which have the versions."""
    with tempfile.TemporaryDirectory() as scratch:
        command = ["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", *DEBIAN]
        subprocess.run(command, cwd=scratch, check=True)
        files = sorted(Path(scratch).glob("*.deb"))
        for file in files:
            subprocess.run(["dpkg-deb", "-x", file, KIT / "system"], check=True)
        # Mininet is Debian's alone, a package of Python that is found by the interpreter it was made for
        shutil.copytree(KIT / "system/usr/lib/python3/dist-packages/mininet", KIT / "site" / "mininet")
        return [file.name for file in files]


if __name__ == "__main__":
    sys.exit(main())
