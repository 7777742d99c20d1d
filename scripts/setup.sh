#!/usr/bin/env bash
# Installs what this machine lacks: Debian packages, then .venv with the pinned Python packages. A second call returns at
# once. Nothing outside Debian's packages and this tree's .venv is changed.
#
# setup.sh [browser]: with `browser` Chromium too, with which the tests look at pages; nothing else needs it.
set -euo pipefail
cd "$(dirname "$0")/.."

PACKAGES="clang fonts-comfortaa fonts-dejavu-core fonts-dosis fonts-dustin fonts-freefont-ttf fonts-jura fonts-linuxlibertine
fonts-oldstandard fonts-open-sans fonts-sil-gentium-basic gcc git iperf3 iproute2 iptables iputils-ping kmod libc6-dev
libbpf1 libnetfilter-queue-dev make mininet mount procps prometheus python3-dev python3-venv runc util-linux"
PACKAGES=${PACKAGES//$'\n'/ }
BROWSER="" # as package and as command, where it is asked for
PYTHON=/usr/bin/python3 # Debian's mininet is seen by this one alone; another python3 may come first on PATH
STAMP=.venv/longhaul-setup
MODULES="testbed compressors dashboards topologies longhaul experiments"
POLICY=/usr/sbin/policy-rc.d
POLICY_MARK="# put here by longhaul's setup while it installs packages"
LOCKED_MB=291 # what pip fetches for requirements/lock.txt on x86-64

say() { printf 'setup: %s\n' "$*" >&2; }
fail() {
    say "$@"
    exit 3
}

# Of all that decides what is installed and where; a tree that was moved has a broken .venv and is set up anew.
fingerprint() {
    { pwd; cat scripts/setup.sh requirements/*.txt testbed/__init__.py; sed -n '/^\[project/,/^\[tool/p' pyproject.toml; } | sha256sum | cut -d' ' -f1
}

missing_packages() {
    local present package
    # shellcheck disable=SC2086
    present=$(dpkg-query -W -f='${Package} ${db:Status-Abbrev}\n' $PACKAGES 2>/dev/null | sed -n 's/ ii *$//p' || true)
    for package in $PACKAGES; do
        case $'\n'"$present"$'\n' in *$'\n'"$package"$'\n'*) ;; *) printf '%s ' "$package" ;; esac
    done
}

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# What we need by what it does, for systems whose package names we do not know.
missing_commands() {
    local name
    for name in gcc git ip iptables make mnexec mount prometheus promtool runc sysctl unshare $BROWSER; do command -v "$name" >/dev/null || printf '%s ' "$name"; done
    [ -e /usr/include/libnetfilter_queue/libnetfilter_queue.h ] || printf 'libnetfilter_queue.h '
    "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null || printf 'python3-venv '
    "$PYTHON" -c 'import mininet' 2>/dev/null || printf 'mininet '
    [ -e "$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ] || printf 'Python.h '
}

check_system() {
    local system lacking
    # shellcheck disable=SC1091
    system=$(. /etc/os-release 2>/dev/null && printf '%s %s' "${ID:-unknown}" "${VERSION_ID:-}" || printf 'unknown')
    [ "$(uname -s)" = Linux ] || fail "this is $(uname -s): the emulation needs Linux's network namespaces. Use a machine with Debian 12 or 13."
    case $system in
        "debian 12" | "debian 13") ;;
        "ubuntu 24.04")
            say "this is $system, whose packages have Debian's names: it should work, and nobody has tried"
            [ -z "$BROWSER" ] || fail "Ubuntu has Chromium as a snap alone, which sees no files of ours: call setup without it"
            ;;
        *) say "this is $system; Debian 12 and 13 are what is tested, the rest is best effort" ;;
    esac
    if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
        [ -x "$PYTHON" ] || fail "$system has no apt and no $PYTHON; setup installs on Debian only"
        lacking=$(missing_commands)
        [ -z "$lacking" ] || fail "$system has no apt. Install by hand, then call this again: $lacking"
    fi
}

check_python() {
    local version
    version=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || printf none)
    case $version in
        3.11 | 3.12 | 3.13) ;;
        *) fail "$PYTHON is Python $version; the pins are for 3.11 to 3.13, as Debian 12, Ubuntu 24.04 and Debian 13 have" ;;
    esac
}

# Debian starts a service when it is installed. We start Prometheus ourselves, with our own data and on the same port
# (make dashboard LIVE=1), so its service is refused a start while we install and disabled afterwards. A machine that has
# a policy of its own keeps it.
forbid_start() {
    if [ -e "$POLICY" ] && ! grep -qF "$POLICY_MARK" "$POLICY"; then return 0; fi
    as_root tee "$POLICY" >/dev/null <<POLICY_END
#!/bin/sh
$POLICY_MARK
case "\$1" in prometheus|prometheus.service) exit 101 ;; esac
exit 0
POLICY_END
    as_root chmod 755 "$POLICY"
}

allow_start() {
    if [ -e "$POLICY" ] && grep -qF "$POLICY_MARK" "$POLICY"; then as_root rm -f "$POLICY"; fi
}

apt() { as_root env DEBIAN_FRONTEND=noninteractive LC_ALL=C apt-get -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@"; }

update_lists() {
    say "reading Debian's package lists"
    apt update -q -o APT::Update::Error-Mode=any >&2 ||
        fail "apt-get update failed (above). Without a network nothing can be installed; missing: $1"
}

install_packages() {
    local missing=$1 size had_prometheus=1 updated=0
    if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
        fail "not root, and no sudo. Ask root for: apt-get install --no-install-recommends $missing"
    fi
    case " $missing " in *" prometheus "*) had_prometheus=0 ;; esac
    # shellcheck disable=SC2086
    if ! apt install -s -qq --no-install-recommends $missing >/dev/null 2>&1; then
        update_lists "$missing"
        updated=1
    fi
    # shellcheck disable=SC2086
    size=$(apt install --assume-no --no-install-recommends $missing 2>/dev/null | sed -n 's/^Need to get \(.*\) of archives.*/\1/p' || true)
    say "to be installed from Debian (${size:-size unknown} to download): $missing"
    trap allow_start EXIT
    trap 'exit 130' INT TERM HUP
    forbid_start
    # shellcheck disable=SC2086
    if ! apt install -y -qq --no-install-recommends $missing >&2; then
        # Old package lists name files that are gone; new ones may help, once.
        [ "$updated" = 0 ] || fail "apt-get install failed (above); missing: $missing"
        update_lists "$missing"
        # shellcheck disable=SC2086
        apt install -y -qq --no-install-recommends $missing >&2 || fail "apt-get install failed (above); missing: $missing"
    fi
    allow_start
    if [ "$had_prometheus" = 0 ] && [ -d /run/systemd/system ]; then
        as_root systemctl disable --now --quiet prometheus.service || say "could not disable prometheus.service; make dashboard LIVE=1 wants its port 9090"
    fi
}

pip() {
    .venv/bin/python -m pip --disable-pip-version-check install --no-input --progress-bar off --quiet "$@" >&2 ||
        fail "pip failed (above). If it found no index: this step needs a network, or package files that pip's own settings name." \
            "What has been installed stays unused until setup ends; run it again."
}

install_python() {
    say "to be fetched by pip: about $LOCKED_MB MB of pinned packages, and $(cat requirements/torch.txt)" \
        "(about 200 MB as a CPU build; PyPI's default build brings NVIDIA's libraries, several GB)"
    # Without a stamp the last setup did not end: what is there may be half a package.
    if [ -e "$STAMP" ]; then "$PYTHON" -m venv --system-site-packages .venv; else "$PYTHON" -m venv --clear --system-site-packages .venv; fi
    rm -f "$STAMP"
    # Built without isolation, so that the two packages that come as source are built by the locked setuptools.
    # The system's packages are in sight: where the lock names another version, pip puts ours into .venv, which wins.
    export PIP_ROOT_USER_ACTION=ignore
    pip --require-hashes -r requirements/build.txt
    pip --require-hashes --no-build-isolation --use-pep517 -r requirements/lock.txt
    pip -r requirements/torch.txt
    # until 1.0 the clone's own distribution bore the name that the wheel for reading runs has now
    .venv/bin/python -m pip uninstall --quiet --yes longhaul 2>/dev/null || true
    pip --no-deps --no-build-isolation --editable .
    .venv/bin/python -c 'import blosc2, cryptography, hydra, mininet.net, netfilterqueue, numpy, PIL, pyroute2, pysz, rich, sklearn, torch
import zfpy, zstandard' ||
        fail "the packages are there but do not import (above)"
    # What runs under sudo reads caches of modules and writes none, which would be root's.
    .venv/bin/python -m compileall -q $MODULES
}

main() {
    local wanted missing=""
    case "$*" in
        "") ;;
        browser) BROWSER=chromium PACKAGES="$PACKAGES chromium" ;;
        *) printf 'usage: setup.sh [browser]\n' >&2; exit 2 ;;
    esac
    wanted=$(fingerprint)
    if command -v dpkg-query >/dev/null; then
        missing=$(missing_packages)
    elif [ -n "$BROWSER" ] && ! command -v "$BROWSER" >/dev/null; then
        check_system
    fi
    if [ -z "$missing" ] && [ -e "$STAMP" ] && [ "$(cat "$STAMP")" = "$wanted" ]; then return 0; fi

    exec 9>.venv.lock
    flock 9 # two setups of one tree at a time would tread on each other
    if [ -z "$missing" ] && [ -e "$STAMP" ] && [ "$(cat "$STAMP")" = "$wanted" ]; then return 0; fi
    check_system
    [ ! -x "$PYTHON" ] || check_python
    [ -z "$missing" ] || install_packages "$missing"
    check_python
    if ! [ -e "$STAMP" ] || [ "$(cat "$STAMP")" != "$wanted" ]; then
        install_python
        printf '%s\n' "$wanted" >"$STAMP"
        scripts/own.sh .venv .venv.lock longhaul_testbed.egg-info
        find $MODULES -name __pycache__ -exec scripts/own.sh {} +
    fi
    say "ready"
}

main "$@"
