"""Codecs that do to their helper process what a C library may do to hostile bytes."""

from __future__ import annotations

import time
from pathlib import Path

import torch

from compressors.parts import codec_child
from compressors.parts.codec_process import CodecProcess

BYTES = torch.arange(64, dtype=torch.uint8)
HOSTILE = f"""
import importlib.util, os, signal, sys, time
spec = importlib.util.spec_from_file_location("codec_child", {str(Path(codec_child.__file__))!r})
child = importlib.util.module_from_spec(spec)
spec.loader.exec_module(child)

def copy(source, out):
    out[:len(source)] = source
    return len(source)
def allocate(source, out):
    blocks = []
    while True:
        blocks.append(bytearray(1 << 20))
def crash(source, out): os.kill(os.getpid(), signal.SIGSEGV)
def abort(source, out): os.abort()
def leave(source, out): os._exit(0)
def spin(source, out):
    while True: pass
def wait(source, out): time.sleep(600)
def work(source, out):
    end_s = time.thread_time() + 0.4
    while time.thread_time() < end_s: pass
    return copy(source, out)
def told(source, out):
    open(sys.argv[0] + ".begun", "w").close()
    while not os.path.exists(sys.argv[0] + ".go"):
        time.sleep(0.01)
    return copy(source, out)
def brief(source, out): return 1
for op in (copy, allocate, crash, abort, leave, spin, wait, work, told, brief):
    child.OPERATIONS[op.__name__ + "_decode"] = child.OPERATIONS[op.__name__ + "_encode"] = op
    child.LIBRARIES[op.__name__] = "json"
child.OPERATIONS["absent_decode"], child.LIBRARIES["absent"] = copy, "no_such_library"
child.start(sys.argv[1:])
"""


def pid_of(helper: CodecProcess) -> int:
    helper.decode("copy", BYTES, 64)
    assert helper.pid is not None
    return helper.pid


def is_there(pid: int) -> bool:
    """Zombies are."""
    return Path(f"/proc/{pid}").exists()


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until_gone(pid: int, within_s: float) -> bool:
    end_s = time.monotonic() + within_s
    while runs(pid) and time.monotonic() < end_s:
        time.sleep(0.02)
    return not runs(pid)
