"""Mutation test: plant faults drawn by a seed, one by one, and see whether the tests catch them.

`python scripts/mutate.py` draws twelve mutants of the last commit, runs `make test` on each until the first failure and
prints which were caught. It works in a clone, build/mutants/tree, and never writes this tree. Results are kept in
build/mutants/SEED.jsonl, so that another call with the same seed goes on. The default seed is the first eight hex
digits of the commit that added this file.

    python scripts/mutate.py --draw                           # print the mutants and test none
    python scripts/mutate.py --seed 0123abcd --mutants 24
    python scripts/mutate.py --equivalent 7 "rounds to the same"    # draw another for mutant 7, and go on
"""

from __future__ import annotations

import argparse
import fcntl
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.mutation import tree as trees
from scripts.mutation.draw import NoPlace
from scripts.mutation.session import NotEquivalent, Result, Session, Trial
from scripts.mutation.tree import Broken

ROOT = Path(__file__).resolve().parents[1]


def main(arguments: list[str], root: Path = ROOT) -> int:
    options = parsed(arguments)
    folder = (options.folder or root / "build" / "mutants").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with locked(folder) as lock:
            tested(options, root, folder, lock)
    except (Broken, NoPlace, NotEquivalent) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command goes on with what is missing", file=sys.stderr)
        return 130
    return 0


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mutate.py", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--seed", help="hexadecimal digits (default: first eight of the commit that added this script)")
    parser.add_argument("--mutants", type=int, default=12, help="how many to draw (default 12)")
    parser.add_argument("--command", default="make test", help="bash command that tests a mutant (default: make test)")
    parser.add_argument(
        "--limit-s", type=float, default=3600, help="stop the command after so many seconds (default 3600)"
    )
    parser.add_argument("--no-baseline", action="store_true", help="do not run the command without a mutant first")
    parser.add_argument("--draw", action="store_true", help="print the mutants and test none")
    parser.add_argument("--folder", type=Path, help="place for the clone, results and logs (default build/mutants)")
    equivalent = parser.add_argument("--equivalent", nargs=2, action="append", default=[])
    equivalent.metavar = ("NUMBER", "REASON")
    equivalent.help = "record that no test could see this mutant, and draw another of its side"
    options = parser.parse_args(arguments)
    if options.seed and not all(digit in "0123456789abcdef" for digit in options.seed):
        parser.error(f"--seed {options.seed}: not hexadecimal digits in lower case")
    if not all(number.isdigit() for number, _ in options.equivalent):
        parser.error("--equivalent: takes a number and a reason")
    return options


def interrupted(*_: object) -> NoReturn:
    raise KeyboardInterrupt


@contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Lock the folder. Tests started by a call that was killed hold the lock as well."""
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Broken(f"{folder}: another call of this script, or what it started, is still at work") from None
        yield file.fileno()


def tested(options: argparse.Namespace, root: Path, folder: Path, lock: int) -> None:
    session = opened(options, root, folder)
    print(f"seed {session.seed}, commit {session.commit[:12]}, `{session.command}`", flush=True)
    session.draw(folder / "tree", options.mutants)
    for number, reason in options.equivalent:
        session.name_equivalent(int(number), reason)
    session.draw(folder / "tree", options.mutants)
    if options.equivalent or not options.draw:
        session.save()
    if not options.draw and not options.no_baseline and session.baseline_s is None and session.pending():
        baseline(session, folder / "tree", options.limit_s, lock)
    for trial in session.trials:
        describe(trial)
        if trial.result == Result.PENDING and not options.draw:
            test(trial, session, folder, options.limit_s, lock)
        print(f"    {trial}", flush=True)
    if not options.draw:
        summarize(session)


def opened(options: argparse.Namespace, root: Path, folder: Path) -> Session:
    """Return the session of a seed as it was left, with its clone as it was committed."""
    added = trees.git(root, "log", "--diff-filter=A", "--format=%H", "--", "scripts/mutate.py").split()
    if not options.seed and not added:
        raise Broken("scripts/mutate.py is in no commit, so there is no default seed: give --seed")
    seed, head = options.seed or added[-1][:8], trees.git(root, "rev-parse", "HEAD")
    file = folder / f"{seed}.jsonl"
    if file.exists():
        session = Session.load(file)
        if session.command != options.command:
            raise Broken(f"{file} is of `{session.command}`, not of `{options.command}`: give another --folder")
        if session.commit != head:
            print(f"HEAD is another commit, {head[:12]}: to test that, remove {file}", file=sys.stderr)
    else:
        session = Session(file, seed, head, options.command)
        if trees.git(root, "status", "--porcelain", "--untracked-files=no"):
            print("changes that are not committed are left out", file=sys.stderr)
    trees.prepare(root, session.commit, folder / "tree")
    return session


def baseline(session: Session, tree: Path, limit_s: float, lock: int) -> None:
    """Refuse a command that fails without a mutant, since its failures say nothing about mutants."""
    log = session.file.with_name(f"{session.seed}-baseline.log")
    outcome = trees.run(tree, session.command, log, limit_s, lock)
    if outcome.status != 0:
        raise Broken(f"`{session.command}` fails without a mutant: {outcome.caught_by} (see {log})")
    session.baseline_s = round(outcome.seconds, 1)
    session.save()
    print(f"without a mutant it passes in {outcome.seconds:.0f} s", flush=True)


def test(trial: Trial, session: Session, folder: Path, limit_s: float, lock: int) -> None:
    log = folder / f"{session.seed}-{trial.number}.log"
    with trees.planted(folder / "tree", trial.mutant, trial.number):
        outcome = trees.run(folder / "tree", session.command, log, limit_s, lock)
    trial.result = {0: Result.SURVIVED, None: Result.TIMED_OUT}.get(outcome.status, Result.CAUGHT)
    trial.detail = outcome.caught_by if trial.result == Result.CAUGHT else ""
    trial.seconds = round(outcome.seconds, 1)
    session.save()


def describe(trial: Trial) -> None:
    mutant = trial.mutant
    instead = f", for {trial.replaces}" if trial.replaces else ""
    print(f"{trial.number:2}{instead}. {mutant.side}: {mutant.path}:{mutant.line} {mutant.function}: {mutant.kind}")
    print(f"    - {mutant.was}\n    + {mutant.becomes}", flush=True)


def summarize(session: Session) -> None:
    caught, survived = session.numbers(Result.CAUGHT, Result.TIMED_OUT), session.numbers(Result.SURVIVED)
    print(f"caught {len(caught)} of {len(caught + survived)} (seed {session.seed}, commit {session.commit[:12]})")
    for result in (Result.SURVIVED, Result.EQUIVALENT, Result.NOTHING, Result.PENDING):
        if numbers := session.numbers(result):
            print(f"{result}: {', '.join(map(str, numbers))}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, interrupted)
    sys.exit(main(sys.argv[1:]))
