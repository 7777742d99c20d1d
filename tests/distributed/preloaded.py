"""Imported once by the process that ranks are forked from: what each of them would spend seconds on.

As in the process that a run's workers are forked from: no parallel region and no process group, which a fork breaks.
"""

from __future__ import annotations

import torch
import torch._dynamo

from testbed.worker.communication import communicator, shutdown
from testbed.worker.model import checkpoint
from testbed.worker.process import session
from testbed.worker.training import loop, parts

torch.set_num_threads(1)
assert communicator and checkpoint and shutdown and loop and parts and session
