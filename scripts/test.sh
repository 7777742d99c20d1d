#!/usr/bin/env bash
# test.sh [all]: the tests of the first tier; with `all`, then those of the second too, and the time of each tier. Which
# tier a test is in, tests/tiers.py says.
#
# A tier takes two sessions: first the tests that share the machine, on all its cores, a file at a time so that what its
# tests share is made once; then those of tests/emulation, which build networks and need root and the cores for themselves.
set -euo pipefail
cd "$(dirname "$0")/.."
trap 'scripts/own.sh .pytest_cache .hypothesis .import_linter_cache runs' EXIT
sudo=()
[ "$(id -u)" = 0 ] || sudo=(sudo --preserve-env=PYTEST_ADDOPTS)
status=0

# With PYTEST_ADDOPTS=-x a session ends at its first failure, and no other begins.
is_over() { [ "$status" != 0 ] && [[ " ${PYTEST_ADDOPTS:-} " == *" -x "* ]]; }

sessions() {
    local waiting=0
    [ "$1" = test ] || waiting=1 # tests of the second tier wait for processes, so that there is work for one more
    # Bytecode is kept: to assemble 10,000 tests without it takes each process 10 s longer.
    env --unset=PYTHONDONTWRITEBYTECODE .venv/bin/python -m pytest --tier "$1" --numprocesses "$(($(nproc) + waiting))" --dist loadfile --no-loadscope-reorder --ignore=tests/emulation tests || status=$?
    ! is_over || return 0
    if [ "${#sudo[@]}" != 0 ] && ! command -v sudo >/dev/null; then
        echo "tests/emulation was left out: it needs root, and there is no sudo" >&2
        return
    fi
    "${sudo[@]}" .venv/bin/python -B -m pytest -p no:cacheprovider --tier "$1" tests/emulation || status=$?
}

for tier in test ${1:+"$1"}; do
    ! is_over || break
    SECONDS=0
    sessions "$tier"
    echo "tier $tier: $((SECONDS / 60)) min $((SECONDS % 60)) s"
done
exit "$status"
