#!/usr/bin/env bash
# The tests of the netem shaper, on a kernel that has it: Debian's user-mode Linux, a kernel that runs as a program. Its
# file system is this machine's, read-only; it has no network. Arguments go to pytest, which runs all of tests/netem
# unless one of them is a path of tests.
#
#   LONGHAUL_NETEM_OUT=DIR   keeps what the tests write: junit.xml, rates.json
#   LONGHAUL_NETEM_LIMIT_S   seconds after which all is ended, 840 by default
#
# Nothing stays behind, whatever ends this: the kernel's memory, its files and its processes live in a mount and a pid
# namespace that end with this script.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || exec sudo --preserve-env=LONGHAUL_NETEM_OUT,LONGHAUL_NETEM_LIMIT_S -- "$PWD/scripts/test-netem.sh" "$@"

LIMIT_S=${LONGHAUL_NETEM_LIMIT_S:-840}
LOCK_LIMIT_S=600
PACKAGE=user-mode-linux # 41 MB to fetch, 116 MB installed

say() { printf 'test-netem: %s\n' "$*" >&2; }
fail() {
    say "$@"
    exit 3
}

if ! command -v linux.uml >/dev/null || [ ! -d /usr/lib/uml/modules ]; then
    command -v apt-get >/dev/null || fail "this needs Debian's package $PACKAGE (linux.uml and its modules), and there is no apt-get"
    say "installing $PACKAGE"
    apt-get install -y -qq --no-install-recommends "$PACKAGE" >/dev/null || fail "apt-get install $PACKAGE failed: see above"
fi
[ -x .venv/bin/python ] || fail "there is no .venv: make setup"

place=/run/longhaul/.netem # where the namespace mounts its own file system; outside it stays empty
mkdir -p "$place"
exec 9>/run/longhaul/machine.lock
setpriv --pdeathsig KILL flock -w "$LOCK_LIMIT_S" 9 || fail "another run has held this machine for $LOCK_LIMIT_S s"
out=
[ -z "${LONGHAUL_NETEM_OUT:-}" ] || { mkdir -p "$LONGHAUL_NETEM_OUT"; out=$(readlink -f "$LONGHAUL_NETEM_OUT"); }

[[ " $*" == *" tests/"* ]] || set -- tests/netem "$@"
set -- .venv/bin/python -B -m pytest -v --tb=short --durations=0 --durations-min=1 --color=no -p no:cacheprovider \
    -p no:hypothesispytest --junit-xml=/run/outside/out/junit.xml "$@"

# Each of these ends with its parent, so a killed script takes all with it.
exec 8< <(
    exec setpriv --pdeathsig KILL timeout --foreground --signal KILL "$LIMIT_S" \
        setpriv --pdeathsig KILL unshare --pid --fork --kill-child --mount --net --ipc --mount-proc --propagation private \
        bash tests/netem/boot.sh "$place" "$PWD" "$((LIMIT_S - 30))" "$out" "$@" 2>&1 </dev/null
)
guest=$!
last=nothing
while IFS= read -r line <&8 || [ -n "$line" ]; do
    printf '%s\n' "$line"
    [ -z "$line" ] || last=$line
done
status=0
wait "$guest" || status=$?
if [ "$status" = 137 ]; then
    say "ended after $LIMIT_S s; the last it said: $last"
fi
exit "$status"
