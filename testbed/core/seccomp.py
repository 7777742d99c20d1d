"""System calls that nothing in a node may make: one table, for runc and for processes that load a filter themselves.

A list of what is denied, not of what is allowed: a user's plug-in may do what a program does, but not make or enter
namespaces, mount, trace, load code into the kernel, set the machine's clock, open sockets other than those of Unix,
IP and netlink, or leave values on files that all nodes read, as locks and watches do. Most of it the lack of
capabilities and the namespaces refuse already; the filter keeps it from the kernel's code altogether. `clone3` passes
its flags by pointer, which no filter can see: it is denied as unknown, and the C library falls back to `clone`.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

DENIED: dict[str, tuple[int | None, int | None]] = {
    # root file system and mounts
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_by_handle_at": (304, 265),
    "lookup_dcookie": (212, 18),
    "fanotify_init": (300, 262),
    "uselib": (134, None),
    "ustat": (136, None),
    "sysfs": (139, None),
    # namespaces
    "setns": (308, 268),
    "unshare": (272, 97),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    # who reads a file, or waits at a word of one, that other nodes read too
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "inotify_add_watch": (254, 27),
    "futex_waitv": (449, 449),
    # what has often been a way into the kernel
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "personality": (135, 92),
    # the kernel itself
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "create_module": (174, None),
    "get_kernel_syms": (177, None),
    "query_module": (178, None),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "syslog": (103, 116),
    "_sysctl": (156, None),
    "nfsservctl": (180, 42),
    "iopl": (172, None),
    "ioperm": (173, None),
    # the machine's clock, swap, quota, accounting, terminal
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "acct": (163, 89),
    "vhangup": (153, 58),
}
"""Refused with EPERM. Numbers on x86-64 and aarch64; None where there is no such call."""
CLONE, CLONE3, SOCKET, FCNTL, FUTEX = (56, 220), (435, 435), (41, 198), (72, 25), (202, 98)
NEW_NAMESPACES = {
    "CLONE_NEWNS": 0x00020000,
    "CLONE_NEWCGROUP": 0x02000000,
    "CLONE_NEWUTS": 0x04000000,
    "CLONE_NEWIPC": 0x08000000,
    "CLONE_NEWUSER": 0x10000000,
    "CLONE_NEWPID": 0x20000000,
    "CLONE_NEWNET": 0x40000000,
}
"""`clone` with one of these is refused; the eighth, for time, no flag of `clone` can ask for."""
SOCKET_FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}
"""All that a process in a node may open."""

FILE_COMMANDS = {
    "F_GETLK": 5,
    "F_OFD_GETLK": 36,
    "F_OFD_SETLK": 37,
    "F_OFD_SETLKW": 38,
    "F_SETLEASE": 1024,
    "F_NOTIFY": 1026,
    "F_SET_RW_HINT": 1036,
    "F_SETDELEG": 1040,
}
"""`fcntl` with one of these is refused. A lock holds two numbers of 63 bits, also on a file that nobody can write to:
F_GETLK and /proc/locks tell them to other nodes. To take a lock, or to fail, tells one bit."""
FUTEX_OPERATIONS = {"FUTEX_REQUEUE": 3, "FUTEX_CMP_REQUEUE": 4, "FUTEX_WAKE_OP": 5, "FUTEX_CMP_REQUEUE_PI": 12}
"""Refused where processes share the word, which may lie in a file that all nodes read: they tell how many wait there.
Waiting and waking, which `multiprocessing` needs, are not refused."""


@dataclass(frozen=True)
class Architecture:
    """A processor's column of the table."""

    column: int
    audit: int
    """As the kernel names it to a filter."""
    runc: str


ARCHITECTURES = {
    "x86_64": Architecture(0, 0xC000003E, "SCMP_ARCH_X86_64"),
    "aarch64": Architecture(1, 0xC00000B7, "SCMP_ARCH_AARCH64"),
}
_X32 = 0x40000000
"""Numbers from here on are x86-64's second set of calls; like calls of another architecture they end the process."""


def architecture(machine: str) -> Architecture:
    """
    Args:
        machine: as `os.uname` names it.

    Raises:
        ValueError: there are no numbers for it.
    """
    if machine not in ARCHITECTURES:
        raise ValueError(f"no filter of system calls for {machine}; known: {', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[machine]


def runc_config(machine: str) -> dict[str, Any]:
    """`linux.seccomp` of an OCI container."""
    found = architecture(machine)

    def refused(name: str, number: int = errno.EPERM, **argument: Any) -> dict[str, Any]:
        arguments = [{"index": 0} | argument] if argument else []
        return {"names": [name], "action": "SCMP_ACT_ERRNO", "errnoRet": number, "args": arguments}

    families = sorted(SOCKET_FAMILIES.values())
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": [found.runc],
        "syscalls": [
            *(refused(name) for name, numbers in DENIED.items() if numbers[found.column] is not None),
            refused("clone3", errno.ENOSYS),
            *(refused("clone", value=flag, valueTwo=flag, op="SCMP_CMP_MASKED_EQ") for flag in NEW_NAMESPACES.values()),
            # a rule says "or" of its neighbours and never "not one of these"
            *(refused("socket", value=f, op="SCMP_CMP_EQ") for f in range(families[-1]) if f not in families),
            refused("socket", value=families[-1], op="SCMP_CMP_GT"),
            *(
                refused("fcntl", index=1, value=_LOW_HALF, valueTwo=command, op="SCMP_CMP_MASKED_EQ")
                for command in FILE_COMMANDS.values()
            ),
            *(
                refused("futex", index=1, value=_SHARED, valueTwo=operation, op="SCMP_CMP_MASKED_EQ")
                for operation in FUTEX_OPERATIONS.values()
            ),
        ],
    }


_LOW_HALF = 0xFFFFFFFF
"""All of an argument that the kernel reads as an `unsigned int`."""
_SHARED = 0xFF
"""Bits of a futex's operation: its number, and the flag FUTEX_PRIVATE."""
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_SET, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENT_LOW, _ARGUMENT_HIGH, _SECOND_LOW = 0, 4, 16, 20, 24
"""Offsets in the kernel's `struct seccomp_data`, on machines that store the low half first."""
KILL, ALLOW, _ERRNO = 0x80000000, 0x7FFF0000, 0x00050000

Instruction = tuple[int, int, int, int]
"""Code, jump if true, jump if false, operand."""


def program(machine: str) -> bytes:
    """The same as a classic BPF program, for `prctl(PR_SET_SECCOMP)`."""
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions(machine))


def instructions(machine: str) -> list[Instruction]:
    found = architecture(machine)
    column = found.column
    refuse = (_RETURN, 0, 0, _ERRNO | errno.EPERM)
    code: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, found.audit),
        (_RETURN, 0, 0, KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        code += [(_JUMP_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, KILL)]
    for numbers in DENIED.values():
        if (number := numbers[column]) is not None:
            code += _if_number(number, [refuse])
    code += _if_number(CLONE3[column], [(_RETURN, 0, 0, _ERRNO | errno.ENOSYS)])
    flags = sum(NEW_NAMESPACES.values())
    allow = (_RETURN, 0, 0, ALLOW)
    code += _if_number(CLONE[column], [(_LOAD, 0, 0, _ARGUMENT_LOW), (_JUMP_SET, 0, 1, flags), refuse, allow])
    code += _if_number(SOCKET[column], [*_one_of(sorted(SOCKET_FAMILIES.values())), refuse])
    second = (_LOAD, 0, 0, _SECOND_LOW)
    code += _if_number(FCNTL[column], [second, *_none_of(FILE_COMMANDS.values(), refuse), allow])
    operations = _none_of(FUTEX_OPERATIONS.values(), refuse)
    code += _if_number(FUTEX[column], [second, (_AND, 0, 0, _SHARED), *operations, allow])
    return [*code, allow]


def _if_number(number: int, then: Sequence[Instruction]) -> list[Instruction]:
    """`then` returns; otherwise what follows goes on with the call's number still loaded."""
    return [(_JUMP_EQUAL, 0, len(then), number), *then]


def _none_of(values: Iterable[int], refuse: Instruction) -> list[Instruction]:
    """`refuse` for what is loaded and one of `values`; otherwise what follows."""
    return [part for value in values for part in ((_JUMP_EQUAL, 0, 1, value), refuse)]


def _one_of(values: Sequence[int]) -> list[Instruction]:
    """Return "allow" if the first argument, all 64 bits of it, is one of `values`."""
    code: list[Instruction] = [
        (_LOAD, 0, 0, _ARGUMENT_HIGH),
        (_JUMP_EQUAL, 0, 1 + 2 * len(values), 0),
        (_LOAD, 0, 0, _ARGUMENT_LOW),
    ]
    for value in values:
        code += [(_JUMP_EQUAL, 0, 1, value), (_RETURN, 0, 0, ALLOW)]
    return code
