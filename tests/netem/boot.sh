#!/usr/bin/env bash
# Boots user-mode Linux, which runs a command and ends; in namespaces that its caller made (a pid and a mount one).
#   boot.sh PLACE CLONE LIMIT_S OUT COMMAND...
# PLACE is an empty directory; the command runs in CLONE and writes what is to stay below $LONGHAUL_NETEM_OUT (OUT out
# here, if that is not empty). Returns the command's status, 4 if there is none.
set -euo pipefail
place=$1 clone=$2 limit_s=$3 out=$4
shift 4
MEMORY=3G

mount -t tmpfs -o mode=700,size=5g tmpfs "$place"
mkdir "$place/out" "$place/uml"
[ -z "$out" ] || mount --bind "$out" "$place/out"
cp "$clone/tests/netem/init.sh" "$place/init"
chmod 755 "$place/init"
printf '%q ' "$clone" "$limit_s" "$@" >"$place/job"
: >"$place/status"
preload=
if grep -qw amx_tile /proc/cpuinfo; then
    preload=$place/whole_xstate.so
    compiler=$(command -v cc || command -v clang || command -v clang-14) || { echo "boot.sh: on a processor with AMX user-mode Linux needs a C compiler: apt-get install gcc"; exit 4; }
    "$compiler" -O2 -shared -fPIC -o "$preload" "$clone/tests/netem/whole_xstate.c"
fi
mount -o remount,bind,ro / # the kernel in there is a program out here, and root's

# Its processes are stopped and let go by each other at every system call: on two cores each waits for the other to wake,
# which took three times as long as on one and left links of 200 Mbit/s at 60.
core=$(grep -oP '^Cpus_allowed_list:.*?\K[0-9]+$' /proc/self/status)

# The kernel takes its own options and leaves NAME=VALUE to the environment of init.
TMPDIR=$place LD_PRELOAD=$preload taskset --cpu-list "$core" linux.uml mem="$MEMORY" quiet loglevel=3 root=none rootfstype=hostfs rootflags=/ ro init="$place/init" \
    con0=null,fd:1 con=null uml_dir="$place/uml/" umid=netem LONGHAUL_PLACE="$place" </dev/null 2>&1 | cat || true
status=$(cat "$place/status")
[ -n "$status" ] || { echo "boot.sh: user-mode Linux ended before its command did; what it said is above"; exit 4; }
exit "$status"
