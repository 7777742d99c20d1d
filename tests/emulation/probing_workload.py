"""A plug-in whose constructor, once it runs in a node, tries what `attempts` tries and says what `facts` says."""

from __future__ import annotations

import json
import os
import random
import sys
from typing import Any

import numpy as np
import torch

from testbed.worker.workloads.digits import Digits


class Probing(Digits):
    """
    Args:
        tries: arguments of `attempts`; without them it only tells of itself.
        takes_bytes: of memory, at the end.
    """

    def __init__(self, *, tries: dict[str, list[str]], takes_bytes: dict[str, int]) -> None:
        super().__init__()
        node = os.environ.get("LONGHAUL_NODE")
        if node is None:  # in the process that workers are forked from
            self.loaded_by = os.getpid()
            return
        drawn = [random.random(), float(np.random.random()), float(torch.rand(1, dtype=torch.float64))]
        said: dict[str, Any] = {"node": node, "drawn": drawn}
        import facts

        said |= facts.facts()
        if tries.get(node):
            sys.argv = ["attempts", *tries[node]]
            import attempts

            attempts.main()
        sys.stdout.write(json.dumps(said) + "\n")
        if node in takes_bytes:
            taken = bytearray(takes_bytes[node])
            for place in range(0, len(taken), 4096):
                taken[place] = 1
        raise ValueError("that was all")
