"""`longhaul profile --trace`: the timeline and the table of a model whose training was traced elsewhere."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from rich import box
from rich.table import Table

from testbed.core.errors import EXIT_COMPLETED, InputError
from testbed.core.models.catalogue import MODEL_NAMES, Model, find_model
from testbed.core.models.model_file import model_faults, model_to_json
from testbed.core.record.run_directory import write_json
from testbed.core.units import format_time
from testbed.orchestrator.cli.traces.imported import Imported, imported
from testbed.orchestrator.machine.ownership import give_to_caller, place
from testbed.orchestrator.terminal.spoken import spoken, spoken_time
from testbed.orchestrator.terminal.terminal import show, tell

_MAX_STEP_S = 1e6


def from_trace(trace: Path, parameters: Path, output: Path, *, step_s: float | None) -> int:
    """Write the timeline to `output`, and the model's table beside it, as NAME.model.json.

    Args:
        step_s: Seconds of a step without the profiler; None: not known.

    Raises:
        InputError: A file cannot be read or written, or they are not of one training.
    """
    if step_s is not None and not 0 < step_s < _MAX_STEP_S:
        raise InputError(f"--step-s {step_s:g}: must be above 0 and below {_MAX_STEP_S:g}")
    found = imported(trace, parameters, step_s)
    if faults := [f"{parameters}: {fault}" for fault in model_faults(model_to_json(found.model))]:
        raise InputError(*faults)
    table_file = output.with_suffix(".model.json")
    made = place(output)
    write_json(output, found.timeline.to_json())
    write_json(table_file, model_to_json(found.model))
    give_to_caller(made)
    if made != table_file:
        give_to_caller(table_file)
    show(_table(found))
    for note in found.notes:
        tell(f"not checked: {note}")
    if same := _same_as(found.model):
        tell(f"its tensors are those of {same}: workload.model={same} serves too")
    tell(f"written to {output} and {table_file}; use them with")
    size = found.timeline.batch_size
    tell(
        f"workload=replay workload.model={table_file.absolute()} batch_size={size} device=profile"
        f" device.file={output.absolute()}"
    )
    return EXIT_COMPLETED


def _table(found: Imported) -> Table:
    timeline = found.timeline
    title = f"{found.model.name}, batches of {timeline.batch_size}, {timeline.precision}: {timeline.device}"
    view = Table(title=title, title_justify="left", box=box.SIMPLE)
    for heading in ("layer", "parameters", "begins", "gradients ready", "GFLOP forward"):
        view.add_column(heading, justify="left" if heading == "layer" else "right")
    timeline = timeline.without_hooks()
    starts = {name: at_s for name, _, at_s in timeline.forward_start_s}
    ready = {name.rpartition(".")[0]: at_s for name, _, at_s in timeline.gradient_ready_s}
    for layer in found.model.layers:
        begin = spoken_time(starts[layer.name]) if layer.name in starts else "not known"
        last = ready.get(layer.name, ready.get(""))
        view.add_row(
            layer.name,
            f"{layer.numel:,}",
            begin,
            "" if last is None else spoken_time(last),
            spoken(layer.forward_flop * timeline.batch_size / 1e9),
        )
    phases = timeline.phases_s
    view.add_section()
    view.add_row("all", f"{found.model.parameters:,}", spoken_time(phases.forward), spoken_time(phases.backward), "")
    view.caption = f"optimizer ({timeline.optimizer}): {format_time(phases.optimizer)}"
    return view


def _same_as(model: Model) -> str | None:
    shapes = Counter(model.shapes)
    return next((name for name in MODEL_NAMES if Counter(find_model(name).shapes) == shapes), None)
