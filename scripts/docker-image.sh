#!/usr/bin/env bash
# Builds the image of the docker runtime's nodes from docker/worker.Dockerfile, by the daemon that DOCKER_HOST names.
# Its base is pulled; where no registry can be reached, it is made of the Debian packages that are installed here, by
# their own lists of files, so that nothing else of this machine gets into it. BASE=NAME names another base.
set -euo pipefail

cd "$(dirname "$0")/.."
. scripts/image-base.sh
IMAGE=longhaul-worker
BASE=${BASE:-debian:12-slim}
LOCAL_BASE=longhaul-base
LOCAL_PACKAGES="base-files base-passwd bash coreutils dash dpkg findutils grep sed libc-bin python3 python3-distutils iproute2
fonts-comfortaa fonts-dejavu-core fonts-dosis fonts-dustin fonts-freefont-ttf fonts-jura
fonts-linuxlibertine fonts-oldstandard fonts-open-sans fonts-sil-gentium-basic libstdc++6 libgomp1"
START="dockerd --iptables=false --bridge=none --exec-opt native.cgroupdriver=cgroupfs"

say() { printf '%s\n' "docker-image: $*" >&2; }
fail() { say "$*"; exit 3; }

make_local_base() {
    command -v dpkg-query >/dev/null && command -v apt-cache >/dev/null ||
        fail "no base: $BASE cannot be pulled, and this machine is no Debian to make one of; BASE=NAME names an image the daemon has"
    grep -q '^VERSION_ID="12"' /etc/os-release ||
        fail "no base: $BASE cannot be pulled, and a base of this machine would be no Debian 12; BASE=NAME names one"
    say "$BASE cannot be pulled; made of the packages installed here instead"
    directory=$(mktemp -d) # global: the trap comes after this function
    trap 'rm -rf "$directory"' EXIT
    list=$directory/files
    # shellcheck disable=SC2086
    files_of_packages $LOCAL_PACKAGES >"$list"
    empty_folders "$directory/empty"
    tar --create --no-recursion --numeric-owner --directory=/ --files-from="$list" \
        --directory="$directory/empty" proc sys dev tmp run root |
        docker import - "$LOCAL_BASE" >/dev/null
    BASE=$LOCAL_BASE
}

command -v docker >/dev/null || fail "no docker command; apt-get install docker.io"
docker version --format '{{.Server.Version}}' >/dev/null 2>&1 ||
    fail "no daemon answers at ${DOCKER_HOST:-unix:///var/run/docker.sock}; start one by hand, as root: $START"
if ! docker image inspect "$BASE" >/dev/null 2>&1 && ! timeout 120 docker pull --quiet "$BASE" >/dev/null 2>&1; then
    make_local_base
fi
# the daemon has no bridge, so what a step needs of the network it gets from the host's
DOCKER_BUILDKIT=0 docker build --quiet --network host --build-arg "BASE=$BASE" --file docker/worker.Dockerfile --tag "$IMAGE" docker >/dev/null
say "$IMAGE: $(docker image inspect --format '{{.Size}}' "$IMAGE") bytes, from $BASE"
