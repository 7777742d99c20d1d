"""`python -m tests.fuzzing`: hostile bytes for all decoders of the catalogue and all readers, half the time each."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from testbed.core.errors import EXIT_COMPLETED, EXIT_INPUT
from testbed.worker.laws import fuzz
from testbed.worker.laws.cases.malformed import Opponent
from testbed.worker.plugins import compressor_catalogue
from tests.fuzzing.readers import CORPUS, READERS


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing", description=__doc__)
    known = [*compressor_catalogue.names(), *READERS]
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a compressor or a reader; all where none is given")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--payloads", type=int, default=None, help="of each job, at most")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=None, help="other bytes every time where none is given")
    parser.add_argument("--write-seeds", action="store_true", help="into the corpus, a few for each; then end")
    asked = parser.parse_args(arguments)
    if unknown := sorted(set(asked.names) - set(known)):
        sys.stderr.write(f"{', '.join(unknown)}: unknown; known: {', '.join(known)}\n")
        return EXIT_INPUT
    if asked.write_seeds:
        for name in asked.names or known:
            fuzz.write_seeds(name, opponent_of(name), folder_of(name))
        return EXIT_COMPLETED
    seed = asked.seed if asked.seed is not None else int.from_bytes(os.urandom(4))
    names = shared(asked.names or known)
    return fuzz.Fuzz(names, folder_of, seed, asked.payloads, opponent_of).run(asked.seconds, max(1, asked.jobs))


def opponent_of(name: str) -> Opponent:
    return READERS[name]() if name in READERS else fuzz.opponent(name)


def folder_of(name: str) -> Path:
    return (CORPUS if name in READERS else fuzz.CORPUS) / name


def shared(names: Sequence[str]) -> list[str]:
    """Return the names as often as they have a turn: readers are few, and have half of the time all the same."""
    decoders, readers = [[one for one in names if (one in READERS) == wanted] for wanted in (False, True)]
    return [*decoders, *readers * max(1, len(decoders) // max(1, len(readers)))]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
