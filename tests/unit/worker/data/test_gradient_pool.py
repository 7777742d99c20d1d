import mmap
import os
import threading

import pytest

from testbed.worker.data.gradient_pool import seal


def test_the_pool_is_sealed_once_the_kernel_lets_go_of_its_pages() -> None:
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, mmap.PAGESIZE)
    writable = mmap.mmap(fd, mmap.PAGESIZE)
    with pytest.raises(OSError, match="busy"):
        seal(fd, patience_s=0.0)
    threading.Timer(0.1, writable.close).start()
    seal(fd, patience_s=100.0)
    with pytest.raises(PermissionError):
        os.write(fd, b"x")
    os.close(fd)
