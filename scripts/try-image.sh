#!/usr/bin/env bash
# Builds the image longhaul-try, by the daemon that DOCKER_HOST names: this clone, its .venv, and the Debian packages
# that set-up installs, so that a privileged container of it makes runs without a network. Nothing is fetched: the
# packages are those installed here, the clone is this one with its history, at the same path, to which .venv is tied.
set -euo pipefail
export LC_ALL=C # as comm and sort agree

cd "$(dirname "$0")/.."
. scripts/image-base.sh
IMAGE=longhaul-try
START="dockerd --iptables=false --bridge=none --exec-opt native.cgroupdriver=cgroupfs"
MORE="base-files base-passwd bash coreutils dash diffutils dpkg findutils gawk grep gzip hostname libc-bin login mawk ncurses-base perl-base
sed tar python3 python3-distutils"

[ ! -e /sys/fs/cgroup/cpu/cpu.rt_runtime_us ] || START+=" --cpu-rt-runtime=950000"

say() { printf '%s\n' "try-image: $*" >&2; }
fail() { say "$*"; exit 3; }

command -v docker >/dev/null || fail "no docker command; apt-get install docker.io"
docker version --format '{{.Server.Version}}' >/dev/null 2>&1 ||
    fail "no daemon answers at ${DOCKER_HOST:-unix:///var/run/docker.sock}; start one by hand, as root: $START"
command -v dpkg-query >/dev/null && command -v apt-cache >/dev/null || fail "the image is made of Debian's packages, and this is no Debian"
[ -e .venv/longhaul-setup ] || fail "this clone is not set up; run make setup"

clone=$PWD
venv=$(realpath .venv)
packages=$(sed -n '/^PACKAGES="/,/"$/p' scripts/setup.sh | sed 's/^PACKAGES=//' | tr -d '"')
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
empty_folders "$directory/empty"
mkdir -p "$directory/empty"/var/{tmp,log,cache,lib/dpkg/info,lib/dpkg/updates,lib/dpkg/triggers}
chmod 1777 "$directory/empty/var/tmp"
{
    # shellcheck disable=SC2086
    files_of_packages $packages $MORE
    find /usr/share/doc/runc | sed 's,^/,,' # its changelog says which ways out of a container it closes
    { find /etc/alternatives -type l && find /usr/bin /usr/sbin /usr/lib -lname '/etc/alternatives/*'; } | sed 's,^/,,'
} | sort -u >"$directory/files"
# The clone's files as they are now, and its history, which a run's provenance names.
{
    git -c safe.directory="$clone" ls-files --cached --others --exclude-standard --deduplicate
    [ ! -L .venv ] || printf '%s\n' .venv
} | while IFS= read -r path; do [ ! -e "$path" ] || printf '%s\n' "${clone#/}/$path"; done >"$directory/clone"
sort -u -o "$directory/files" "$directory/files" "$directory/clone"
(cd "$directory/empty" && find . -mindepth 1 -printf '%P\n') | sort | comm -23 - "$directory/files" >"$directory/folders"
tar --create --numeric-owner \
    --no-recursion --directory="$directory/empty" --files-from="$directory/folders" \
    --directory=/ --files-from="$directory/files" \
    --recursion "${clone#/}/.git" "${venv#/}" |
    docker import --change "WORKDIR $clone" --change 'ENV LC_ALL=C.UTF-8' --change 'CMD ["make", "experiment", "TOPO=wan1g"]' \
        - "$IMAGE" >/dev/null
# Where the kernel shares out real-time by cgroups (version 1), a container has none unless it is given: the delay shaper
# needs it while training fills the cores. The daemon must have been started with as much.
realtime=""
[ ! -e /sys/fs/cgroup/cpu/cpu.rt_runtime_us ] || realtime="--cpu-rt-runtime=900000 "
say "$IMAGE: $(docker image inspect --format '{{.Size}}' "$IMAGE") bytes. A run:"
printf '%s\n' "docker run --rm --privileged $realtime--network none --tmpfs /dev/shm:exec,size=1g --volume longhaul-runs:$clone/runs $IMAGE"
