"""Judge runs over time: a run directory a line on standard input, a JSON object a line on standard output.

An answer is {"changes": [[t_s, verdict, reasons], ...], "end_s"}: from `t_s` (emulated seconds) on the verdict was that
one. Of a run that is asked about again only new lines are read. A run that cannot be judged is answered by {"fault"}.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from testbed.core.errors import LonghaulError
from testbed.core.files import open_regular_bytes, read_object
from testbed.core.record.run_directory import RunDir
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.observation.verdict.judge import Judge

_MAX_RUNS = 16
"""Runs of which the state is kept."""


class VerdictHistory:
    """Folds the events of one run, and notes once an emulated second whether the verdict is another one."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._judge = Judge(RunSpec.from_json(read_object(run.spec)))
        self._byte = 0
        self._judged_s = -math.inf
        self.end_s = 0.0
        self.changes: list[tuple[float, str, list[str]]] = []

    def read(self) -> None:
        """Fold the lines that are new."""
        with open_regular_bytes(self._run.events) as file:
            file.seek(self._byte)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._byte += len(line)
                self._fold(line)
        self._note()

    def _fold(self, line: bytes) -> None:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(event, dict) or "event" not in event:
            return
        self._judge.add(event)
        if event["event"] == "schedule" and event.get("what") == "end":
            self._judge.close(float(read_object(self._run.spec)["dilation"]))
        t_s = event.get("t_s")
        if isinstance(t_s, int | float) and abs(t_s) < 1e12:
            self.end_s = max(self.end_s, float(t_s))
            if self.end_s - self._judged_s >= 1.0:
                self._note()

    def _note(self) -> None:
        self._judged_s = self.end_s
        verdict, reasons = self._judge.verdict()
        if not self.changes or self.changes[-1][1] != verdict:
            self.changes.append((self.end_s, verdict, reasons))


def main() -> None:
    """Answer until standard input ends."""
    known: dict[str, VerdictHistory] = {}
    for line in sys.stdin:
        path = str(json.loads(line))
        sys.stdout.write(json.dumps(_answer(known, path), allow_nan=False) + "\n")
        sys.stdout.flush()


def _answer(known: dict[str, VerdictHistory], path: str) -> dict[str, Any]:
    try:
        history = known.pop(path, None) or VerdictHistory(RunDir(Path(path)))
        history.read()
    except (LonghaulError, OSError) as error:
        return {"fault": str(error)}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        words = "the record is damaged, or from before the rules of this version, which need more of an event"
        return {"fault": f"{words} ({type(error).__name__}: {error})"}
    known[path] = history
    while len(known) > _MAX_RUNS:
        known.pop(next(iter(known)))
    return {"changes": history.changes, "end_s": history.end_s}


if __name__ == "__main__":
    main()
