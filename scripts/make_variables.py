"""Say of variables on make's command line that a target does not read what to write instead.

    make_variables.py TARGETS "VARIABLES THAT THEY READ" "VALUE OF SET" NAME=VALUE ...

Called by the Makefile, by any Python 3 and before set-up. Prints one line a variable, with `\\n` between lines.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.dont_write_bytecode = True  # it may be called by root in a user's clone
sys.path.insert(0, str(ROOT))

from testbed.core.errors import nearest  # noqa: E402

CONFIG = ROOT / "experiments" / "conf" / "config.yaml"


def keys() -> set[str]:
    """Return the keys of a run, its groups of plug-ins among them."""
    return set(re.findall(r"^(?:  - )?([a-z_]+):", CONFIG.read_text(), re.MULTILINE)) - {"defaults", "hydra"}


def elsewhere() -> set[str]:
    """Return the variables that any target reads."""
    lists = re.findall(r"^READS_[a-z-]+ := (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return {name for line in lists for name in line.split()}


def fault(targets: str, reads: list[str], set_value: str, name: str, value: str) -> str:
    """Return the line about one variable."""
    asked = f"make {targets}: {name}={value}"
    known = f"known: {', '.join(sorted(reads))}" if reads else "it reads no variables"
    head, dot, rest = name.partition(".")
    names = {one.lower(): one for one in reads} | (dict.fromkeys(keys() - {one.lower() for one in reads}, ""))
    near = nearest(head, names if "SET" in reads else {one.lower() for one in reads})
    if near is None and name in elsewhere():
        return f"{asked}: is not read by this target; {known}"
    if near is None:
        return f"{asked}: unknown; {known}. For the environment, put it first: {name}={value} make {targets}"
    if names[near] and not dot:
        return f"{asked}: unknown; did you mean {names[near]}={value}? {known}"
    key = f"{near}.{rest}" if dot else near
    quoted = f"'{value}'" if re.search(r"\s", value) and "'" not in value else value
    both = " ".join(filter(None, [set_value, f"{key}={quoted}"]))
    return f'{asked}: is not read; write SET="{both}"'


def main(arguments: list[str]) -> None:
    targets, reads, set_value, *given = arguments
    lines = (fault(targets, reads.split(), set_value, *one.partition("=")[::2]) for one in given)
    sys.stdout.write("\\n".join(lines))


if __name__ == "__main__":
    main(sys.argv[1:])
