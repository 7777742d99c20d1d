#!/usr/bin/env bash
# The first process inside user-mode Linux: file systems, modules on demand, the command, power off.
# $LONGHAUL_PLACE is a directory of the machine outside: job (what to do), status and out (what came of it).
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LANG=C.UTF-8
place=$LONGHAUL_PLACE
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
for directory in /tmp /run /var; do mount -t tmpfs -o mode=755 tmpfs "$directory"; done
chmod 1777 /tmp
mkdir -p /var/tmp /run/lock /run/outside /run/kernel/lib
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t hostfs -o "$place" none /run/outside
mount -o remount,ro / 2>/dev/null

# Modules load as they are asked for, as on any machine; these lie elsewhere than modprobe looks.
ln -s /usr/lib/uml/modules /run/kernel/lib/modules
printf '#!/bin/sh\nexec /sbin/modprobe -d /run/kernel "$@"\n' >/run/kernel/modprobe
chmod 755 /run/kernel/modprobe
echo /run/kernel/modprobe >/proc/sys/kernel/modprobe

ip link set dev lo up
hostname netem
eval "set -- $(cat /run/outside/job)"
clone=$1 limit_s=$2
shift 2
if [ ! -d "$clone" ]; then # below /tmp, say, which is a new one here
    mkdir -p "$clone"
    mount -t hostfs -o "$clone" none "$clone" && mount -o remount,ro "$clone"
fi
cd "$clone" || echo 4 >/run/outside/status
echo "user-mode Linux $(uname -r), $(nproc) core, up after $(cut -d' ' -f1 /proc/uptime) s"
COLUMNS=400 LONGHAUL_NETEM_OUT=/run/outside/out timeout --signal INT --kill-after 20 "$limit_s" "$@"
echo $? >/run/outside/status
echo o >/proc/sysrq-trigger
sleep 60
