"""The filter of system calls, as runc is told it and as a program: what it says, and that the kernel takes it."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys

import pytest

from testbed.core import seccomp
from testbed.orchestrator.machine.clone import CLONE, environment

EPERM, ENOSYS = seccomp._ERRNO | errno.EPERM, seccomp._ERRNO | errno.ENOSYS
FLAGS_OF_A_THREAD = 0x3D0F00
CODE = """
import ctypes, errno, fcntl, json, os, socket, sys, tempfile
from testbed.core import seccomp
from testbed.worker.process import confinement
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    libc.syscall(number, *map(ctypes.c_ulong, [*arguments, *[0] * (6 - len(arguments))]))
    return ctypes.get_errno()
column = seccomp.architecture(os.uname().machine).column
file = tempfile.TemporaryFile()
own = file.fileno()
def tried():
    made = {}
    made["personality"] = call(seccomp.DENIED["personality"][column], 0xFFFFFFFF)
    made["io_uring_setup"] = call(seccomp.DENIED["io_uring_setup"][column])
    made["mount"] = call(seccomp.DENIED["mount"][column])
    made["clone3"] = call(seccomp.CLONE3[column])
    made["inotify_init1"] = call(seccomp.DENIED["inotify_init1"][column])
    for name, command in seccomp.FILE_COMMANDS.items():
        made[name] = call(seccomp.FCNTL[column], own, command | 1 << 32, 0)
    for name, operation in seccomp.FUTEX_OPERATIONS.items():
        made[name] = call(seccomp.FUTEX[column], 0, operation)
    fcntl.lockf(own, fcntl.LOCK_EX)
    fcntl.flock(own, fcntl.LOCK_EX)
    try:
        socket.socket(socket.AF_VSOCK).close()
        made["AF_VSOCK"] = 0
    except OSError as error:
        made["AF_VSOCK"] = error.errno
    socket.socket(socket.AF_INET).close()
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close()
    return made
before = tried()
confinement._prctl(confinement._PR_SET_NO_NEW_PRIVS, 1)
confinement._load_filter()
import threading
thread = threading.Thread(target=lambda: None)
thread.start()
thread.join()
print(json.dumps([before, tried()]))
"""


def decided(machine: str, number: int, argument: int = 0, second: int = 0, audit: int | None = None) -> int:
    """What the program returns for a call, executed as the kernel does it."""
    found = seccomp.architecture(machine)
    data = {0: number, 4: found.audit if audit is None else audit}
    for at, value in ((16, argument), (24, second)):
        data |= {at: value & 0xFFFFFFFF, at + 4: value >> 32}
    code, at, loaded = seccomp.instructions(machine), 0, 0
    while True:
        what, if_true, if_false, operand = code[at]
        at += 1
        if what == 0x06:
            return operand
        if what == 0x20:
            loaded = data[operand]
        elif what == 0x54:
            loaded &= operand
        else:
            holds = {0x15: loaded == operand, 0x35: loaded >= operand, 0x45: bool(loaded & operand)}[what]
            at += if_true if holds else if_false


@pytest.mark.parametrize("machine", seccomp.ARCHITECTURES)
def test_the_program_refuses_what_the_table_says_and_nothing_else(machine: str) -> None:
    column = seccomp.architecture(machine).column
    denied = {numbers[column] for numbers in seccomp.DENIED.values()} - {None}
    by_argument = (seccomp.CLONE, seccomp.SOCKET, seccomp.FCNTL, seccomp.FUTEX)
    special = {numbers[column] for numbers in (*by_argument, seccomp.CLONE3)}
    assert len(denied) > 50 and not denied & special
    for number in set(range(600)) - special:
        assert decided(machine, number) == (EPERM if number in denied else seccomp.ALLOW), number
    assert decided(machine, seccomp.CLONE3[column]) == ENOSYS


@pytest.mark.parametrize("machine", seccomp.ARCHITECTURES)
def test_what_depends_on_an_argument(machine: str) -> None:
    column = seccomp.architecture(machine).column
    clone, socket = seccomp.CLONE[column], seccomp.SOCKET[column]
    assert decided(machine, clone, FLAGS_OF_A_THREAD) == seccomp.ALLOW
    for flag in seccomp.NEW_NAMESPACES.values():
        assert decided(machine, clone, FLAGS_OF_A_THREAD | flag) == EPERM
    allowed = [family for family in range(60) if decided(machine, socket, family) == seccomp.ALLOW]
    assert allowed == sorted(seccomp.SOCKET_FAMILIES.values())
    assert decided(machine, socket, 2 | 1 << 32) == EPERM  # the kernel itself would take it for AF_INET
    fcntl = seccomp.FCNTL[column]
    refused = {command for command in range(2000) if decided(machine, fcntl, 3, command) == EPERM}
    assert refused == set(seccomp.FILE_COMMANDS.values())
    for command in refused:
        assert decided(machine, fcntl, 3, command | 1 << 32) == EPERM  # the kernel reads half of it
    futex, of_one_process, by_the_clock = seccomp.FUTEX[column], 128, 256
    refused = {operation for operation in range(128) if decided(machine, futex, 1, operation) == EPERM}
    assert refused == set(seccomp.FUTEX_OPERATIONS.values())
    for operation in refused:
        assert decided(machine, futex, 1, operation | by_the_clock | 1 << 32) == EPERM
        assert decided(machine, futex, 1, operation | of_one_process) == seccomp.ALLOW


def test_calls_of_another_architecture_end_the_process() -> None:
    assert decided("x86_64", 0, audit=0x40000003) == seccomp.KILL
    assert decided("x86_64", 0x40000000) == seccomp.KILL
    assert decided("aarch64", 0, audit=0xC000003E) == seccomp.KILL
    with pytest.raises(ValueError, match="riscv64"):
        seccomp.program("riscv64")


@pytest.mark.parametrize("machine", seccomp.ARCHITECTURES)
def test_runc_is_told_the_same(machine: str) -> None:
    config = seccomp.runc_config(machine)
    column = seccomp.architecture(machine).column
    plain = {rule["names"][0] for rule in config["syscalls"] if not rule["args"]} - {"clone3"}
    assert plain == {name for name, numbers in seccomp.DENIED.items() if numbers[column] is not None}
    refused = [rule["args"][0] for rule in config["syscalls"] if rule["names"] == ["socket"]]
    for family in range(60):
        by_runc = any(
            family == rule["value"] if rule["op"] == "SCMP_CMP_EQ" else family > rule["value"] for rule in refused
        )
        assert by_runc == (decided(machine, seccomp.SOCKET[column], family) == EPERM), family
    masked = [rule["args"][0] for rule in config["syscalls"] if rule["names"] == ["fcntl"]]
    assert {(rule["index"], rule["op"]) for rule in masked} == {(1, "SCMP_CMP_MASKED_EQ")}
    for command in (*range(64), *range(1020, 1050), 36 | 1 << 40):
        by_runc = any(command & rule["value"] == rule["valueTwo"] for rule in masked)
        assert by_runc == (decided(machine, seccomp.FCNTL[column], 3, command) == EPERM), command
    masked = [rule["args"][0] for rule in config["syscalls"] if rule["names"] == ["futex"]]
    for operation in range(512):
        by_runc = any(operation & rule["value"] == rule["valueTwo"] for rule in masked)
        assert by_runc == (decided(machine, seccomp.FUTEX[column], 1, operation) == EPERM), operation


@pytest.mark.skipif(os.uname().machine not in seccomp.ARCHITECTURES, reason="no numbers for this machine")
def test_the_kernel_takes_it_and_threads_still_start() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, cwd=CLONE, env=environment(), check=False
    )
    assert done.returncode == 0, done.stderr
    before, after = json.loads(done.stdout)
    assert before["personality"] == 0 and before["io_uring_setup"] != errno.EPERM
    of_arguments = (*seccomp.FILE_COMMANDS, *seccomp.FUTEX_OPERATIONS)
    assert errno.EPERM not in {before[name] for name in (*of_arguments, "inotify_init1")}
    assert after == {name: errno.ENOSYS if name == "clone3" else errno.EPERM for name in before}
