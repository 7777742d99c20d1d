"""`python -m testbed.worker fork-server FD`: imports torch once; a run's workers are forked from it.

It runs as root in the run's namespaces, beside the orchestrator, and its memory is what all workers begin with: so it
starts with nothing but a worker's environment, holds nothing else, and does nothing but import, load, and fork.

Standard input is {"spec": ..., "scratch": a directory of its own, "nice": while it imports}; FD a socket that carries
one JSON object a message.

    orchestrator                                      fork server
                                                  <-  {"event": "fault", "message": ...}   it cannot import; the end
    {"event": "fork", "place": confinement.Place} ->      with a pidfd of the container's first process, and a log
                                                  <-  {"event": "forked", "node": ..., "pid": in the run's namespace}
    {"event": "signal", "node": ..., "number": n} ->
                                                  <-  {"event": "exit", "node": ..., "pid": null if none was forked,
                                                       "code": as of `subprocess`}

When the socket closes it ends, and its workers with it.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import select
import signal
import socket
import sys
import tempfile
import traceback
from typing import Any, NoReturn, TextIO

from testbed.core.errors import EXIT_COMPLETED, EXIT_FAILED, LonghaulError, RunError
from testbed.core.spec.run_spec import RunSpec
from testbed.worker.process.confinement import Place, confine, enter_pid_namespace

MAX_MESSAGE_BYTES = 1 << 17


class ForkServer:
    """Forks on demand and tells of each end. Its thread stays the only one: a fork takes no other along."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._self = os.pidfd_open(os.getpid())
        self._own_pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._children: dict[int, tuple[str, int]] = {}
        """(node, pid) by pidfd."""

    def prepare(self, given: dict[str, Any]) -> None:
        """Import and load all that workers share."""
        os.environ["TMPDIR"] = given["scratch"]  # torch._dynamo makes a directory; each worker's /tmp is its own
        os.nice(given["nice"])
        gc.disable()
        _import_all(RunSpec.from_json(given["spec"]))
        gc.collect()
        gc.freeze()  # a collection in a worker would write to every object that it shares
        gc.enable()
        if given["nice"]:
            os.setpriority(os.PRIO_PROCESS, 0, 0)
        threads = len(os.listdir("/proc/self/task"))
        if threads != 1:
            raise RunError(f"what workers share was loaded and left {threads - 1} threads, which no fork takes along")

    def serve(self) -> None:
        """Until the orchestrator is gone."""
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor != self._connection.fileno():
                    poll.unregister(descriptor)
                    self._reap(descriptor)
                    continue
                data, files, _, _ = socket.recv_fds(self._connection, MAX_MESSAGE_BYTES, 2)
                if not data:
                    return
                message = json.loads(data)
                if message["event"] == "signal":
                    self._signal(message["node"], message["number"])
                    continue
                pidfd = self._fork(Place.from_json(message["place"]), *files)
                if pidfd is not None:
                    poll.register(pidfd, select.POLLIN)
                for file in files:
                    os.close(file)

    def _fork(self, place: Place, container: int, log: int) -> int | None:
        try:
            enter_pid_namespace(container)
            try:
                pid = os.fork()
                if pid == 0:
                    _live(place, self._self, container, log)
            finally:
                enter_pid_namespace(self._own_pids)
        except OSError as error:
            os.write(log, f"no worker could be forked into the container: {error}\n".encode())
            self._tell({"event": "exit", "node": place.node, "pid": None, "code": EXIT_FAILED})
            return None
        pidfd = os.pidfd_open(pid)
        self._children[pidfd] = (place.node, pid)
        self._tell({"event": "forked", "node": place.node, "pid": pid})
        return pidfd

    def _reap(self, pidfd: int) -> None:
        node, pid = self._children.pop(pidfd)
        _, status = os.waitpid(pid, 0)
        os.close(pidfd)
        self._tell({"event": "exit", "node": node, "pid": pid, "code": os.waitstatus_to_exitcode(status)})

    def _signal(self, node: str, number: int) -> None:
        for pidfd, (name, _) in self._children.items():
            if name == node:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(pidfd, number)

    def _tell(self, message: dict[str, Any]) -> None:
        self._connection.send(json.dumps(message).encode())


def _import_all(spec: RunSpec) -> None:
    """What `session.run` and the spec's parts import. No parallel region and no process group: a fork breaks them."""
    import torch

    torch.set_num_threads(1)
    import torch._dynamo  # an optimizer's first step imports it, and DDP's constructor

    from testbed.worker.communication import communicator, shutdown
    from testbed.worker.interfaces.workload_capabilities import preload
    from testbed.worker.model import checkpoint
    from testbed.worker.process import session
    from testbed.worker.training import loop
    from testbed.worker.training.parts import build_parts

    assert communicator and shutdown and loop and session
    preload(build_parts(spec).workload)
    if spec.start_from is not None:
        checkpoint.preload(spec.start_from, spec.start_hash)


def _live(place: Place, parent: int, container: int, log: int) -> NoReturn:
    """The child's whole life."""
    status = EXIT_FAILED
    try:
        confine(place, parent, container, log)
        _start_over()
        from testbed.worker.process.session import run

        status = run()
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else EXIT_FAILED
    except BaseException:
        traceback.print_exc()
    finally:
        # the interpreter is not shut down: the fork server owns what it holds, and gloo's threads may still use it
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _start_over() -> None:
    """As an interpreter of its own would: what nobody has seeded draws other numbers in each.

    The seed of hashes is 0 in all of them; the layout of addresses is the fork server's in all of them.
    """
    import numpy as np
    import torch

    sys.argv = ["-m", "run"]
    tempfile.tempdir = None
    random.seed()
    np.random.seed()
    torch.default_generator.seed()


def main(descriptor: int, stdin: TextIO) -> int:
    with socket.socket(fileno=descriptor) as connection:
        fork_server = ForkServer(connection)
        try:
            fork_server.prepare(json.load(stdin))
        except BrokenPipeError:  # the orchestrator has ended meanwhile; its end is told elsewhere
            return EXIT_FAILED
        except Exception as error:
            traceback.print_exc()
            text = str(error) if isinstance(error, LonghaulError) else f"{type(error).__name__}: {error}"
            connection.send(json.dumps({"event": "fault", "message": text[:2000]}).encode())
            return EXIT_FAILED
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            fork_server.serve()
    return EXIT_COMPLETED
