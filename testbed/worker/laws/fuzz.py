"""Hostile bytes for every decoder of the catalogue, as long as is asked: mutations of sound payloads and of a corpus.

Without coverage, what a decoder says is taken for where it went: a payload that is refused in new words joins those
that are mutated. Jobs are forks, and what each is about to decode lies in memory shared with the parent: a decoder that
crashes or hangs ends its fork, and its payload is kept all the same. Finds are written into the corpus, which
tests/contract/test_corpus.py decodes ever after.
"""

from __future__ import annotations

import argparse
import mmap
import multiprocessing
import os
import random
import re
import struct
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.context import ForkProcess
from pathlib import Path

import torch

import testbed
from testbed.core.errors import EXIT_COMPLETED, EXIT_FAILED, EXIT_INPUT
from testbed.worker.laws.cases import catalogue
from testbed.worker.laws.cases.malformed import MEMORY_BYTES, Decoder, Opponent, memory_limit, mutated
from testbed.worker.laws.cases.registry import LawBroken
from testbed.worker.laws.cases.variants import variants
from testbed.worker.laws.properties.peers import Peers
from testbed.worker.plugins import compressor_catalogue

CORPUS = Path(testbed.__file__).resolve().parents[1] / "tests" / "corpus" / "compressors"
SLICE_S = 0.5
"""How long one decoder is at it before the next has its turn."""
STALL_S = 30.0
"""CPU seconds of a job: one that decodes nothing new meanwhile hangs."""
PATIENCE_S = 600.0
"""The same in wall seconds, for a job that sleeps; a busy machine stretches them."""
RESEALED_RATIO = 0.75
"""Share of payloads that get checksums of what they hold; the others try the checks themselves."""
_LARGEST = 1 << 16
_HEADER = struct.Struct("<QIII")
"""Of the shared memory: payloads so far, finds so far, which decoder, bytes of the payload that follows."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m testbed.worker fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="of the catalogue; all where none are given")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--payloads", type=int, default=None, help="of each job, at most")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=None, help="other payloads every time where none is given")
    parser.add_argument("--corpus", type=Path, default=CORPUS, metavar="DIR")
    parser.add_argument("--write-seeds", action="store_true", help="into the corpus, a few for each; then end")
    asked = parser.parse_args(arguments)
    known = compressor_catalogue.names()
    unknown = sorted(set(asked.names) - set(known))
    if unknown:
        sys.stderr.write(f"{', '.join(unknown)}: unknown; known: {', '.join(known)}\n")
        return EXIT_INPUT
    if asked.write_seeds:
        for name in asked.names or known:
            write_seeds(name, opponent(name), asked.corpus / name)
        return EXIT_COMPLETED
    seed = asked.seed if asked.seed is not None else int.from_bytes(os.urandom(4))
    fuzz = Fuzz(asked.names or known, lambda name: asked.corpus / name, seed, asked.payloads)
    return fuzz.run(asked.seconds, max(1, asked.jobs))


def opponent(name: str) -> Opponent:
    """A decoder; where payloads are in rounds of its own alone, a rank among peers, as it is in most of a run."""
    case = catalogue.case(compressor_catalogue.part(name))
    return Decoder(case.make()) if case.traits.point_to_point else Peers(variants(case)[-1])


def write_seeds(name: str, against: Opponent, folder: Path, most: int = 6) -> None:
    """A sound payload, and of damaged ones the first that are refused in each of a reader's ways."""
    draw, pool = random.Random(0), against.sound()
    kept = {"": next((data for data in pool if len(data) < 4096), pool[0])}
    with memory_limit(MEMORY_BYTES):
        for _ in range(1500):
            data = against.resealed(mutated(draw.choice(pool), draw, pool))
            words = _words(against.meet(data, name))
            if len(kept) < most and len(data) < 4096:
                kept.setdefault(words, data)
    folder.mkdir(parents=True, exist_ok=True)
    for data in kept.values():
        (folder / f"{zlib.crc32(data):08x}.bin").write_bytes(data)


def _words(refusal: str | None) -> str:
    """Without what differs from one payload to the next."""
    return re.sub(r"b'.*?'|0x[0-9a-f]+|-?\d[\d.e+-]*", "#", refusal or "")


@dataclass
class _Job:
    """One fork, and the memory shared with it."""

    number: int
    memory: mmap.mmap = field(default_factory=lambda: mmap.mmap(-1, _HEADER.size + _LARGEST))
    process: ForkProcess | None = None
    seen: int = 0
    seen_s: float = 0.0
    seen_cpu_s: float = 0.0

    def cpu_s(self) -> float:
        """Return the CPU seconds of the fork so far; 0 once it has ended."""
        assert self.process is not None
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def note(self, done: int, finds: int, name: int, data: bytes) -> None:
        self.memory[: _HEADER.size] = _HEADER.pack(done, finds, name, len(data))
        self.memory[_HEADER.size : _HEADER.size + len(data)] = data

    def told(self) -> tuple[int, int, int, bytes]:
        done, finds, name, size = _HEADER.unpack(self.memory[: _HEADER.size])
        return done, finds, name, self.memory[_HEADER.size : _HEADER.size + size]


class Fuzz:
    """Mutations for each of many readers of bytes.

    Args:
        names: Of the readers. One that comes twice has twice the time.
        folder_of: Where the finds of each are kept.
        most: Payloads of one job; None: as many as there is time for.
        opponent_of: The reader of a name; None: that of the catalogue of compressors.
    """

    def __init__(
        self,
        names: Sequence[str],
        folder_of: Callable[[str], Path],
        seed: int,
        most: int | None,
        opponent_of: Callable[[str], Opponent] | None = None,
    ) -> None:
        self.names, self._folder_of, self.seed = list(names), folder_of, seed
        self.most = most
        self._opponent_of = opponent_of or opponent

    def run(self, seconds: float, jobs: int) -> int:
        torch.set_num_threads(1)
        self.pools = {name: self._pool(name) for name in self.names}
        began_s = time.monotonic()
        until_s = began_s + seconds
        ended = 0
        running = [_Job(number) for number in range(jobs)]
        for job in running:
            self._start(job, until_s)
        while any(job.process is not None for job in running):
            time.sleep(0.1)
            for job in running:
                if job.process is not None and self._look(job):
                    ended += 1
                    if time.monotonic() < until_s and not self._had_enough(job.told()[0]):
                        self._start(job, until_s)
        total = sum(job.told()[0] for job in running)
        finds = ended + sum(job.told()[1] for job in running)
        sys.stdout.write(
            f"{total} payloads for {len(set(self.names))} decoders in {time.monotonic() - began_s:.0f} s"
            f" with {jobs} jobs, seed {self.seed}: {finds or 'no'} finds\n"
        )
        return EXIT_FAILED if finds else EXIT_COMPLETED

    def _pool(self, name: str) -> list[bytes]:
        kept = [path.read_bytes() for path in sorted(self._folder_of(name).glob("*.bin"))]
        return [*self._warmed(name), *(data for data in kept if len(data) <= _LARGEST)]

    def _warmed(self, name: str) -> list[bytes]:
        """Return what is sound of a reader that has met it: forks have what it imports, before memory is limited."""
        against = self._opponent_of(name)
        pool = against.sound()
        for data in pool:
            against.meet(data, "a sound payload")
        return pool

    def _start(self, job: _Job, until_s: float) -> None:
        job.seen_s, job.seen_cpu_s = time.monotonic(), 0.0
        job.process = multiprocessing.get_context("fork").Process(target=self._work, args=(job, until_s), daemon=True)
        job.process.start()

    def _look(self, job: _Job) -> bool:
        """Whether the job met a payload that ended it, which is kept then."""
        assert job.process is not None
        done, finds, name, data = job.told()
        if done != job.seen:
            job.seen, job.seen_s, job.seen_cpu_s = done, time.monotonic(), job.cpu_s()
        hangs = job.cpu_s() - job.seen_cpu_s > STALL_S or time.monotonic() - job.seen_s > PATIENCE_S
        if job.process.is_alive() and not hangs:
            return False
        if hangs:
            job.process.kill()
        job.process.join()
        code, job.process = job.process.exitcode, None
        if code == 0:
            return False
        job.note(done + 1, finds, name, b"")  # or the next fork would begin with the same
        self._keep(self.names[name], data, f"decoding {'hangs' if hangs else f'ended the process with status {code}'}")
        return True

    def _work(self, job: _Job, until_s: float) -> None:
        done, finds, *_ = job.told()
        draw = random.Random(f"{self.seed} {job.number} {done}")
        heard: set[tuple[int, str]] = set()
        order = draw.sample(range(len(self.names)), len(self.names))
        while True:
            for index in order:
                name, stop_s = self.names[index], time.monotonic() + SLICE_S
                against, pool = self._opponent_of(name), self.pools[name]
                job.note(done, finds, index, pool[0])
                against.meet(pool[0], "a sound payload")  # starts what a codec needs before memory is limited
                while (now_s := time.monotonic()) < min(stop_s, until_s) and not self._had_enough(done):
                    data = mutated(draw.choice(pool), draw, pool)[:_LARGEST]
                    if draw.random() < RESEALED_RATIO:
                        data = against.resealed(data)
                    job.note(done, finds, index, data)
                    try:
                        with memory_limit(MEMORY_BYTES):
                            refusal = against.meet(data, name)
                    except LawBroken as broken:
                        self._keep(name, data, str(broken))
                        finds += 1
                        refusal = None
                    done += 1
                    words = (index, _words(refusal))
                    if words not in heard and len(pool) < 200:
                        heard.add(words)
                        pool.append(data)
                if now_s >= until_s or self._had_enough(done):
                    job.note(done, finds, index, b"")
                    return

    def _had_enough(self, done: int) -> bool:
        return self.most is not None and done >= self.most

    def _keep(self, name: str, data: bytes, why: str) -> None:
        """In the corpus, where it may lie already."""
        path = self._folder_of(name) / f"{zlib.crc32(data):08x}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_bytes(data)
        sys.stdout.write(f"{path}: {why}\n")
        sys.stdout.flush()
