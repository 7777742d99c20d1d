#!/usr/bin/env bash
# What a machine with an accelerator has, and whether Longhaul works there: one table, one JSON, status 0, five minutes at
# most. With the kit of `make gpu-kit` unpacked into build/gpu-kit it needs nothing that the machine lacks; otherwise it
# takes .venv, or else the system's python3.
#
# gpu-check.sh [OUT.json]: build/gpu-check.json without.
set -euo pipefail
cd "$(dirname "$0")/.."
kit=$PWD/build/gpu-kit
python=$(command -v python3)
if [ -d "$kit/site" ]; then
    export PYTHONPATH="$kit/site:$PWD${PYTHONPATH:+:$PYTHONPATH}"
    # the machine's own commands come first; of libraries only those are taken that it lacks, since this path precedes its own
    export PATH="$PATH:$kit/system/usr/sbin:$kit/system/usr/bin:$kit/system/sbin:$kit/system/bin"
    known=$(PATH="$PATH:/sbin:/usr/sbin" ldconfig -p 2>/dev/null || true)
    mkdir -p "$kit/lacking"
    for library in "$kit"/system/usr/lib/x86_64-linux-gnu/*.so.* "$kit"/system/lib/x86_64-linux-gnu/*.so.*; do
        [ -e "$library" ] || continue
        name=${library##*/}
        case $known in *"$name "*) ;; *) ln -sf "$library" "$kit/lacking/$name" ;; esac
    done
    export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$kit/lacking"
elif [ -x .venv/bin/python ]; then
    python=.venv/bin/python
fi
exec "$python" -B scripts/gpu_check.py "$@"
