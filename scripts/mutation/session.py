"""A file with the mutants of one seed and their results, so that an interrupted session goes on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from scripts.mutation.draw import SIDES, Mutant, draws


class Result(StrEnum):
    PENDING = "not tested"
    CAUGHT = "caught"
    SURVIVED = "survived"
    TIMED_OUT = "timed out"
    EQUIVALENT = "equivalent"
    NOTHING = "changes nothing"


class NotEquivalent(Exception):
    """A mutant cannot be named equivalent, and why."""


@dataclass
class Trial:
    """A mutant and what came of it."""

    number: int
    mutant: Mutant
    result: Result = Result.PENDING
    detail: str = ""
    """The test that caught it, or the reason why it is equivalent."""
    seconds: float = 0.0
    replaces: int = 0
    """Number of the mutant for which this one was drawn; 0: none."""

    def __str__(self) -> str:
        match self.result:
            case Result.CAUGHT:
                return f"caught by {self.detail} in {self.seconds:.0f} s"
            case Result.TIMED_OUT:
                return f"caught: timed out after {self.seconds:.0f} s"
            case Result.SURVIVED:
                return f"survived {self.seconds:.0f} s of tests"
            case Result.EQUIVALENT:
                return f"equivalent: {self.detail}"
        return self.result


@dataclass
class Session:
    """All trials of a seed. The file has one JSON line with what was asked, then one for each mutant."""

    file: Path
    seed: str
    commit: str
    command: str
    baseline_s: float | None = None
    trials: list[Trial] = field(default_factory=list)

    @classmethod
    def load(cls, file: Path) -> Session:
        head, *lines = [json.loads(line) for line in file.read_text().splitlines()]
        trials = [
            Trial(**{**line, "mutant": Mutant(**line["mutant"]), "result": Result(line["result"])}) for line in lines
        ]
        return cls(file, **head, trials=trials)

    def save(self) -> None:
        head = {"seed": self.seed, "commit": self.commit, "command": self.command, "baseline_s": self.baseline_s}
        lines: list[dict[str, Any]] = [head, *map(asdict, self.trials)]
        new = self.file.with_suffix(".new")
        new.write_text("".join(json.dumps(line) + "\n" for line in lines))
        new.replace(self.file)

    def numbers(self, *results: Result) -> list[int]:
        return [one.number for one in self.trials if one.result in results]

    def pending(self) -> bool:
        return bool(self.numbers(Result.PENDING))

    def name_equivalent(self, number: int, reason: str) -> None:
        """Record why no test could see a mutant. The next draw replaces it."""
        if number not in self.numbers(Result.PENDING, Result.SURVIVED, Result.EQUIVALENT):
            known = [str(one) for one in self.trials if one.number == number]
            raise NotEquivalent(f"--equivalent {number}: {known[0] if known else 'there is no such mutant'}")
        trial = next(one for one in self.trials if one.number == number)
        trial.result, trial.detail = Result.EQUIVALENT, reason

    def draw(self, root: Path, mutants: int) -> None:
        """Draw mutants of all sides in turn, and one of the same side for each that has no effect.

        Args:
            mutants: How many to have without those that replace others.
        """
        sides = {side: draws(root, side, self.seed) for side in SIDES}
        while (place := self._next_place(mutants)) is not None:
            side, replaces = place
            known = [one.mutant for one in self.trials]
            mutant = next(one for one in sides[side] if one not in known)
            result = Result.PENDING if mutant.changes else Result.NOTHING
            self.trials.append(Trial(len(self.trials) + 1, mutant, result, replaces=replaces))

    def _next_place(self, mutants: int) -> tuple[str, int] | None:
        """The side of the mutant to be drawn, and the number of the one it replaces, if any."""
        replaced = {one.replaces for one in self.trials}
        turns = len([one for one in self.trials if not one.replaces])
        if turns < mutants:
            return list(SIDES)[turns % len(SIDES)], 0
        for one in self.trials:
            if one.result in (Result.EQUIVALENT, Result.NOTHING) and one.number not in replaced:
                return one.mutant.side, one.number
        return None
