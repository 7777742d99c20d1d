"""The commands about time where no run is made: `profile`, `predict`, `plan`."""

from __future__ import annotations

import argparse
from pathlib import Path

from testbed.core.costs.sockets import LIBRARIES
from testbed.core.errors import InputError
from testbed.orchestrator.cli.record import Add, add_runs_root


def add_commands(add: Add) -> None:
    """`add` makes a subcommand's parser of its name, its function and its words."""
    one = add("profile", profile, "Measure how long layers and compressor take, for device=profile.")
    one.add_argument("overrides", nargs="*", metavar="key=value", help="as of a run: workload, batch_size, …")
    one.add_argument("--device", default="cpu", help="cpu, or what torch calls an accelerator: cuda, cuda:1")
    one.add_argument("--precision", default="fp32", help="of a replay's model: fp32, tf32 (on an accelerator) or bf16")
    one.add_argument("--flop-s", type=float, help="instead of measuring: FLOPs a second, assumed")
    one.add_argument("-o", "--output", type=Path, default=Path("profile.json"), metavar="FILE")
    one.add_argument("--trace", type=Path, metavar="FILE", help="instead of measuring: torch.profiler's trace of a job")
    one.add_argument("--parameters", type=Path, metavar="FILE", help="of the traced model, from note_parameters")
    one.add_argument("--step-s", type=float, metavar="SECONDS", help="of the traced step, without the profiler")
    one = add("predict", predict, "Step time and bytes of a run that is not made, of any size; simulated.")
    one.add_argument("overrides", nargs="*", metavar="key=value", help="as of a run, such as workers=1000")
    wrote = "what `longhaul profile` wrote, instead of measuring"
    one.add_argument("--profile", type=Path, metavar="FILE", help=wrote)
    one.add_argument("--run", metavar="RUN_ID", help="take the profiles of a run; alone, predict that run itself")
    real = "all-reduces as on real machines, by the closed form of this library over TCP sockets"
    one.add_argument("--library", choices=tuple(LIBRARIES), help=real)
    one.add_argument("--keep", action="store_true", help="as a run directory too, of kind simulated")
    one.add_argument("--json", action="store_true", help="everything as JSON")
    add_runs_root(one)
    _add_plan(add("plan", plan, "Pipelines, replicas and shards of a model over a network, the fastest first."))


def _add_plan(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as of a run: topo, workload, batch_size, …")
    parser.add_argument("--run", metavar="RUN_ID", help="take links as this run has probed them; alone, its spec too")
    against = "instead of planning: these runs' plans, predicted and measured"
    parser.add_argument("--against", nargs="+", metavar="RUN_ID", help=against)
    parser.add_argument("--memory", metavar="SIZE", help="of each device, such as '2 GB'; without limit by default")
    schedules = "of 1f1b, gpipe, interleaved, with commas; the first two by default"
    parser.add_argument("--schedules", default="1f1b,gpipe", metavar="NAMES", help=schedules)
    parser.add_argument("--all-reduce", default="ring", metavar="NAME", help="of gradients: ring or hierarchical")
    parser.add_argument("--top", type=int, default=10, metavar="N", help="plans to print; 10 by default")
    parser.add_argument("--json", action="store_true", help="everything as JSON")
    add_runs_root(parser)


def profile(parsed: argparse.Namespace) -> int:
    if parsed.trace or parsed.parameters or parsed.step_s is not None:
        from testbed.orchestrator.cli.traces.trace_command import from_trace

        if parsed.overrides or (parsed.device, parsed.precision, parsed.flop_s) != ("cpu", "fp32", None):
            raise InputError("--trace: takes no key=value, --device, --precision or --flop-s; nothing is measured here")
        if parsed.trace is None or parsed.parameters is None:
            raise InputError("--trace and --parameters belong together; give both files")
        return from_trace(parsed.trace, parsed.parameters, parsed.output, step_s=parsed.step_s)
    from testbed.orchestrator.cli.device_profile import profile as measure

    return measure(
        parsed.overrides, parsed.output, device=parsed.device, precision=parsed.precision, flop_s=parsed.flop_s
    )


def predict(parsed: argparse.Namespace) -> int:
    from testbed.orchestrator.search.plan.predict_command import predict as answer

    where = {"profile": parsed.profile, "run_id": parsed.run}
    return answer(parsed.overrides, parsed.runs, **where, library=parsed.library, keep=parsed.keep, as_json=parsed.json)


def plan(parsed: argparse.Namespace) -> int:
    if parsed.against:
        from testbed.orchestrator.search.plan.comparison import against

        if parsed.overrides:
            raise InputError(f"{' '.join(parsed.overrides)}: --against takes nothing but the ids of runs")
        return against(parsed.against, parsed.runs, as_json=parsed.json)
    from testbed.orchestrator.search.plan.plan_command import PlanSearchRequest
    from testbed.orchestrator.search.plan.plan_command import plan as rank

    schedules = tuple(parsed.schedules.split(","))
    asked = PlanSearchRequest(memory=parsed.memory, schedules=schedules, all_reduce=parsed.all_reduce, top=parsed.top)
    return rank(parsed.overrides, parsed.runs, asked, run_id=parsed.run, as_json=parsed.json)
