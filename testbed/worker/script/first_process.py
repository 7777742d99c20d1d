"""First process of a node with a user's script: starts the script, passes signals on, and ends as the script does.

`python -I -S first_process.py COMMAND ...`. It is run by its path and imports nothing of Longhaul's. A script that were
the first process itself would get no signal that it has no handler for, not even SIGKILL from itself, and would have to
reap orphans; no script expects that. LONGHAUL_MARKS names the file that takes the moments of start and end; the script
is started once a file `go` is next to it, when the links are being watched.
"""

from __future__ import annotations

import os
import signal
import sys
import time

NOTE = "longhaul: the script was ended by "
"""Begins the last line of the log where a signal ended the script; the name of the signal follows."""
_KEPT = {signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH, signal.SIGCONT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
"""Signals that are not passed on."""
_POLL_S = 0.005


def main(command: list[str]) -> int:
    """Run `command` to its end and return its exit status, 128 + n where signal n ended it."""
    signals = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    if (number := _waited(signals)) is not None:
        return 128 + number
    # the interpreter ignores both, and what is ignored stays so in the command
    script = os.posix_spawn(command[0], command, os.environ, setsigmask=(), setsigdef=(signal.SIGPIPE, signal.SIGXFSZ))
    _mark("started")
    while (code := _reaped(script)) is None:
        number = signal.sigwait(signals)
        if number not in _KEPT:
            os.kill(script, number)
    _mark("ended")
    if code >= 0:
        return code
    names = {number.value: number.name for number in signal.Signals}
    os.write(2, f"{NOTE}{names.get(-code, f'signal {-code}')}\n".encode())
    return 128 - code


def _waited(signals: set[signal.Signals]) -> int | None:
    """Wait until the script may start; return the signal that came first, if one did."""
    marks = os.environ.get("LONGHAUL_MARKS")
    while marks is not None and not os.path.exists(os.path.join(os.path.dirname(marks), "go")):
        told = signal.sigtimedwait(signals - _KEPT, _POLL_S)
        if told is not None:
            return told.si_signo
    return None


def _reaped(script: int) -> int | None:
    """Reap everything that has ended, orphans too; return the exit code of the script if it is among them."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if pid == script:
            return os.waitstatus_to_exitcode(status)
        if pid == 0:
            return None


def _mark(what: str) -> None:
    try:
        with open(os.environ["LONGHAUL_MARKS"], "a") as marks:
            marks.write(f"{what} {time.monotonic()}\n")
    except (KeyError, OSError):
        return


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
