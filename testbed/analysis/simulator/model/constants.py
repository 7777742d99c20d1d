"""What the model cannot know by arithmetic: four numbers, fitted to emulated runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

BBR_PACED = math.log(2) / 2
"""BBR sends at 2 / ln 2 times the rate it has seen while it still probes, and it probes on as long as what is sent ends
before the first acknowledgement comes. (Cardwell et al., "BBR: Congestion-Based Congestion Control", ACM Queue 14(5),
2016.)"""
PACED = {"tuned": BBR_PACED, "bbr": BBR_PACED}
"""By TCP profile; all others send what their window holds at once."""


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Of hosts and TCP, as emulated here. The defaults are those of an ideal network."""

    message_s: float = 0.0
    """What one message of a collective costs besides the network: waking up, copying, adding. Wall seconds of the
    machine that emulates, hence divided by a run's dilation."""
    goodput: float = 1.0
    """Of a link's rate, headers counted, what long transfers reach."""
    acknowledged: float = 0.0
    """Bytes of acknowledgements that go back for each byte of payload."""
    message_bytes: float = 0.0
    """On the wire, in each direction, for one message besides its payload: framing, the receiver's notice, and what
    acknowledges both."""


IDEAL = Constants()
