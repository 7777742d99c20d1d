"""BBR and CUBIC whose seconds are emulated ones: built by clang and given to the kernel by libbpf, for one run.

Their sources are `slowed_bbr.c` and `slowed_cubic.c`. The kernel forgets them when the process that registered them has
ended, however that came, and their last connection with it.
"""

from __future__ import annotations

import ctypes
import functools
import os
import secrets
import shutil
import struct
import subprocess
from pathlib import Path

from testbed.core.errors import MachineError
from testbed.core.spec.paths import WIRE_RATIO

BASES = ("bbr", "cubic")
"""Congestion controls of the kernel that can be had so."""
_COMPILERS = ("clang", *(f"clang-{version}" for version in range(21, 10, -1)))
_BUILD_TIME_LIMIT_S = 60
_NAME_CHARACTERS = 14
"""Of each run's name; the kernel keeps at most 15."""
_NO_CAP = 2**32 - 1
_LINK = 1 << 13
"""BPF_F_LINK: what is registered is so by a descriptor, and as long as that is open (Linux 6.4)."""
_STRUCT_OPS = 44
"""BPF_STRUCT_OPS, the kind of that descriptor."""


class SlowedTcp:
    """A congestion control of the kernel's, registered until it is closed. A context manager.

    Args:
        base: One of `BASES`.
        dilation: Emulated seconds are so many times as long as the wall's.
        cap_bit_s: Most that one connection carries, in emulated time, headers included; None: no cap.

    Raises:
        MachineError: this machine cannot build it, or this kernel does not take it.
    """

    def __init__(self, base: str, dilation: float = 1.0, cap_bit_s: float | None = None) -> None:
        self.name = _named(base, secrets.token_hex(_NAME_CHARACTERS))
        """As the kernel knows it: each run's own, since the whole machine has one list."""
        self._cap_bit_s = cap_bit_s
        self._object = _Object(_built(base).replace(_place(base).encode(), self.name.encode()))
        try:
            self._link = self._object.register(b"slowed")
            try:
                self.set_dilation(dilation)
            except BaseException:
                os.close(self._link)
                raise
        except BaseException:
            self._object.close()
            raise

    def set_dilation(self, dilation: float) -> None:
        """Stretch the times of all its connections, those that are open too, and their cap."""
        cap_bit_s = self._cap_bit_s
        cap_byte_s = _NO_CAP if cap_bit_s is None else round(cap_bit_s / dilation / 8 / WIRE_RATIO)
        self._object.write(b".data", struct.pack("<II", round(1000 * dilation), cap_byte_s))

    def __enter__(self) -> SlowedTcp:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._link)
        self._object.close()


@functools.cache
def lack(base: str) -> str | None:
    """Return why this process cannot have that of a base, found by trying; None if it can."""
    if os.geteuid() != 0:
        return "only root may give the kernel a congestion control"
    try:
        with SlowedTcp(base):
            return None
    except MachineError as error:
        return str(error)


def _named(base: str, rest: str) -> str:
    return f"{base}_{rest}"[:_NAME_CHARACTERS]


def _place(base: str) -> str:
    """Return a name of as many characters as each run's."""
    return _named(base, "x" * _NAME_CHARACTERS)


@functools.cache
def _built(base: str) -> bytes:
    """Return the program with `_place` for its name, built once a process: clang takes 0.2 s."""
    compiler = next((found for found in map(shutil.which, _COMPILERS) if found), None)
    if compiler is None:
        raise MachineError("slowed TCP: no clang to build it with; apt-get install clang-14, or make setup")
    source = Path(__file__).with_name(f"slowed_{base}.c")
    words = [
        compiler,
        "-target",
        "bpf",
        "-mcpu=v3",
        "-O2",
        "-g",
        f'-DNAME="{_place(base)}"',
        "-c",
        str(source),
        "-o",
        "-",
    ]
    try:
        done = subprocess.run(words, capture_output=True, timeout=_BUILD_TIME_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MachineError(f"slowed TCP: {compiler}: {error}") from error
    if done.returncode != 0:
        raise MachineError(f"slowed TCP: {compiler}: {_last_line(done.stderr.decode(errors='replace'))}")
    return done.stdout


def _last_line(text: str) -> str:
    return next(reversed([line for line in text.splitlines() if line.strip()]), "it said nothing")


class _Object:
    """A program in the kernel, brought there by libbpf."""

    def __init__(self, binary: bytes) -> None:
        self._libbpf, self._binary = _libbpf(), binary
        self._pointer = _pointer(self._libbpf.bpf_object__open_mem(binary, ctypes.c_size_t(len(binary)), None))
        if not self._pointer:
            raise _error("libbpf does not read what clang made")

    def register(self, name: bytes) -> int:
        """Give the operations in the map of this name to the kernel; return the descriptor that holds them there."""
        operations = self._map(name)
        self._libbpf.bpf_map__set_map_flags(operations, _LINK)
        if self._libbpf.bpf_object__load(self._pointer) != 0:
            raise _error("this kernel refuses it (it takes Linux 6.10 with BTF)")
        prepared = _pointer(self._libbpf.bpf_map__attach_struct_ops(operations))
        if not prepared:
            raise _error("this kernel does not prepare it")
        held, prepared_as = self._libbpf.bpf_map__fd(operations), self._libbpf.bpf_link__fd(prepared)
        if prepared_as != held:  # libbpf from 1.2 on has made the link by that
            return int(prepared_as)
        link = int(self._libbpf.bpf_link_create(held, 0, _STRUCT_OPS, None))
        if link < 0:
            raise _error("this kernel does not register it")
        return link

    def write(self, section: bytes, value: bytes) -> None:
        """Write the variables of a section, which has these alone."""
        variables = self._libbpf.bpf_map__fd(self._map(section))
        key, anyway = ctypes.byref(ctypes.c_int(0)), ctypes.c_uint64(0)
        if self._libbpf.bpf_map_update_elem(variables, key, value, anyway) != 0:
            raise _error("it takes no dilation")

    def close(self) -> None:
        self._libbpf.bpf_object__close(self._pointer)

    def _map(self, name: bytes) -> ctypes.c_void_p:
        if found := _pointer(self._libbpf.bpf_object__find_map_by_name(self._pointer, name)):
            return found
        raise _error(f"it has no map {name.decode()}")


def _pointer(found: int | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(found)


def _error(what: str) -> MachineError:
    return MachineError(f"slowed TCP: {what}: {os.strerror(ctypes.get_errno())}")


@functools.cache
def _libbpf() -> ctypes.CDLL:
    try:
        found = ctypes.CDLL("libbpf.so.1", use_errno=True)
    except OSError as error:
        raise MachineError("slowed TCP: no libbpf.so.1; apt-get install libbpf1, or make setup") from error
    for name in ("bpf_object__open_mem", "bpf_object__find_map_by_name", "bpf_map__attach_struct_ops"):
        getattr(found, name).restype = ctypes.c_void_p
    found.libbpf_set_print(None)  # or it writes to standard error what the exception says
    return found
