"""The command `longhaul` (also `python -m testbed`). Exit statuses are those of `core.errors`."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from testbed import __version__
from testbed.core.errors import EXIT_COMPLETED, EXIT_FAILED, LonghaulError
from testbed.core.packages import both_sides_needed
from testbed.core.processes import open_standard_streams
from testbed.orchestrator.cli import estimates, record, search
from testbed.orchestrator.cli.discovery import commands as discovery
from testbed.orchestrator.cli.record import Add, add_runs_root
from testbed.orchestrator.cli.trusted import add_trust, apply_trust
from testbed.orchestrator.machine.checks import with_system_directories
from testbed.orchestrator.machine.clone import RUNS_ROOT
from testbed.orchestrator.terminal.command_line import CommandLineParser
from testbed.orchestrator.terminal.terminal import say, show, tell

_UNWRITTEN = (errno.ENOSPC, errno.EIO, errno.EFBIG)
"""Errors of a standard output on a full disk or a terminal that is gone."""
Command = Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    open_standard_streams()
    os.environ["PATH"] = with_system_directories(os.environ.get("PATH", ""))
    try:
        parsed = _parse(argv)
        command: Command = parsed.command
        with both_sides_needed():
            apply_trust(parsed)
            status = command(parsed)
        sys.stdout.flush()
        return status
    except SystemExit as end:  # argparse: help, version, or a fault it has reported
        return end.code if isinstance(end.code, int) else EXIT_COMPLETED
    except LonghaulError as error:
        for fault in error.faults:
            say(fault)
        return error.exit_status
    except KeyboardInterrupt:
        say("interrupted")
        return EXIT_FAILED
    except BrokenPipeError:  # the reader of our output has gone, as in `longhaul list | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_COMPLETED
    except OSError as error:
        if error.errno not in _UNWRITTEN or error.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # it would fail again at exit
        say(f"standard output cannot be written to: {error.strerror}")
        return EXIT_FAILED


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """argparse takes key=value arguments in one batch only; a second one, after a flag, comes back as a rest."""
    parser = _parser()
    ours, words = _split(list(sys.argv[1:] if argv is None else argv))
    parsed, rest = parser.parse_known_args(ours)
    parsed.words, parsed.all_commands = words, parser
    if words and parsed.command not in (execute, run):
        parser.error(f"-- {' '.join(words)}: only `exec` takes a command, and `run` the arguments of a script")
    flags = [argument for argument in rest if argument.startswith("-")]
    if flags or (rest and not hasattr(parsed, "overrides")):
        parsed.parser.refuse(flags or rest)
    if rest:
        parsed.overrides = [*parsed.overrides, *rest]
    return parsed


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    """Our arguments, and the command behind the first `--`."""
    at = argv.index("--") if "--" in argv else len(argv)
    return argv[:at], argv[at + 1 :]


def _parser() -> argparse.ArgumentParser:
    about = "Distributed training over emulated cross-region links."
    parser = CommandLineParser(prog="longhaul", description=about, epilog=_EPILOG)
    parser.add_argument("--version", action="version", version=f"longhaul {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Command, words: str, epilog: str | None = None) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=words, description=words, epilog=epilog)
        one.set_defaults(command=command, parser=one)
        add_trust(name, one)
        return one

    # In the order in which --help names them.
    _add_run(add("run", run, "Make one run.", epilog=_RUN_EPILOG))
    search.add_commands(add)
    _add_before_a_run(add)
    discovery.add_commands(add)
    record.add_commands(add)
    _add_dashboard(add("dashboard", dashboard, "Live pages over all runs, and a Prometheus for Grafana, until Ctrl-C."))
    _add_capture(add("capture", capture, "The flows, bursts and retransmissions in what a run captured."))
    estimates.add_commands(add)
    _add_laws(
        add("laws", laws, "A compressor, also your own: conformance tests, speed, and a run compared with others.")
    )
    _add_by_hand(add)
    one = add("clean", clean, "Remove runs and whatever of theirs still lives.")
    one.add_argument("run_ids", nargs="+", metavar="RUN_ID", help="never a path")
    add_runs_root(one)
    return parser


_EPILOG = (
    "What there is, with all parameters: longhaul show strategies, compressors, workloads, topologies, devices or"
    " transforms; longhaul show compressors topk. An unknown name is answered with all that are known."
)
_UP_EPILOG = "Ends with `longhaul down`. Nodes know each other by name: longhaul exec NODE -- ping OTHER."
_RUN_EPILOG = (
    "Keys: topo, workload, strategy, compressor, transform, device (names), their parameters (compressor.density=0.01),"
    " and workers, steps or epochs, batch_size, evaluate_every, target, start_from, checkpoint, seed, dilation,"
    " runtime, accelerator, shaper, tcp, connections, capture, background, memory_limit, events, timeout_s,"
    " max_wall_s, metrics_port. Names and parameters: see longhaul --help. A plug-in of yours: compressor=./signs.yaml."
    " Exit status: 0 completed; 2 bad input; 3 the machine lacks"
    " something; 4 failed; 5 completed but invalid."
)


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="key=value",
        help="such as topo=wan1g compressor=topk; with workload=script, what follows -- are the script's arguments",
    )
    parser.add_argument("--quiet", action="store_true", help="print one line: run id, verdict, folder")
    parser.add_argument("--json", action="store_true", help="the summary as JSON on stdout, everything else on stderr")
    parser.add_argument("--share", action="store_true", help="run even if the machine is in use; timing may suffer")
    parser.add_argument("--fix", action="store_true", help="where the run is refused, take the first of what would do")
    _add_rootless(parser)
    parser.add_argument("--tell-run-id", type=int, help=argparse.SUPPRESS)  # a descriptor, for `up`
    add_runs_root(parser)


def _add_rootless(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rootless", action="store_true", help="without root, in a user namespace; says what is lost")


def _add_before_a_run(add: Add) -> None:
    one = add("check", check, "What this machine has and lacks, and what each lack means.")
    _add_rootless(one)
    one.add_argument("--runs", type=Path, default=RUNS_ROOT, metavar="DIR", help="where runs are to lie")
    one = add(
        "topologies", topologies, "The topologies there are, or one drawn as text or as SVG, or for containerlab."
    )
    one.add_argument("name", nargs="?", help="the one to draw: a name, or the path of a YAML file")
    one.add_argument("overrides", nargs="*", metavar="key=value", help="as of a run, such as workers=6")
    one.add_argument("--svg", type=Path, metavar="FILE", help="draw it into this file instead")
    one.add_argument("--containerlab", type=Path, metavar="FILE", help="write it as a lab of containerlab instead")
    one.add_argument("--image", metavar="IMAGE", help="of the lab's nodes; has ip, tc, sysctl and sleep")


def _add_dashboard(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--live", action="store_true", help="scrape the run that is going too, in a second Prometheus")
    parser.add_argument("--no-serve", action="store_true", help="bring the archive of all runs up to date, no more")
    parser.add_argument("--check", action="store_true", help="ask every query of every dashboard, and serve nothing")
    words = "of the live pages; 9099 by default, 0 for any free one"
    parser.add_argument("--pages-port", type=int, default=9099, metavar="N", help=words)
    parser.add_argument("--port", type=int, default=9091, metavar="N", help="of the archive; 9091 by default")
    parser.add_argument("--live-port", type=int, default=9090, metavar="N", help="of what is live; 9090 by default")
    add_runs_root(parser)


def _add_capture(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_id", metavar="RUN_ID")
    parser.add_argument("--json", action="store_true", help="everything as JSON")
    add_runs_root(parser)


def _add_laws(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="CLASS", help="package.module.Class, a name such as topk, or a YAML file")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="its parameters, such as density=0.01")
    parser.add_argument("--no-run", action="store_true", help="laws and speed alone; needs no root")
    parser.add_argument("--no-speed", action="store_true", help="leave out the throughput table")
    parser.add_argument("--share", action="store_true", help="run even if the machine is in use; timing may suffer")
    parser.add_argument("--json", action="store_true", help="everything as JSON")
    add_runs_root(parser)


def _add_by_hand(add: Add) -> None:
    one = add("up", up, "The nodes and links without training, in the background, for `exec`.", epilog=_UP_EPILOG)
    one.add_argument("overrides", nargs="*", metavar="key=value", help="such as topo=us3 workers=6")
    one.add_argument("--share", action="store_true", help="run even if the machine is in use; timing may suffer")
    add_runs_root(one)
    one = add("exec", execute, "Run a command in a node of what is up: longhaul exec NODE -- CMD")
    one.add_argument("node", help="a node, or a region for its router")
    _add_session(one)
    _add_session(
        add("down", down, "End what `up` began, finalized and checked as any run; its exit status is that run's.")
    )


def _add_session(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run", metavar="RUN_ID", help="which, where several are up")
    add_runs_root(parser)


# Each command imports what it needs when it is called: `--help` and `list` start at once.


def run(parsed: argparse.Namespace) -> int:
    from testbed.orchestrator.machine.rights import Rights
    from testbed.orchestrator.run.run_command import run as make_run

    flags = {"quiet": parsed.quiet, "as_json": parsed.json, "share": parsed.share, "words": parsed.words}
    flags["fix"] = parsed.fix
    return make_run(
        parsed.overrides, parsed.runs, **flags, tell_run_id=parsed.tell_run_id, rights=Rights(parsed.rootless)
    )


def check(parsed: argparse.Namespace) -> int:
    from testbed.orchestrator.machine.rights import Rights
    from testbed.orchestrator.run import preflight

    rights = Rights(parsed.rootless)
    checks = preflight.run_checks(metrics_port=None, runtime=None, runs_root=parsed.runs, rights=rights)
    show(preflight.table(checks))
    preflight.raise_lacking(checks)
    tell("A run can be made here.")
    return EXIT_COMPLETED


def topologies(parsed: argparse.Namespace) -> int:
    from testbed.orchestrator.export.topologies_command import topologies as draw

    into = {"svg": parsed.svg, "containerlab": parsed.containerlab, "image": parsed.image or ""}
    return draw(parsed.name, parsed.overrides, **into)


def dashboard(parsed: argparse.Namespace) -> int:
    from testbed.orchestrator.dashboard.dashboard_check import check_dashboards
    from testbed.orchestrator.dashboard.dashboard_command import dashboard as serve

    if parsed.check:
        return check_dashboards(parsed.runs)
    ports = {"pages_port": parsed.pages_port, "port": parsed.port, "live_port": parsed.live_port}
    return serve(parsed.runs, live=parsed.live, serve=not parsed.no_serve, **ports)


def laws(parsed: argparse.Namespace) -> int:
    from testbed.orchestrator.cli.laws import laws as judge

    parts = {"with_run": not parsed.no_run, "with_throughput": not parsed.no_speed}
    return judge(parsed.target, parsed.overrides, parsed.runs, **parts, share=parsed.share, as_json=parsed.json)


def up(parsed: argparse.Namespace) -> int:
    from testbed.orchestrator.cli import session

    session.up(parsed.overrides, parsed.runs, share=parsed.share, trusted=parsed.trust)
    return EXIT_COMPLETED


def execute(parsed: argparse.Namespace) -> int:
    from testbed.orchestrator.cli import session

    session.execute(parsed.node, parsed.words, parsed.runs, parsed.run)


def down(parsed: argparse.Namespace) -> int:
    from testbed.core.files import read_object
    from testbed.core.record.summary import left_out_line
    from testbed.orchestrator.cli import session
    from testbed.orchestrator.run.seal import exit_status

    run = session.down(parsed.runs, parsed.run)
    summary = read_object(run.summary)
    tell(f"{run.run_id} is down: {summary['status']}, {summary['verdict']}")
    for reason in summary["reasons"]:
        tell(f"  {reason}")
    if (line := left_out_line(summary)) is not None:
        tell(f"  {line}")
    for unknown in summary["unknowns"]:
        tell(f"  not checked: {unknown}")
    return exit_status(summary)


def capture(parsed: argparse.Namespace) -> int:
    from testbed.orchestrator.cli.capture import capture as analyse

    return analyse(parsed.run_id, parsed.runs, as_json=parsed.json)


def clean(parsed: argparse.Namespace) -> int:
    from testbed.orchestrator.cli.clean import clean as remove

    for line in remove(parsed.run_ids, parsed.runs):
        tell(line)
    return EXIT_COMPLETED


if __name__ == "__main__":
    sys.exit(main())
