#!/usr/bin/env bash
# enter-root.sh ROOT BOUND COMMAND...: a command in another system's root, entered by pivot_root. To be called in mount
# and pid namespaces of its own (scripts/debian13.sh); of this machine it sees devices, cgroups, and the paths that the
# file BOUND names, one a line, read-only and where they lie here.
set -euo pipefail
root=$1 bound=$2
shift 2

mount --bind "$root" "$root"
while IFS= read -r path; do
    if [ -d "$path" ]; then mkdir -p "$root$path"; else mkdir -p "$(dirname "$root$path")" && touch "$root$path"; fi
    mount --bind "$path" "$root$path"
    mount -o remount,bind,ro "$root$path"
done <"$bound"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys" # of this network namespace
mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
ip link set dev lo up
hostname debian13 # of a namespace of its own: what nobody can look up takes torchrun minutes, without a network
grep -qs debian13 "$root/etc/hosts" || printf '127.0.0.1 localhost\n127.0.1.1 debian13\n' >>"$root/etc/hosts"

cd "$root"
mkdir -p .outside
pivot_root . .outside
umount -l /.outside
cd /longhaul
settings=()
for name in TERM "${!PIP_@}" http_proxy https_proxy no_proxy; do
    [ -z "${!name:-}" ] || settings+=("$name=${!name}")
done
exec env -i HOME="$HOME" LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${settings[@]}" "$@"
