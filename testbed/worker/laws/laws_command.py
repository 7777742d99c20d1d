"""`python -m testbed.worker laws`: what the law book or the clock say of one compressor, a line of JSON each."""

from __future__ import annotations

import dataclasses
import faulthandler
import json
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from testbed.core.errors import EXIT_COMPLETED, EXIT_INPUT, InputError
from testbed.core.processes import end_with
from testbed.core.spec.run_spec import Part


def answer(source: TextIO, sink: TextIO) -> int:
    """Read {"name", "target", "params", "what": "law" | "throughput", "parent"}; write {"event": "begun", "count"} once
    it is built, with the number of rows to come, {"event": what, ...} as they come, and {"faults"} at the end. A law
    with a traceback is the last. The exit status is that of the question, whatever the laws say."""
    faulthandler.enable()

    def tell(row: dict[str, Any]) -> None:
        sink.write(json.dumps(row, allow_nan=False) + "\n")
        sink.flush()

    question = json.load(source)
    end_with(question["parent"])
    try:
        _tell_all(question, tell)
    except InputError as error:
        tell({"faults": list(error.faults)})
        return EXIT_INPUT
    tell({"faults": []})
    return EXIT_COMPLETED


def _tell_all(question: Mapping[str, Any], tell: Callable[[dict[str, Any]], None]) -> None:
    import torch

    from testbed.worker.laws import throughput
    from testbed.worker.laws.cases import catalogue
    from testbed.worker.laws.cases.registry import BOOK
    from testbed.worker.laws.distributed import GROUP_LAWS, judge_groups
    from testbed.worker.laws.judge import judge, laws

    part = Part(question["name"], question["target"], question["params"], question.get("folders", ()))
    case = catalogue.case(part)
    if question["what"] == "throughput":
        tell({"event": "begun", "count": throughput.ROWS})
        for figures in throughput.table(case.make):
            tell({"event": "throughput", **figures})
        return
    tell({"event": "begun", "count": len(laws()) + len(GROUP_LAWS)})
    torch.set_num_threads(1)
    for row in judge(case):
        tell({"event": "law", "says": BOOK[row.law].says, **dataclasses.asdict(row)})
        if row.traceback:
            return
    for row in judge_groups([part])[part.name]:
        tell({"event": "law", "says": GROUP_LAWS[row.law].says, **dataclasses.asdict(row)})
