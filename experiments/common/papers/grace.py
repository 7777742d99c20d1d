"""What GRACE's reproduction and its sweep share: models of its benchmark on one GPU of its authors, and its methods.

Of the released table (sands-lab/grace-data) two throughputs of ResNet-50 on eight V100 at 10 Gbit/s say how fast one
GPU is at least: dense over MPI 2,200 images/s, and randomk at 1 % 1.40 times that. VGG-19 follows by what TensorFlow's
benchmarks measured of VGG-16 beside ResNet-50 on one GPU, and by FLOPs; others by FLOPs alone, which makes small
models faster than they were, and so takes the side of compression.

ResNet-50's batch is not in the released scripts. At 1 Gbit/s a ring takes 1.43 s for it, so that randomk's 4.95 times
dense would be more than one GPU's 385 images/s with batches of more than 111: it is taken for 96, the largest multiple
of 32 below, since compression gains less with larger ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from testbed.core.device.by_flop import FORWARD_SHARE
from testbed.core.models.catalogue import find_model

WORKERS = 8
MPI_SAMPLES_S, BEST_RATIO = 2200.0, 1.40
"""Of ResNet-50, eight workers, 10 Gbit/s: dense, and randomk at 1 % over it."""
VGG_TO_RESNET = 154 / 219
"""VGG-16's images/s over ResNet-50's on one P100 (TensorFlow's benchmarks, May 2017)."""


@dataclass(frozen=True)
class Model:
    """One of the benchmark's, on one GPU."""

    name: str
    batch_size: int
    samples_s: float | None = None
    """None: at ResNet-50's FLOP/s."""
    bucket: str = "25 MiB"
    """About a quarter of the gradients where that is less, or nothing would overlap with backward."""

    @property
    def step_s(self) -> float:
        """Forward and backward."""
        if self.samples_s is not None:
            return round(self.batch_size / self.samples_s, 5)
        return round(self.batch_size * find_model(self.name).forward_flop / FLOP_S, 5)

    def all_reduce_s(self, rate_bit_s: float) -> float:
        """A ring's, at the links' rate."""
        return 8 * 2 * (WORKERS - 1) / WORKERS * 4 * find_model(self.name).parameters / rate_bit_s

    def overlapped_s(self, rate_bit_s: float) -> float:
        """A dense step of ideal overlap with backward."""
        forward_s = FORWARD_SHARE * self.step_s
        return forward_s + max(self.step_s - forward_s, self.all_reduce_s(rate_bit_s))


SAMPLES_S = BEST_RATIO * MPI_SAMPLES_S / WORKERS
"""Of ResNet-50 on one GPU."""
FLOP_S = SAMPLES_S * find_model("resnet50").forward_flop
"""Of forward alone, in the time of a whole step."""
_VGG_SAMPLES_S = SAMPLES_S * VGG_TO_RESNET * find_model("vgg16").forward_flop / find_model("vgg19").forward_flop
MODELS = {
    "ResNet-20": Model("resnet20", 256, bucket="256 KiB"),
    "DenseNet-40": Model("densenet40", 256, bucket="1 MiB"),
    "ResNet-50": Model("resnet50", 96, SAMPLES_S),
    "VGG-19": Model("vgg19", 64, _VGG_SAMPLES_S),
    "NCF": Model("ncf", 2_097_152 // WORKERS),
    "LSTM": Model("lstm", 20),
}
"""Batches of one worker: of the released scripts, but ResNet-50's (above), and DenseNet-40's and VGG-19's, assumed."""
DENSE = "dense"
METHODS: dict[str, tuple[str, ...]] = {
    "randomk 1 %": ("compressor=randomk", "compressor.density=0.01"),
    "randomk 10 %": ("compressor=randomk", "compressor.density=0.1"),
    "threshold": ("compressor=threshold",),
    "powersgd": ("compressor=powersgd", "compressor.rank=1"),
    "dgc 1 %": (
        *("compressor=dgc", "compressor.density=0.01", "compressor.warmup_steps=0"),
        "compressor.feedback=plain",  # its momentum is corrected by velocities, of which a replay has none
    ),
    "topk 1 %": ("compressor=topk", "compressor.density=0.01"),
    "topk 10 %": ("compressor=topk", "compressor.density=0.1"),
    "adaq 1 %": ("compressor=adaq", "compressor.density=0.01"),
    "signsgd": ("compressor=signsgd",),
    "efsignsgd": ("compressor=efsignsgd",),
    "onebit": ("compressor=onebit",),
    "qsgd": ("compressor=qsgd",),
    "terngrad": ("compressor=terngrad",),
    "natural": ("compressor=natural",),
    "8bit": ("compressor=dynamic8",),
    "sketch": ("compressor=sketchml", "compressor.buckets=64"),
    "inceptionn": ("compressor=inceptionn",),
}
"""By GRACE's names; with its parameters where they are known, else with our members' own."""


def overrides(model: Model, rate_gbit_s: float, steps: int) -> tuple[str, ...]:
    """Of a dense run, emulated or simulated."""
    return (
        *("topo=lan", f"topo.lan_rate='{rate_gbit_s:g} Gbit/s'", f"workers={WORKERS}", f"steps={steps}"),
        *("workload=replay", f"workload.model={model.name}", f"batch_size={model.batch_size}", "evaluate_every=1000"),
        *("device=paced", f"device.step_s={model.step_s}", "strategy=ddp", f"strategy.bucket_size='{model.bucket}'"),
    )


def facts_of(model: Model, rate_gbit_s: float) -> Mapping[str, str]:
    mark = " (assumed)" if model.samples_s is None else ""
    return {
        "workers": str(WORKERS),
        "one GPU's step, s": f"{model.step_s:.4f}{mark}",
        "ring of dense gradients, s": f"{model.all_reduce_s(rate_gbit_s * 1e9):.4f}",
    }
