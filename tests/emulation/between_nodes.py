"""Runs in two containers of a run and tries to pass a word from one to the other without the network between them.

`between_nodes.py leave` leaves the word by every class of way and stays; `between_nodes.py take` prints a JSON object:
way -> what it took, null where there was nothing to take. Further arguments are the only places for files.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import mmap
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

WORD = b"longhaul-word-between-nodes"
PORT = 47_001
KEY = 0x6C6F6E67
PLACES = ("/tmp", "/var/tmp", "/dev/shm", "/dev", "/run", "/run/longhaul", "/run/longhaul/store", ".")
READ_BY_ALL, USER_NAMESPACE = "/usr/bin/env", "/proc/self/ns/user"
TELEMETRY = "/run/longhaul/telemetry.sock"
"""Files that are the same ones in all nodes of a run."""
_LOCK = "hhqqi4x"
_AT = int.from_bytes(WORD[:7])
_OFD_SETLK, _SET_HINT, _GET_HINT, _OPENED, _HINT = 37, 1036, 1035, 0x20, 4
_CREATE = 0o1000 | 0o666
_SIZE = 4096
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
_FUTEX, _IO_SETUP = {"x86_64": (202, 206), "aarch64": (98, 0)}[os.uname().machine]
_FUTEX_WAIT, _FUTEX_REQUEUE, _WAITERS, _REQUESTS = 0, 3, 7, 1313
_NO_PAGE = ctypes.c_void_p(-1).value
held: list[object] = []


class _Message(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_long), ("text", ctypes.c_char * 64))


def checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def places() -> Iterator[Path]:
    """Yield every directory that can be written to: those that are known, and all that are mounted."""
    mounted = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    for name in sys.argv[2:] or dict.fromkeys((*PLACES, *mounted)):
        if os.path.isdir(name) and not name.startswith("/proc") and os.access(name, os.W_OK):
            yield Path(name)


def leave_files() -> None:
    for place in places():
        with contextlib.suppress(OSError):
            (place / WORD.decode()).write_bytes(WORD)


def take_files() -> bytes:
    return next((place / WORD.decode()).read_bytes() for place in places() if (place / WORD.decode()).exists())


def leave_paths() -> None:
    for place in places():
        with contextlib.suppress(OSError):
            _serve(socket.AF_UNIX, str(place / "word.sock"))


def take_paths() -> bytes:
    return next(_called(socket.AF_UNIX, str(path)) for place in places() for path in place.glob("word.sock"))


def _serve(family: int, address: object) -> None:
    server = socket.socket(family)
    server.bind(address)  # type: ignore[arg-type]
    server.listen()
    held.append(server)
    if os.fork() == 0:
        while True:
            connection, _ = server.accept()
            connection.sendall(WORD)
            connection.close()


def _called(family: int, address: object) -> bytes:
    with socket.socket(family) as client:
        client.settimeout(5)
        client.connect(address)  # type: ignore[arg-type]
        return client.recv(100)


def leave_datagram() -> None:
    """An address that is taken says something to whoever wants it too."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    server.bind("\0" + WORD.decode() + ".taken")
    held.append(server)


def take_datagram() -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        try:
            other.bind("\0" + WORD.decode() + ".taken")
        except OSError:
            return b"the address is taken"
    raise OSError


def leave_memory() -> None:
    at = libc.shmat(checked(libc.shmget(KEY, _SIZE, _CREATE)), None, 0)
    ctypes.memmove(at, WORD, len(WORD))


def take_memory() -> bytes:
    return ctypes.string_at(libc.shmat(checked(libc.shmget(KEY, _SIZE, 0)), None, 0), len(WORD))


def leave_queue() -> None:
    message = _Message(1, WORD)
    checked(libc.msgsnd(checked(libc.msgget(KEY, _CREATE)), ctypes.byref(message), 64, 0))


def take_queue() -> bytes:
    message = _Message()
    checked(libc.msgrcv(checked(libc.msgget(KEY, 0)), ctypes.byref(message), 64, 0, 0o4000))
    return bytes(message.text)


def leave_semaphore() -> None:
    checked(libc.semget(KEY, 1, _CREATE))


def take_semaphore() -> bytes:
    return str(checked(libc.semget(KEY, 1, 0))).encode()


def _posix_queue(flags: int) -> int:
    name = b"/" + WORD
    return checked(libc.mq_open(name, flags, 0o666, None))


def leave_posix_queue() -> None:
    checked(libc.mq_send(_posix_queue(os.O_CREAT | os.O_RDWR), WORD, len(WORD), 0))


def take_posix_queue() -> bytes:
    text = ctypes.create_string_buffer(8192)
    size = checked(libc.mq_receive(_posix_queue(os.O_RDWR | os.O_NONBLOCK), text, 8192, None))
    return text.raw[:size]


def leave_name() -> None:
    checked(libc.prctl(15, WORD[:15], 0, 0, 0))


def take_process() -> bytes:
    """By what another process is called, or by its memory, environment or files."""
    mine = {os.getpid(), os.getppid()}
    for path in Path("/proc").glob("[0-9]*/comm"):
        if int(path.parent.name) not in mine and path.read_bytes().startswith(WORD[:10]):
            return path.read_bytes()
    raise OSError


def leave_key() -> None:
    checked(libc.syscall(248, b"user", WORD, WORD, len(WORD), -4))


def take_key() -> bytes:
    key = checked(libc.syscall(249, b"user", WORD, None, -4))
    libc.syscall(250, 9, key, -4)  # or it would be there for the next test
    return str(key).encode()


def leave_host_name() -> None:
    checked(libc.sethostname(WORD, len(WORD)))


def take_host_name() -> bytes:
    if socket.gethostname() == WORD.decode():
        return WORD
    raise OSError


def leave_setting() -> None:
    """One of the namespace of IPC, so that a test on the host changes nothing of the host's."""
    Path("/proc/sys/kernel/msgmax").write_text(str(PORT))


def take_setting() -> bytes:
    if (found := Path("/proc/sys/kernel/msgmax").read_bytes()).startswith(str(PORT).encode()):
        return found
    raise OSError


def read_by_all() -> str:
    """Return a file that both have, which nothing but a lock or a watch can be left on."""
    if not sys.argv[2:]:
        return READ_BY_ALL
    path = Path(sys.argv[2], "read")
    if not path.exists():
        path.write_bytes(bytes(_SIZE))
    return str(path)


def leave_time() -> None:
    """A file's time is a number of its owner's choice, to the nanosecond; rootless workers own what their user owns."""
    for path in filter(os.path.exists, (TELEMETRY, read_by_all())):
        os.utime(path, ns=(_AT, _AT))


def take_time() -> bytes:
    for path in (read_by_all(), TELEMETRY):
        with contextlib.suppress(FileNotFoundError):
            if os.stat(path).st_mtime_ns == _AT:
                return path.encode()
    raise OSError


def _opened(path: str) -> int:
    descriptor = os.open(path, os.O_RDONLY)
    held.append(descriptor)
    return descriptor


def leave_lock(path: str, command: int = fcntl.F_SETLK) -> None:
    """A lock's place is a number of the sender's choice, beyond the end of any file."""
    fcntl.fcntl(_opened(path), command, struct.pack(_LOCK, fcntl.F_RDLCK, os.SEEK_SET, _AT, 1, 0))


def take_lock(path: str) -> bytes:
    asked = struct.pack(_LOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, at, *_ = struct.unpack(_LOCK, fcntl.fcntl(_opened(path), fcntl.F_GETLK, asked))
    if kind == fcntl.F_UNLCK:
        raise OSError
    return bytes(at.to_bytes(8))


def leave_listed_lock() -> None:
    """On a file of its own: /proc/locks lists those of open files for everybody, with their places."""
    path = next(places()) / "locked"
    path.touch()
    leave_lock(str(path), _OFD_SETLK)


def take_listed_lock() -> bytes:
    return next(line for line in Path("/proc/locks").read_bytes().splitlines() if str(_AT).encode() in line)


def leave_opening() -> None:
    """To whoever watches a folder each opening tells the file's name."""
    path = read_by_all()
    if os.fork() == 0:
        while True:
            os.close(os.open(path, os.O_RDONLY))
            time.sleep(0.02)


def take_opening() -> bytes:
    watching = checked(libc.inotify_init())
    checked(libc.inotify_add_watch(watching, os.fsencode(os.path.dirname(read_by_all())), _OPENED))
    if not select.select([watching], [], [], 2)[0]:
        raise OSError
    return os.read(watching, 4096)[16:].rstrip(b"\0")


def _leased() -> int:
    """Opened by nobody else: who wants to write alone is refused where another has the file open at all."""
    if sys.argv[2:]:
        Path(sys.argv[2], "leased").touch()
    return _opened(f"{sys.argv[2]}/leased" if sys.argv[2:] else "/usr/bin/cat")


def leave_lease() -> None:
    fcntl.fcntl(_leased(), fcntl.F_SETLEASE, fcntl.F_RDLCK)


def take_lease() -> bytes:
    try:
        fcntl.fcntl(_leased(), fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except BlockingIOError:
        return b"a lease is held"
    raise OSError


def _word(path: str) -> int:
    """The address of a word that all processes see which map the file."""
    page = libc.mmap(None, _SIZE, mmap.PROT_READ, mmap.MAP_SHARED, _opened(path), 0)
    if page == _NO_PAGE:
        raise OSError
    return int(page)


def leave_waiters() -> None:
    word = _word(read_by_all())
    value = ctypes.c_uint32.from_address(word).value
    for _ in range(_WAITERS):
        if os.fork() == 0:
            while True:
                libc.syscall(ctypes.c_long(_FUTEX), ctypes.c_ulong(word), _FUTEX_WAIT, value, None, None, 0)


def take_waiters() -> bytes:
    word = ctypes.c_ulong(_word(read_by_all()))
    other = ctypes.c_ulong(word.value + 64)
    time.sleep(0.5)  # until all of them wait
    moved = libc.syscall(ctypes.c_long(_FUTEX), word, _FUTEX_REQUEUE, 0, ctypes.c_ulong(1000), other, 0)
    if checked(moved) == 0:
        raise OSError
    return f"{moved} wait".encode()


def leave_count() -> None:
    """How many requests a process may make at once is counted for the machine."""
    context = ctypes.c_ulong(0)
    checked(libc.syscall(ctypes.c_long(_IO_SETUP), _REQUESTS, ctypes.byref(context)))


def take_count() -> bytes:
    text = Path("/proc/sys/fs/aio-nr").read_text().strip()
    if not text or int(text) < _REQUESTS:
        raise OSError
    return text.encode()


def leave_hint() -> None:
    fcntl.fcntl(_opened(read_by_all()), _SET_HINT, struct.pack("Q", _HINT))


def take_hint() -> bytes:
    (hint,) = struct.unpack("Q", fcntl.fcntl(_opened(read_by_all()), _GET_HINT, bytes(8)))
    if hint != _HINT:
        raise OSError
    return b"the hint is there"


WAYS: dict[str, tuple[Callable[[], None], Callable[[], bytes]]] = {
    "a file in a place that can be written to": (leave_files, take_files),
    "a Unix socket by its path": (leave_paths, take_paths),
    "an abstract Unix socket": (
        lambda: _serve(socket.AF_UNIX, "\0" + WORD.decode()),
        lambda: _called(socket.AF_UNIX, "\0" + WORD.decode()),
    ),
    "a Unix address that is taken": (leave_datagram, take_datagram),
    "loopback": (
        lambda: _serve(socket.AF_INET, ("127.0.0.1", PORT)),
        lambda: _called(socket.AF_INET, ("127.0.0.1", PORT)),
    ),
    "loopback, IPv6": (
        lambda: _serve(socket.AF_INET6, ("::", PORT + 1)),
        lambda: _called(socket.AF_INET6, ("::1", PORT + 1)),
    ),
    "shared memory of System V": (leave_memory, take_memory),
    "a message queue of System V": (leave_queue, take_queue),
    "a semaphore of System V": (leave_semaphore, take_semaphore),
    "a message queue of POSIX": (leave_posix_queue, take_posix_queue),
    "another process": (leave_name, take_process),
    "a key of the kernel": (leave_key, take_key),
    "the host's name": (leave_host_name, take_host_name),
    "a setting of the kernel": (leave_setting, take_setting),
    "the time of a file": (leave_time, take_time),
    "the place of a lock": (lambda: leave_lock(read_by_all()), lambda: take_lock(read_by_all())),
    "the place of a lock of a namespace": (lambda: leave_lock(USER_NAMESPACE), lambda: take_lock(USER_NAMESPACE)),
    "a lock that the kernel lists": (leave_listed_lock, take_listed_lock),
    "a folder that is watched": (leave_opening, take_opening),
    "a lease": (leave_lease, take_lease),
    "how long a file is said to live": (leave_hint, take_hint),
    "how many wait at a word of a file": (leave_waiters, take_waiters),
    "how many requests the machine counts": (leave_count, take_count),
}


def main() -> None:
    if sys.argv[1] == "leave":
        left = []
        for way, (leave, _) in WAYS.items():
            with contextlib.suppress(OSError):
                leave()
                left.append(way)
        print(json.dumps({"left": left, "places": [str(place) for place in places()]}), flush=True)
        time.sleep(600)
    took: dict[str, str | None] = {}
    for way, (_, take) in WAYS.items():
        try:
            took[way] = repr(take())
        except (OSError, StopIteration):
            took[way] = None
    print(json.dumps(took), flush=True)


if __name__ == "__main__":
    main()
