"""Tables of the measured points, as Markdown, and whether each point is inside its target."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from experiments.benchmarks.break_even import tables as break_even_tables
from experiments.benchmarks.composed import tables as composed_tables
from experiments.benchmarks.compressors import tables as compression_tables
from experiments.benchmarks.dear import tables as dear_tables
from experiments.benchmarks.diloco import tables as diloco_tables
from experiments.benchmarks.freezing import tables as freezing_tables
from experiments.benchmarks.fusion import tables as fusion_tables
from experiments.benchmarks.grace import tables as grace_tables
from experiments.benchmarks.kfac import second_order_tables
from experiments.benchmarks.kfac import tables as kfac_tables
from experiments.benchmarks.links.tables import _accuracy, _dilation, _gaps, _loss
from experiments.benchmarks.plans import tables as plans_tables
from experiments.benchmarks.real_wan import tables as real_wan_tables
from experiments.benchmarks.secure import tables as secure_tables
from experiments.benchmarks.simulator import simulator
from experiments.benchmarks.strategies import tables as strategies_tables
from experiments.benchmarks.study_compressors import tables as study_compressors_tables
from experiments.benchmarks.study_scale import tables as study_scale_tables
from experiments.benchmarks.system import tables as system_tables
from experiments.benchmarks.training import tables as run_tables
from experiments.benchmarks.weak_scaling import tables as weak_scaling_tables
from experiments.common.tables import Found


def of(name: str, points: Sequence[Found], beside: Sequence[Found] = ()) -> str:
    """`beside`: the points of `accuracy`, for the table of plain Mininet."""
    return system_tables.mininet(points, beside) if name == "mininet_tclink" else _TABLES[name](points)


_TABLES: dict[str, Callable[[Sequence[Found]], str]] = {
    "accuracy": _accuracy,
    "gaps": _gaps,
    "loss": _loss,
    "netem": system_tables.netem,
    "set_up": system_tables.set_up,
    "start_up": system_tables.start_up,
    "cost": system_tables.cost,
    "monitor": system_tables.monitor,
    "observation": system_tables.observation,
    "dilation": _dilation,
    **run_tables.TABLES,
    "simulator": simulator.simulator,
    **compression_tables.TABLES,
    **dear_tables.TABLES,
    **fusion_tables.TABLES,
    **strategies_tables.TABLES,
    **diloco_tables.TABLES,
    **kfac_tables.TABLES,
    **second_order_tables.TABLES,
    **grace_tables.TABLES,
    **weak_scaling_tables.TABLES,
    **break_even_tables.TABLES,
    **composed_tables.TABLES,
    **secure_tables.TABLES,
    **freezing_tables.TABLES,
    **plans_tables.TABLES,
    **real_wan_tables.TABLES,
    **study_compressors_tables.TABLES,
    **study_scale_tables.TABLES,
}
NAMES = (
    *("accuracy", "gaps", "loss", "mininet_tclink", "netem", "set_up", "start_up", "cost", "monitor", "observation"),
    "dilation",
    *run_tables.TABLES,
    "simulator",
    *compression_tables.TABLES,
    *dear_tables.TABLES,
    *fusion_tables.TABLES,
    *strategies_tables.TABLES,
    *diloco_tables.TABLES,
    *kfac_tables.TABLES,
    *second_order_tables.TABLES,
    *grace_tables.TABLES,
    *weak_scaling_tables.TABLES,
    *break_even_tables.TABLES,
    *composed_tables.TABLES,
    *secure_tables.TABLES,
    *freezing_tables.TABLES,
    *plans_tables.TABLES,
    *real_wan_tables.TABLES,
    *study_compressors_tables.TABLES,
    *study_scale_tables.TABLES,
)
