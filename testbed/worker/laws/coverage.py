"""`python -m testbed.worker.laws.coverage NAME`: one decoder under atheris, which sees where its Python code went.

Needs atheris, which setup does not install: `pip install atheris==3.0.0`. Ends at the first find, which it writes into
the corpus. Only what is imported while atheris watches is seen, so that this module imports nothing of ours before.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Sequence

from testbed.core.errors import EXIT_COMPLETED, EXIT_MACHINE


def main(arguments: Sequence[str]) -> int:
    """Arguments: a name of the catalogue, seconds. Ends the process, with status 77 where something was found."""
    name, seconds = arguments[0], float(arguments[1]) if len(arguments) > 1 else 60.0
    try:
        atheris = importlib.import_module("atheris")
    except ModuleNotFoundError:
        sys.stderr.write("atheris is not installed: .venv/bin/pip install atheris==3.0.0\n")
        return EXIT_MACHINE
    with atheris.instrument_imports(include=["compressors"]):
        from testbed.worker.laws import fuzz
        from testbed.worker.laws.cases import malformed

        against = fuzz.opponent(name)
    against.meet(against.sound()[0], name)  # starts what it needs before memory is limited
    folder = fuzz.CORPUS / name
    folder.mkdir(parents=True, exist_ok=True)

    def one(data: bytes) -> None:
        with malformed.memory_limit(malformed.MEMORY_BYTES):
            against.meet(data, name)

    flags = [f"-max_total_time={int(seconds)}", f"-artifact_prefix={folder}/", "-max_len=8192", "-rss_limit_mb=4096"]
    # The first directory is libFuzzer's to write what it learnt into; what is kept is the corpus, read as the second.
    with tempfile.TemporaryDirectory(prefix="longhaul-fuzz-") as learnt:
        atheris.Setup([sys.argv[0], *flags, learnt, str(folder)], one)
        atheris.Fuzz()
    return EXIT_COMPLETED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
