from __future__ import annotations

from testbed.worker.data.published import novels
from testbed.worker.data.published.next_byte import NextByte
from testbed.worker.interfaces.workload import Metric


class Texts(NextByte):
    """Jane Austen's six novels byte by byte, and a transformer of 0.26 million parameters that predicts the next one.

    3.6 million bytes of 244 chapters to train on, and every tenth chapter of a novel, 0.36 million bytes, to test on;
    79 different bytes. A sample is 64 bytes of one chapter, which is its label. The data are in the public domain, from
    Debian's package r-cran-janeaustenr: 1.6 MB, fetched on first use and not installed.

    Bytes embedded in 32 dimensions, a causal convolution over 5 of them, learned positions, and two blocks of width 96
    (Vaswani et al., "Attention Is All You Need", NeurIPS 2017), normalised before each part. AdamW, clipped by the norm
    of all gradients, with a falling rate. The metric is that of 512 sequences, spread evenly over the test part.
    """

    metric = Metric(name="bits_per_byte", target=2.3, higher_is_better=False, least=0.0)
    dataset = novels.DATASET
    _samples = novels.SAMPLES
