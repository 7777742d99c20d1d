#!/usr/bin/env bash
# All tests but the slow ones, in two sessions: first those that share the machine, on all its cores; then those of
# tests/emulation, which build networks and need root and the cores for themselves.
set -euo pipefail
cd "$(dirname "$0")/.."
trap 'scripts/own.sh .pytest_cache .hypothesis .import_linter_cache runs' EXIT

pytest() { "${sudo[@]}" .venv/bin/python -B -m pytest -m "not slow" "$@"; }

status=0
sudo=()
pytest --numprocesses auto --dist worksteal --ignore=tests/emulation --ignore=tests/netem tests || status=$?
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "tests/emulation was left out: it needs root, and there is no sudo" >&2
        exit "$status"
    fi
    sudo=(sudo)
fi
pytest -p no:cacheprovider tests/emulation || status=$?
exit "$status"
