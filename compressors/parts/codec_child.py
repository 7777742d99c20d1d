"""The helper process of `codec_process`: runs one C codec at a time, and nothing of the project is imported here.

`python -I -S codec_child.py SOCKET MEMORY LIFELINE DIRECTORY...`: descriptors of a socket of packets, of a memfd and of
a pipe that nobody writes to and that ends with the parent; and where the codec libraries lie. A request is a JSON
object: "op", "size" of the input, which begins the memfd, "capacity" of the output, which follows it, the limits
"memory_bytes", "cpu_s", "wall_s", "parameters" of the op, and a "number" that the reply repeats. The reply is {"size",
"cpu_s"} or {"error"}, with "missing" where the library is not there and "machine" where no limit could be set.

Each op imports its library when first asked, before the limits are set.
"""

from __future__ import annotations

import ctypes
import fcntl
import importlib
import json
import math
import mmap
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

_LARGEST_REQUEST = 1 << 16
_ZFP_HEADER_BYTES, _ZFP_MAX_BYTES = 24, 6
"""Bytes of a stream's header, and of one value in any mode, with room."""

Operation = Callable[..., int]
"""Function (input, output, parameters) -> bytes written. An output that does not fit is an error."""


class CodecError(ValueError):
    """The library refused its input."""


def sz3_encode(source: memoryview, out: memoryview, *, algorithm: int, bound: float) -> int:
    numpy, sz = _load("numpy"), _load("pysz")
    config = sz.szConfig()
    config.errorBoundMode = 0  # absolute
    config.absErrorBound = bound
    config.cmprAlgo = algorithm
    return _store(sz.sz.compress(numpy.frombuffer(source, numpy.float32), config)[0], out)


def sz3_decode(source: memoryview, out: memoryview) -> int:
    numpy, sz = _load("numpy"), _load("pysz")
    values, _ = sz.sz.decompress(numpy.frombuffer(source, numpy.uint8), numpy.float32, (len(out) // 4,))
    return _store(numpy.ascontiguousarray(values), out)


def zfp_encode(source: memoryview, out: memoryview, *, mode: str, value: float) -> int:
    numpy, zfpy = _load("numpy"), _load("zfpy")
    return _store(zfpy.compress_numpy(numpy.frombuffer(source, numpy.float32), **{mode: value}), out)


def zfp_decode(source: memoryview, out: memoryview) -> int:
    numpy, zfpy = _load("numpy"), _load("zfpy")
    # The decoder reads on where a stream ends too early: into zeros, which are ours.
    padded = numpy.zeros(len(source) + _ZFP_HEADER_BYTES + _ZFP_MAX_BYTES * (len(out) // 4 + 4), numpy.uint8)
    padded[: len(source)] = source
    header = zfpy.header(padded)
    found = (header["nx"], header["ny"], header["nz"], header["nw"], numpy.dtype(header["type"]).str)
    if found != (len(out) // 4, 0, 0, 0, "<f4"):
        raise CodecError(f"the stream is of shape and type {found}")
    return _store(zfpy.decompress_numpy(padded), out)


def zstd_encode(source: memoryview, out: memoryview, *, level: int, planes: int) -> int:
    zstandard = _load("zstandard")
    data = _shuffled(source, planes, back=False) if planes > 1 else source
    return _store(zstandard.ZstdCompressor(level=level).compress(data), out)


def zstd_decode(source: memoryview, out: memoryview, *, planes: int) -> int:
    zstandard = _load("zstandard")
    # No window need be larger than what comes out of it, 2^10 at least; no more than that is decoded.
    window = 1 << max(10, math.ceil(math.log2(max(1, len(out)))))
    data = bytearray(len(out)) if planes > 1 else out
    reader = zstandard.ZstdDecompressor(max_window_size=window).stream_reader(source)
    size = 0
    with memoryview(data) as view, reader:
        while size < len(out) and (count := reader.readinto(view[size:])):
            size += count
        if size == len(out) and reader.read(1):
            raise CodecError(f"the stream decodes to more than {len(out)} bytes")
    if size == len(out) and planes > 1:
        _store(_shuffled(memoryview(data), planes, back=True), out)
    return size


def blosc2_encode(source: memoryview, out: memoryview, *, codec: str, shuffle: int, level: int) -> int:
    library = _blosc2()
    library.blosc1_set_compressor(codec.encode())
    size = library.blosc2_compress(level, shuffle, 4, _at(source), len(source), _at(out), len(out))
    if size <= 0:
        raise CodecError(f"blosc2_compress answered {size}")
    return int(size)


def blosc2_decode(source: memoryview, out: memoryview) -> int:
    size = _blosc2().blosc2_decompress(_at(source), len(source), _at(out), len(out))
    if size < 0:
        raise CodecError(f"blosc2_decompress answered {size}")
    return int(size)


OPERATIONS: dict[str, Operation] = {
    "sz3_encode": sz3_encode,
    "sz3_decode": sz3_decode,
    "zfp_encode": zfp_encode,
    "zfp_decode": zfp_decode,
    "zstd_encode": zstd_encode,
    "zstd_decode": zstd_decode,
    "blosc2_encode": blosc2_encode,
    "blosc2_decode": blosc2_decode,
}
LIBRARIES = {"sz3": "pysz", "zfp": "zfpy", "zstd": "zstandard", "blosc2": "blosc2"}
_loaded: dict[str, Any] = {}


def _load(name: str) -> Any:
    if name not in _loaded:
        _loaded[name] = _blosc2_library() if name == "blosc2" else importlib.import_module(name)
    return _loaded[name]


def _blosc2() -> Any:
    return _load("blosc2")


def _blosc2_library() -> ctypes.CDLL:
    """The C library of the package, without the package, which is 100 modules and a pool of threads."""
    for directory in sys.path:
        path = os.path.join(directory, "blosc2", "lib", "libblosc2.so")
        if os.path.exists(path):
            library = ctypes.CDLL(path)
            library.blosc2_init()
            library.blosc2_set_nthreads(1)
            return library
    raise ImportError("no blosc2/lib/libblosc2.so; it comes with blosc2 4")


def _at(view: memoryview) -> ctypes.c_void_p:
    return ctypes.c_void_p(_load("numpy").frombuffer(view, "u1").ctypes.data)


def _store(data: Any, out: memoryview) -> int:
    with memoryview(data).cast("B") as view:
        if len(view) > len(out):
            raise CodecError(f"{len(view)} bytes are more than the {len(out)} there is room for")
        out[: len(view)] = view
        return len(view)


def _shuffled(data: memoryview, planes: int, *, back: bool) -> Any:
    """The first bytes of all values, then all second ones, and so on; what is left over stays at the end."""
    numpy = _load("numpy")
    flat = numpy.frombuffer(data, numpy.uint8)
    whole = len(flat) - len(flat) % planes
    shape = (planes, whole // planes) if back else (whole // planes, planes)
    moved = numpy.empty_like(flat)
    moved[:whole].reshape(shape[::-1])[:] = flat[:whole].reshape(shape).T
    moved[whole:] = flat[whole:]
    return moved


def _limit(memory_bytes: int, cpu_s: float, wall_s: float) -> None:
    """Of what this process maps beyond what it has, and of its time: past that the kernel ends it."""
    with open("/proc/self/statm") as file:
        mapped = int(file.read().split()[0]) * mmap.PAGESIZE
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    wanted = mapped + memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (wanted if most == resource.RLIM_INFINITY else min(wanted, most), most))
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    signal.setitimer(signal.ITIMER_REAL, wall_s)


def _unlimit() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.setitimer(signal.ITIMER_PROF, 0)
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _answer(request: dict[str, Any], memory: int) -> dict[str, Any]:
    name, size, capacity = request["op"], request["size"], request["capacity"]
    started_s = time.thread_time()
    try:
        for library in ("numpy", LIBRARIES[name.partition("_")[0]]):
            _load(library)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}", "missing": True}
    try:
        region = memoryview(mmap.mmap(memory, max(1, size + capacity)))
        _limit(request["memory_bytes"], request["cpu_s"], request["wall_s"])
    except Exception as error:
        _unlimit()
        return {"error": f"{type(error).__name__}: {error}", "missing": False, "machine": True}
    try:
        try:
            source, out = region[:size].toreadonly(), region[size : size + capacity]
            written = OPERATIONS[name](source, out, **request["parameters"])
        finally:
            _unlimit()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:1000], "missing": False}
    return {"size": written, "cpu_s": time.thread_time() - started_s}


def _die_with(lifeline: int) -> None:
    """The kernel ends this process when the pipe's other end is closed, also in the middle of a codec.

    PR_SET_PDEATHSIG would do so when the thread ends that forked this process.
    """
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    poll = select.poll()
    poll.register(lifeline, 0)
    if poll.poll(0):  # it was closed before that
        os._exit(1)


def main(connection: socket.socket, memory: int) -> None:
    """Answer requests until the parent's end of the socket is closed."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # meant for the parent, which lets this one go when it ends
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while data := connection.recv(_LARGEST_REQUEST):
        request = json.loads(data)
        connection.send(json.dumps({"number": request.get("number"), **_answer(request, memory)}).encode())


def start(arguments: list[str]) -> None:
    _die_with(int(arguments[2]))
    sys.path += arguments[3:]
    with socket.socket(fileno=int(arguments[0])) as connection:
        main(connection, int(arguments[1]))


if __name__ == "__main__":
    start(sys.argv[1:])
