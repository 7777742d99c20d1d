"""Why a panel's query may have no answer, as a look at the data says."""

from __future__ import annotations

from dashboards.emptiness import EXCUSES
from dashboards.interpolate import Target
from testbed.analysis.preview.opened import Opened


def excuse_of(opened: Opened, target: Target) -> str:
    """Empty if it must have an answer.

    Raises:
        QueryError: Prometheus refused to say.
    """
    for excuse in EXCUSES:
        if excuse.is_for(target.expr) and not opened.source.at(opened.asked(excuse.evidence), opened.end_s):
            return excuse.why
    return ""
