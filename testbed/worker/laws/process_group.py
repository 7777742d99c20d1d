"""Ranks in real processes on loopback, over gloo: every compressor in one set of processes, which form groups in turn.

`run_group` is told parts and starts `python -m testbed.worker laws-ranks`, which imports torch once and forks the
ranks. Each rank reduces through the communicator that counts what is sent, and leaves its results in a file.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

import testbed
from compressors.base.compressor import Compressor, Context, Layout, Route
from compressors.base.feedback import EF21, ErrorFeedback, with_feedback
from testbed.core.errors import EXIT_COMPLETED, EXIT_FAILED, RunError
from testbed.core.processes import end_with
from testbed.core.spec.run_spec import Part
from testbed.core.spec.topology import Topology
from testbed.worker.communication.communicator import Communicator
from testbed.worker.device.clock import PhaseClock
from testbed.worker.laws.cases.catalogue import case
from testbed.worker.laws.cases.registry import LAYOUT, Case, gradients
from testbed.worker.laws.cases.steps import EARLIER
from testbed.worker.laws.cases.variants import variants
from testbed.worker.laws.properties.state import saved
from testbed.worker.reduction.reducer import Reducer

WORLD_SIZES = (2, 3, 4)
STEPS, MIDDLE = 4, 2
"""Reductions; before which one a checkpoint is taken."""
TIMEOUT_S = 60.0
"""Of one collective."""
STALL_S = 120.0
"""A group in which no rank has come to the next compressor for so long hangs, or is beyond what anybody would wait."""
EF21_RANKS = 3
"""Of the one group in which EF21 is tried."""
NO_LINKS = Topology(name="loopback", regions=("loopback",), nodes=(), links=())
Found = dict[str, Any]
"""Of one compressor, route, feedback and size of group, on one rank: tensors and bytes by step, an error's text."""


def key_of(case: Case, feedback: str, world_size: int) -> str:
    return f"{case.called}, {case.route.value}, feedback {feedback}, {world_size} ranks"


def feedbacks_of(case: Case, world_size: int) -> list[str]:
    """Those in which groups reduce: what a run has, and plain and EF21 where their sums mean something."""
    found = ["as in a run"]
    if case.traits.averages and case.make().feedback_kind != "plain":
        found.append("plain")
    if case.traits.averages and case.traits.contraction is not None and world_size == EF21_RANKS:
        found.append("ef21")
    return found


def member(case: Case, feedback: str) -> Compressor:
    """One rank's compressor, which has adopted an optimizer as it does in a run."""
    if feedback == "plain":
        return ErrorFeedback(case.make())
    if feedback == "ef21":
        return EF21(case.make())
    found = with_feedback(case.make())
    found.adopt(torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), lr=0.1, momentum=0.9))
    return found


class _Routed(Reducer):
    """Takes the route it is told, where the link would choose, and measures none: loopback differs every time."""

    route = Route.GATHER

    def __init__(self, compressor: Compressor, comm: Communicator) -> None:
        super().__init__(compressor, comm, PhaseClock(), NO_LINKS, seed=0)
        self._meter = None

    def context(self, layout: Layout, step: int) -> Context:
        return replace(super().context(layout, step), route=self.route)


def run_group(parts: Sequence[Part], world_sizes: Sequence[int] = WORLD_SIZES) -> list[dict[str, Found]]:
    """What each rank found, by `key_of`. A compressor that ends a rank is left out, and has {"error"} in place of all.

    Raises:
        RunError: a rank ended in another way than it should; says which, and on what.
    """
    ended: dict[str, str] = {}
    while True:
        left = [part for part in parts if part.name not in ended]
        try:
            found = _one_group(left, world_sizes)
        except _Ended as end:
            ended[end.name] = str(end)
            continue
        for rank in found:
            rank.update({name: {"error": said} for name, said in ended.items()})
        return found


class _Ended(Exception):
    """A compressor ended a rank."""

    def __init__(self, name: str, said: str) -> None:
        super().__init__(said)
        self.name = name


def _one_group(parts: Sequence[Part], world_sizes: Sequence[int]) -> list[dict[str, Found]]:
    if not parts:
        return [{} for _ in range(max(world_sizes))]
    with tempfile.TemporaryDirectory(prefix="longhaul-laws-") as folder:
        told = [{"name": p.name, "target": p.target, "params": dict(p.params), "folders": p.folders} for p in parts]
        question = json.dumps(
            {"parts": told, "world_sizes": list(world_sizes), "folder": folder, "parent": os.getpid()}
        )
        _finish(_start(question, Path(folder)), Path(folder), [p.name for p in parts])
        return [torch.load(Path(folder) / f"{rank}.pt", weights_only=True) for rank in range(max(world_sizes))]


def _start(question: str, folder: Path) -> subprocess.Popen[str]:
    clone = str(Path(testbed.__file__).resolve().parents[1])
    paths = os.pathsep.join([clone, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    with (folder / "0.log").open("a") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "testbed.worker", "laws-ranks"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            text=True,
            env=environment,
        )
    assert process.stdin is not None
    process.stdin.write(question)
    process.stdin.close()
    return process


def _finish(ranks: subprocess.Popen[str], folder: Path, names: Sequence[str]) -> None:
    """Wait for all ranks; the first that fails ends the others."""
    seen, seen_s = -1, time.monotonic()
    try:
        while ranks.poll() is None and time.monotonic() - seen_s <= STALL_S:
            said_bytes = sum(log.stat().st_size for log in folder.glob("*.log"))
            if said_bytes != seen:  # each says which compressor it has come to
                seen, seen_s = said_bytes, time.monotonic()
            time.sleep(0.05)
        status = ranks.poll()
        if status == EXIT_COMPLETED:
            return
        failed = folder / "failed"
        rank = failed.read_text() if failed.exists() else "0"
        lines = (folder / f"{rank}.log").read_text().strip().splitlines() or ["says nothing"]
        begun = [name for line in lines if (name := re.split("[ ,]", line)[0]) in names]
        over = f"nothing new for {STALL_S:g} s; " if status is None else ""
        said = f"rank {rank} of real processes: {over}{lines[-1]}"
        raise _Ended(begun[-1], said) if begun else RunError(f"a group on loopback failed: {said}")
    finally:
        ranks.kill()
        ranks.wait()


def be_ranks(question: Mapping[str, Any]) -> NoReturn:
    """Fork all ranks from this process, which has imported torch, and wait for them; the first that fails is noted."""
    end_with(question["parent"])
    importlib.import_module("torch._dynamo")  # an optimizer does, which takes each rank a second
    torch.set_num_threads(1)
    folder, parent = Path(question["folder"]), os.getpid()
    ranks: dict[int, int] = {}
    for rank in range(max(question["world_sizes"])):
        pid = os.fork()
        if pid == 0:
            _live(rank, question, parent)
        ranks[pid] = rank
    while ranks:
        pid, status = os.wait()
        if status:
            (folder / "failed").write_text(str(ranks[pid]))
            os._exit(EXIT_FAILED)  # the others end with it
        del ranks[pid]
    os._exit(EXIT_COMPLETED)


def _live(rank: int, question: Mapping[str, Any], parent: int) -> NoReturn:
    """Be a rank for the whole life of a forked process, with a log of its own."""
    try:
        end_with(parent)
        log = os.open(Path(question["folder"]) / f"{rank}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        for stream in (1, 2):
            os.dup2(log, stream)
        _be_rank(rank, question)
    except BaseException:
        traceback.print_exc()
    os._exit(EXIT_FAILED)


def _be_rank(rank: int, question: Mapping[str, Any]) -> NoReturn:
    """Be one rank of all groups in turn, those of two ranks with ranks 0 and 1, and so on; the process ends with it."""
    cases = [case(Part(**told)) for told in question["parts"]]
    found: dict[str, Found] = {}
    for world_size in sorted(question["world_sizes"], reverse=True):  # so that no rank waits for groups it is not in
        if rank >= world_size:
            continue
        store = str(Path(question["folder"]) / f"store{world_size}")
        comm = Communicator.connect(
            rank=rank,
            world_size=world_size,
            address="127.0.0.1",
            port=0,
            interface="lo",
            timeout_s=TIMEOUT_S,
            store=store,
        )
        for one in cases:
            for case_ in variants(one):
                for routed in case_.on_each_route():
                    for feedback in feedbacks_of(routed, world_size):
                        found[key_of(routed, feedback, world_size)] = _reduce_or_end(routed, feedback, comm)
        comm.close()
    torch.save(found, Path(question["folder"]) / f"{rank}.pt")
    sys.stderr.flush()
    os._exit(EXIT_COMPLETED)  # threads of gloo may still let go of tensors, which a dying interpreter does not bear


def _reduce_or_end(case: Case, feedback: str, comm: Communicator) -> Found:
    key = key_of(case, feedback, comm.world_size)
    sys.stderr.write(f"{key}\n")
    try:
        return _reduce(case, feedback, comm)
    except Exception as error:
        (*_, last) = traceback.extract_tb(error.__traceback__)
        at = f"{last.filename}, line {last.lineno}, in {last.name}"
        sys.stderr.write(f"{key}: {type(error).__name__}: {' '.join(str(error).splitlines())} ({at})\n")
        sys.stderr.flush()
        os._exit(EXIT_FAILED)  # what others still send would keep the communicator waiting


def _reduce(case: Case, feedback: str, comm: Communicator) -> Found:
    rank = member(case, feedback)
    for step in range(case.first_step):
        _step(case, rank, comm, step, gradients(LAYOUT, comm.world_size, seed=EARLIER + step))
    means, sent, declared, checkpoint = [], [], [], {}
    for step in range(STEPS):
        if step == MIDDLE:
            checkpoint = saved(rank.state_dict())
        mean, count = _counted_step(case, rank, comm, step)
        means.append(mean)
        sent.append(count)
        declared.append(rank.sent_bytes(LAYOUT, comm.world_size, case.route, step=case.first_step + step))
    residual = rank.residual(LAYOUT.bucket) if isinstance(rank, ErrorFeedback) else None
    resumed = member(case, feedback)
    resumed.load_state_dict(checkpoint)
    again = [_counted_step(case, resumed, comm, step) for step in range(MIDDLE, STEPS)]
    return {
        "means": means,
        "sent": sent,
        "declared": declared,
        "residual": torch.zeros(LAYOUT.numel) if residual is None else residual.clone(),
        "resumed_means": [mean for mean, _ in again],
        "resumed_sent": [count for _, count in again],
    }


def _counted_step(case: Case, compressor: Compressor, comm: Communicator, step: int) -> tuple[Tensor, int]:
    """(mean, bytes this rank sent); `step` counts from the case's first one."""
    given = gradients(LAYOUT, comm.world_size, seed=step)
    return _step(case, compressor, comm, case.first_step + step, given)


def _step(
    case: Case, compressor: Compressor, comm: Communicator, step: int, given: Sequence[Tensor]
) -> tuple[Tensor, int]:
    reducer = _Routed(compressor, comm)
    reducer.route = case.route
    flat = given[comm.rank]
    comm.step, before = step, comm.payload_bytes
    reducer.start(flat, LAYOUT, step)
    reducer.finish()
    return flat, comm.payload_bytes - before
