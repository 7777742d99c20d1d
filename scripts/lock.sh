#!/usr/bin/env bash
# Writes requirements/lock.txt (every package but torch, with hashes), requirements/build.txt, requirements/torch.txt and
# requirements/tools.txt (what this script itself installs) from the extras of pyproject.toml. Run it after a change of a
# pin, with a network. Why torch is apart: docs/decisions/0003.
set -euo pipefail
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
/usr/bin/python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install --quiet --require-hashes --requirement requirements/tools.txt
echo "pip-tools==7.6.2" >"$scratch/tools.in"

"$scratch/venv/bin/python" - "$scratch" <<'PYTHON'
import pathlib, sys, tomllib

project = tomllib.loads(pathlib.Path("pyproject.toml").read_text())
extras = project["project"]["optional-dependencies"]
pins = {pin for extra in extras.values() for pin in extra}
torch = {pin for pin in pins if pin.startswith("torch==")}
# What every build of torch needs; locked here, so that the step that installs torch fetches these from nowhere else.
needs = {"filelock", "fsspec", "jinja2", "markupsafe", "mpmath", "networkx", "sympy", "typing-extensions"}
build = set(project["build-system"]["requires"] + project["dependency-groups"]["build"])
scratch = pathlib.Path(sys.argv[1])
(scratch / "lock.in").write_text("\n".join(sorted(pins - torch | needs | build)) + "\n")
(scratch / "build.in").write_text("\n".join(sorted(build)) + "\n")
pathlib.Path("requirements/torch.txt").write_text("\n".join(sorted(torch)) + "\n")
PYTHON

for name in build lock tools; do
    {
        echo "# Written by scripts/lock.sh from pyproject.toml; do not edit."
        # No index is named here: each machine's own pip settings say where packages come from, the hashes say which.
        "$scratch/venv/bin/pip-compile" --quiet --generate-hashes --allow-unsafe --no-header --no-annotate \
            --strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options \
            --output-file "$scratch/$name.txt" "$scratch/$name.in" >/dev/null
        sed '/^$/d; /^# The following packages/d' "$scratch/$name.txt"
    } >"$scratch/$name.out"
    mv "$scratch/$name.out" "requirements/$name.txt"
done
