"""Lengths of training steps that papers and their authors' repositories give, each with its source.

Nobody published when gradients are ready. So a device of a paper takes the shape of a measured accelerator's timeline
(`SHAPE`) and the length that is given here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from testbed.core.device.timelines.timeline import Phases

SHAPE = "h200", "tf32"
"""Accelerator and precision whose timelines give the shape; the papers computed in float32."""
UNNAMED = "unnamed"


@dataclass(frozen=True, kw_only=True)
class Length:
    """Length of one model's step on one device."""

    model: str
    batch_size: int
    seconds: float
    has_optimizer: bool
    """True if it is of a whole step; False if it is of forward and backward."""
    source: str
    sample: str | None = None
    """Size of a sample, where the source gives another one than the timeline."""
    work_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds of K-FAC's work by kind, all factors or Cholesky inverses of the model together, where they are given."""

    def factor(self, phases: Phases) -> float:
        """Return the length over that of a timeline with these phases."""
        return self.seconds / (phases.step_s if self.has_optimizer else phases.forward + phases.backward)


@dataclass(frozen=True, kw_only=True)
class PublishedDevice:
    """A device of papers."""

    device: str
    """Name; `UNNAMED` where the source gives none."""
    lengths: tuple[Length, ...]


_DDL = "HKBU-HPML/ddl-benchmarks, results of 2020-05-29, one GPU: {} samples/s; used for DeAR (ICDCS 2023)"
_SPD = "SPD-KFAC (ICDCS 2021), scripts/time_breakdown.py of shyhuai/kfac_pytorch"
_LEFT = f"{_SPD}: what is left of an iteration without communication, in proportion to ResNet-50's"
_GRACE = "GRACE (ICDCS 2021), released table sands-lab/grace-data"


def _rate(model: str, batch_size: int, samples_s: float, source: str, sample: str | None = None) -> Length:
    """Return a length by the samples that a whole training handles in a second."""
    return Length(
        model=model,
        batch_size=batch_size,
        seconds=batch_size / samples_s,
        has_optimizer=True,
        source=source,
        sample=sample,
    )


def _passes(model: str, batch_size: int, seconds: float, factor_s: float, inverse_s: float, source: str) -> Length:
    """Return a length of forward and backward, with those of all factors and all inverses."""
    return Length(
        model=model,
        batch_size=batch_size,
        seconds=seconds,
        has_optimizer=False,
        source=source,
        work_s={"factor": factor_s, "inverse": inverse_s},
    )


PUBLISHED: Mapping[str, PublishedDevice] = {
    "dear": PublishedDevice(
        device=UNNAMED,
        lengths=(
            _rate("resnet50", 64, 253.1, _DDL.format(253.1)),
            _rate("bert-base", 64, 212.8, _DDL.format(212.8), "64 tokens"),
            _rate("bert-large", 8, 49.0, _DDL.format(49), "64 tokens"),
        ),
    ),
    "spd_kfac": PublishedDevice(
        device="NVIDIA RTX 2080 Ti",
        lengths=(
            _passes("resnet50", 32, 0.132, 0.209, 0.292, f"{_SPD}: forward and backward"),
            _passes("resnet152", 8, 0.123, 0.191, 0.676, _LEFT),
            _passes("densenet201", 16, 0.296, 0.369, 0.482, _LEFT),
            _passes("inception_v4", 16, 0.158, 0.216, 0.431, _LEFT),
        ),
    ),
    "grace": PublishedDevice(
        device="NVIDIA V100",
        lengths=(
            _rate(
                "resnet50",
                96,
                385.0,
                f"{_GRACE}: 2,200 images/s of eight GPUs times 1.40, the least that one does; the batch is assumed",
            ),
            _rate(
                "vgg19",
                64,
                213.3,
                f"{_GRACE}: ResNet-50's rate times what a P100 does of VGG-16 over ResNet-50 (154/219, TensorFlow's"
                " benchmarks, May 2017), by FLOPs for VGG-19; the batch is assumed",
            ),
        ),
    ),
}
"""Devices by the work that gave their lengths."""
