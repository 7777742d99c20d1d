#!/usr/bin/env bash
# Longhaul under Debian 13, whatever system this machine has: a root by debootstrap, entered by pivot_root with mount,
# network, pid and other namespaces of its own. The kernel is this machine's.
#
# debian13.sh [--fresh] [COMMAND...]: set-up, then the command; without one the README's run, and the tests of the core
# and the compressors. Set-up has this machine's network, to fetch packages; all else has a network namespace of its own.
#
#   LONGHAUL_DEBIAN13=DIR     where the root lies, about 4 GB; /var/cache/longhaul/debian13 by default. It is kept: a
#                             second call makes nothing anew. --fresh removes it first.
#   LONGHAUL_DEBIAN13_LIMIT_S seconds after which all is ended where no command is given, 600 by default
#
# Where Debian 13's packages cannot be had this says so, and ends with status 0.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || exec sudo --preserve-env=LONGHAUL_DEBIAN13,LONGHAUL_DEBIAN13_LIMIT_S -- "$PWD/scripts/debian13.sh" "$@"

SUITE=trixie
LOCK_LIMIT_S=600
place=${LONGHAUL_DEBIAN13:-/var/cache/longhaul/debian13}
LIMIT_S=${LONGHAUL_DEBIAN13_LIMIT_S:-600}
README_RUN="make experiment TOPO=wan1g"
TESTS=".venv/bin/python -m pytest --tier test --numprocesses $(nproc) --dist loadfile tests/unit/core tests/unit/compressors tests/contract"

say() { printf 'debian13: %s\n' "$*" >&2; }
leave_out() {
    say "left out: $*"
    exit 0
}
took() { # since the start; the processor's time says what a busy machine would hide
    times >"$place.times"
    say "$1: $((SECONDS / 60)) min $((SECONDS % 60)) s since the start," \
        "$(awk 'NR == 2 { split($1, user, /[ms]/); split($2, sys, /[ms]/); printf "%d", 60 * (user[1] + sys[1]) + user[2] + sys[2] }' "$place.times") s of processor"
}

mirror() { # of this machine's own settings; debootstrap's own default where they name none of Debian's
    apt-get indextargets --format '$(LABEL) $(SITE)' 'Created-By: Packages' 2>/dev/null | sed -n 's/^Debian //p' | head -1 || true
}

make_root() {
    local from
    if ! command -v debootstrap >/dev/null; then
        command -v apt-get >/dev/null || leave_out "there is no debootstrap, and no apt-get to install it with"
        say "installing debootstrap"
        apt-get install -y -qq --no-install-recommends debootstrap >/dev/null || leave_out "apt-get install debootstrap failed (above)"
    fi
    from=$(mirror)
    from=${from:-$(sed -n 's/^DEF_MIRROR="\(.*\)"/\1/p' "$(command -v debootstrap)")}
    wget -q --timeout=30 --tries=2 -O /dev/null "$from/dists/$SUITE/Release" || leave_out "${from:-a mirror} has no Debian 13, or cannot be reached"
    say "making Debian 13's root in $place"
    rm -rf "$place.making"
    timeout "$LIMIT_S" debootstrap --variant=minbase --include=ca-certificates,make "$SUITE" "$place.making" "$from" >"$place.log" 2>&1 ||
        { tail -5 "$place.log" >&2; say "debootstrap failed: $place.log"; exit 3; }
    mv "$place.making" "$place"
    took "root made"
}

# The files of this clone, as they are now; what set-up and runs have made in the root stays.
copy_clone() {
    local clone=$place/longhaul
    mkdir -p "$clone"
    find "$clone" -mindepth 1 -maxdepth 1 ! -name .venv ! -name .venv.lock ! -name '*.egg-info' ! -name runs -exec rm -rf {} +
    git -c safe.directory="$PWD" ls-files -z --cached --others --exclude-standard --deduplicate |
        while IFS= read -r -d '' path; do [ ! -e "$path" ] || printf '%s\0' "$path"; done |
        tar --create --no-recursion --owner=0 --group=0 --null --files-from=- | tar --extract --directory "$clone"
}

# What pip's own settings name here, so that pip finds it there: its files, and paths and file: addresses in them. The
# pages of an index may link to what lies beside it.
pip_paths() {
    local pip=(/usr/bin/python3 -m pip)
    "${pip[@]}" --version >/dev/null 2>&1 || pip=(.venv/bin/python -m pip)
    {
        "${pip[@]}" config debug | sed -n 's/^ *\(\/.*\), exists: True$/\1/p'
        "${pip[@]}" config list | grep -o "['\" ]/[^'\" ]*" | cut -c2-
        "${pip[@]}" config list | grep -o "file://[^'\" ]*" | sed 's,^file://,,; s,/[^/]*/*$,,' | grep .
        printf '%s\n' /etc/resolv.conf
    } | sort -u | while IFS= read -r path; do [ ! -e "$path" ] || printf '%s\n' "$path"; done
}

enter() { # enter SECONDS|0 [--net] COMMAND...
    local limit_s=$1 net=()
    shift
    [ "$1" != --net ] || { net=(--net) && shift; }
    # each ends with its parent, so a killed script takes all with it
    setpriv --pdeathsig KILL timeout --foreground --signal KILL "$limit_s" \
        setpriv --pdeathsig KILL unshare --mount "${net[@]}" --pid --fork --kill-child --ipc --uts --propagation private \
        bash scripts/enter-root.sh "$place" "$place.bound" "$@"
}

end_children() { # a signal ends this script before what it waits for
    local children=()
    read -r -a children <"/proc/$$/task/$$/children" || true
    [ ${#children[@]} = 0 ] || kill -KILL "${children[@]}" 2>/dev/null || true
}

# Runs make their cgroups in this machine's hierarchies, where they outlive who ends all processes in the root at once.
remove_groups() {
    local run group left
    for _ in {1..50}; do # processes may be about to end
        left=()
        for run in "$place"/longhaul/runs/2*T*Z-*/; do
            for group in /sys/fs/cgroup/{,*/}longhaul-"$(basename "$run")"-*; do
                [ ! -d "$group" ] || [ -L "${group%/*}" ] || rmdir "$group" 2>/dev/null || left+=("$group")
            done
        done
        [ ${#left[@]} != 0 ] || return 0
        sleep 0.1
    done
    say "left behind: ${left[*]}"
}

step() { # step NAME ENTER'S ARGUMENTS: with the time that is left
    local name=$1 left_s=0 status=0
    shift
    [ "$LIMIT_S" = 0 ] || left_s=$((LIMIT_S - SECONDS > 1 ? LIMIT_S - SECONDS : 1))
    enter "$left_s" "$@" || status=$?
    [ "$status" != 137 ] || say "$name: ended, $LIMIT_S s are over"
    [ "$status" = 0 ] || { say "$name: status $status"; exit "$status"; }
    took "$name"
}

SECONDS=0
mkdir -p "$(dirname "$place")" /run/longhaul
exec 8>"$place.lock"
flock -n 8 || { say "another call has $place"; exit 3; }
remove_groups # of a call that was killed
trap 'end_children; remove_groups' EXIT
[ "${1:-}" != --fresh ] || { shift; rm -rf "$place"; }
[ $# = 0 ] || LIMIT_S=0
[ -d "$place" ] || make_root
copy_clone
pip_paths >"$place.bound"
step set-up make setup
exec 9>/run/longhaul/machine.lock # a run here has the machine to itself, and so has one there
setpriv --pdeathsig KILL flock -w "$LOCK_LIMIT_S" 9 || { say "another run has held this machine for $LOCK_LIMIT_S s"; exit 3; }
if [ $# != 0 ]; then
    step "$*" --net "$@"
else
    # An `invalid` verdict, for which make fails too, says how busy this machine is; that the run completes is what counts.
    step "$README_RUN" --net bash -c "$README_RUN || .venv/bin/longhaul list topo=wan1g status=completed since=30m --csv | grep -q completed"
    # shellcheck disable=SC2086
    step "tests of core and compressors" --net $TESTS
fi
