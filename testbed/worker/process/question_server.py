"""`python -m testbed.worker question-server`: imports torch once, and answers each question in a fork of itself.

The orchestrator asks several questions before a run: whether its parts are possible, how long a step takes. Importing
torch takes longer than most answers. A fork sees the plug-ins of its question alone, and what it breaks is its own.

Standard input has a JSON object a line, standard output one for each, once it is answered:

    {"command": one of this module's, "question": its standard input, "environment", "cwd", "limit_s"}   ->
    <-   {"status": as of `subprocess`, "answer": what it said on standard output, "log": and on standard error}

What takes longer than `limit_s` is ended, and its log says where it was, in the words of `faulthandler`.

When standard input or the parent ends, the server does, and an answer that is under way with it.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, NoReturn

from testbed.core.errors import EXIT_COMPLETED, EXIT_FAILED
from testbed.core.processes import end_with


def serve(parent: int, answer: Callable[[list[str]], int]) -> int:
    """Until standard input ends.

    Args:
        parent: the process that asks.
        answer: what a command line of `testbed.worker` is answered with, as its exit status.
    """
    end_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # who is asked ends with a terminal's foreground group, without a word
    with suppress(ImportError):  # the answer says so
        _import_all()
    with os.fdopen(os.dup(0), "rb") as questions, os.fdopen(os.dup(1), "wb") as replies:
        for line in questions:
            replies.write(json.dumps(_answered(json.loads(line), answer)).encode() + b"\n")
            replies.flush()
    return EXIT_COMPLETED


def _answered(asked: dict[str, Any], answer: Callable[[list[str]], int]) -> dict[str, Any]:
    with ExitStack() as files:
        said = [files.enter_context(os.fdopen(os.memfd_create(name), "w+b")) for name in ("question", "answer", "log")]
        said[0].write(asked["question"].encode())
        said[0].seek(0)
        server = os.getpid()
        child = os.fork()
        if child == 0:
            _live(asked, server, [file.fileno() for file in said], answer)
        _, status = os.waitpid(child, 0)
        texts = []
        for file in said[1:]:
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return {"status": os.waitstatus_to_exitcode(status), "answer": texts[0], "log": texts[1]}


def _import_all() -> None:
    """Import the modules that most answers need. No parallel region and no thread: a fork takes none along."""
    import torch

    torch.set_num_threads(1)

    from testbed.worker.model import checkpoint
    from testbed.worker.process import check
    from testbed.worker.training import parts

    assert checkpoint and check and parts


def _live(asked: dict[str, Any], server: int, said: list[int], answer: Callable[[list[str]], int]) -> NoReturn:
    """The child's whole life. Its module path begins as that of an interpreter that is started for the question."""
    status = EXIT_FAILED
    try:
        end_with(server)
        if asked.get("limit_s"):
            faulthandler.dump_traceback_later(asked["limit_s"], exit=True, file=said[2])
        for standard, descriptor in enumerate(said):
            os.dup2(descriptor, standard)
        sys.stdin = os.fdopen(os.dup(0))
        os.environ.clear()
        os.environ.update(asked["environment"])
        os.chdir(asked["cwd"])
        sys.path[:0] = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        sys.path.append(asked["cwd"])
        tempfile.tempdir = None
        status = answer([asked["command"]])
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else EXIT_FAILED
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
