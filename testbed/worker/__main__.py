"""`python -m testbed.worker run`: one rank of a run, told over the telemetry socket what to do.
`torchrun … -m testbed.worker torchrun key=value …`: one rank on a machine that is there, with nothing emulated.
`python -m testbed.worker check`: are the parts of this spec possible? Reads the spec on stdin.
`python -m testbed.worker describe`: what plug-ins declare of themselves, of those that it reads on stdin.
`python -m testbed.worker calibrate`: how long a step of the spec takes that it reads on stdin.
`python -m testbed.worker profile`: what `longhaul profile` writes of the spec and the device that it reads on stdin.
`python -m testbed.worker pieces`: what planning needs of the model of a spec, which it reads on stdin.
`python -m testbed.worker laws`: the law book and the throughput of the compressor told on stdin, as lines of JSON.
`python -m testbed.worker fuzz --seconds 60`: hostile bytes for every decoder.
`python -m testbed.worker question-server PID`: import torch once, then answer questions as these, each in a fork.
`python -m testbed.worker fork-server FD`: import once what all ranks need, then fork each into its container."""

from __future__ import annotations

import json
import sys

from testbed.core.errors import EXIT_INPUT


def main(arguments: list[str]) -> int:
    # Imported late: each command pays for what it needs.
    if arguments == ["run"]:
        from testbed.worker.process.session import run

        return run()
    if arguments[:1] == ["torchrun"]:
        from testbed.worker.process.torchrun import join

        return join(arguments[1:])
    if arguments == ["check"]:
        from testbed.worker.process.check import check

        return check(sys.stdin, sys.stdout)
    if arguments == ["describe"]:
        from testbed.worker.process.describe import describe

        return describe(sys.stdin, sys.stdout)
    if arguments == ["calibrate"]:
        from testbed.worker.profile.profile_command import calibrate

        return calibrate(sys.stdin, sys.stdout)
    if arguments == ["profile"]:
        from testbed.worker.profile.profile_command import profile

        return profile(sys.stdin, sys.stdout)
    if arguments == ["pieces"]:
        from testbed.worker.methods.planner.model_profile import answer as answer_pieces

        return answer_pieces(sys.stdin, sys.stdout)
    if arguments == ["laws"]:
        from testbed.worker.laws.laws_command import answer

        return answer(sys.stdin, sys.stdout)
    if len(arguments) == 2 and arguments[0] == "question-server" and arguments[1].isdecimal():
        from testbed.worker.process import question_server

        return question_server.serve(int(arguments[1]), main)
    if arguments[:1] == ["fuzz"]:
        from testbed.worker.laws.fuzz import main as fuzz

        return fuzz(arguments[1:])
    if arguments == ["laws-ranks"]:
        from testbed.worker.laws.process_group import be_ranks

        be_ranks(json.load(sys.stdin))
    if len(arguments) == 2 and arguments[0] == "fork-server" and arguments[1].isdecimal():
        from testbed.worker.process import fork_server

        return fork_server.main(int(arguments[1]), sys.stdin)
    commands = "run|torchrun|check|describe|calibrate|profile|pieces|laws|question-server PID|fuzz|fork-server FD"
    sys.stderr.write(f"usage: python -m testbed.worker {commands}\n")
    return EXIT_INPUT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
