"""How many files a run may hold open.

It keeps two descriptors a node and two more a worker; the usual 1024 would end at some 250 nodes.
"""

from __future__ import annotations

import resource

LIMIT_AT_START = resource.getrlimit(resource.RLIMIT_NOFILE)
"""(soft, hard) as this process was given it: what runs in the nodes gets it back."""


def raise_limit() -> None:
    """To the hard limit, for this process and those it starts from now on."""
    _, most = LIMIT_AT_START
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
