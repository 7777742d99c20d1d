"""Longhaul: real distributed training over emulated cross-region links, with a verdict on every run."""

import os as _os
import sys as _sys

__version__ = "2.0.0"

if "SUDO_UID" in _os.environ and _os.geteuid() == 0:
    _sys.dont_write_bytecode = True  # caches in the caller's clone would be root's; setup has made the caller's
