"""Ranks in one process, for tests of single compressors."""

from __future__ import annotations

from testbed.worker.laws.cases.lockstep import contexts, drive, exchange, reduce_all

__all__ = ["contexts", "drive", "exchange", "reduce_all"]
