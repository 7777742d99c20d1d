#!/usr/bin/env bash
# All tests but the slow ones. Those of tests/emulation need root: without it they run in a second session, through sudo.
set -euo pipefail
cd "$(dirname "$0")/.."
trap 'scripts/own.sh .pytest_cache .hypothesis .import_linter_cache runs' EXIT

pytest() { "${sudo[@]}" .venv/bin/python -B -m pytest -m "not slow" "$@"; }

sudo=()
if [ "$(id -u)" = 0 ]; then
    pytest
elif ! command -v sudo >/dev/null; then
    pytest
    echo "tests/emulation was left out: it needs root, and there is no sudo" >&2
else
    status=0
    pytest --ignore=tests/emulation || status=$?
    sudo=(sudo)
    pytest -p no:cacheprovider tests/emulation || status=$?
    exit "$status"
fi
