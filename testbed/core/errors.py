"""Every error a user can meet, and the exit status it ends in.

    LonghaulError
    ├── InputError      2  what was asked is not possible; one line a fault, all at once
    ├── MachineError    3  the machine lacks something; the cure is in the line
    └── RunError        4  the run failed
        ├── Interrupted 4  somebody stopped it (Ctrl-C, SIGTERM)
        └── Left        6  one rank ends and the others go on; of a worker alone, never of a run

A run that completes but may not be believed ends with 5 (`EXIT_INVALID`); that is a verdict, not an error.

An error about a name that does not exist suggests the one that was probably meant (`nearest`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

EXIT_COMPLETED = 0
EXIT_INPUT = 2
EXIT_MACHINE = 3
EXIT_FAILED = 4
EXIT_INVALID = 5
EXIT_LEFT = 6
"""Between a worker and the orchestrator only."""
EXIT_INTERRUPTED = 130
"""Between a run and its supervisor only; a user sees 4."""


BROKEN = (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError)
"""Exceptions of who reads a record whose values are none of a run's: of other types, beyond all measure, missing."""


class LonghaulError(Exception):
    """Base of all. `faults` holds one clear line each: what was asked, what was found, what to do."""

    exit_status = EXIT_FAILED

    def __init__(self, *faults: str) -> None:
        self.faults: tuple[str, ...] = faults
        super().__init__("\n".join(faults))


class InputError(LonghaulError):
    """What was asked is not possible. Nothing has been built."""

    exit_status = EXIT_INPUT


class MachineError(LonghaulError):
    """The machine lacks something. Nothing has been built."""

    exit_status = EXIT_MACHINE


class RunError(LonghaulError):
    """The run could not go on. Its directory and logs are kept."""

    exit_status = EXIT_FAILED


class Interrupted(RunError):
    """The run was stopped from outside."""


class Left(RunError):
    """This rank has no part in the run any more, which goes on without it."""

    exit_status = EXIT_LEFT


def raise_input_faults(faults: Iterable[str]) -> None:
    """Raise one `InputError` with all of `faults`, or return if there are none."""
    found = tuple(faults)
    if found:
        raise InputError(*found)


_SAME = (
    ("every", "sync_every", "period", "interval", "frequency", "sync_period", "sync_interval", "inner_steps", "h"),
    ("density", "ratio", "sparsity", "fraction", "keep", "k", "compression", "compress_ratio"),
    ("rate", "bandwidth", "bw", "throughput", "speed"),
    ("rtt", "latency", "delay", "ping", "round_trip"),
    ("loss", "drop", "drop_rate", "packet_loss", "plr"),
    ("topo", "topology", "network", "net"),
    ("workload", "model", "dataset", "data", "task"),
    ("strategy", "algorithm", "algo", "optimizer", "method"),
    ("compressor", "compression", "codec", "compress"),
    ("workers", "nodes", "ranks", "world_size", "num_workers", "n_workers", "clients"),
    ("steps", "iterations", "iters", "max_steps", "num_steps"),
    ("epochs", "epoch", "num_epochs", "max_epochs"),
    ("batch_size", "batch", "bs", "per_device_batch_size"),
    ("evaluate_every", "eval_every", "eval_interval", "eval_steps"),
    ("target", "accuracy", "goal", "target_accuracy"),
    ("seed", "random_seed", "rng"),
    ("lr", "learning_rate", "outer_lr"),
    ("accelerator", "gpu", "cuda"),
    ("step_s", "step_time", "step_seconds"),
    ("bucket_size", "bucket", "bucket_cap", "bucket_cap_mb"),
    ("rank", "r", "lora_rank"),
    ("block_size", "block", "group_size", "chunk"),
    ("timeout_s", "timeout"),
    ("metrics_port", "port"),
    ("memory_limit", "memory", "mem", "ram"),
    ("check", "doctor", "preflight", "verify"),
    ("list", "ls", "runs", "show"),
    ("clean", "rm", "remove", "delete"),
    ("run", "train", "start", "experiment"),
    ("dashboard", "grafana", "serve"),
)
"""Groups of names for the same thing, as this program, others and papers have them."""
_TYPING_SLIP, _ALIKE = 0.8, 0.65
"""Least likeness of a misspelt name, and of one that is suggested if no synonym is known."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that was probably meant by `name`: a near spelling or a synonym; None if there is none."""
    plain = {_plain(one): one for one in sorted(known, reverse=True)}
    asked = _plain(name)
    if asked in plain:
        return plain[asked]
    if close := difflib.get_close_matches(asked, plain, n=1, cutoff=_TYPING_SLIP):
        return plain[close[0]]
    same = [one for group in _SAME if asked in group for one in group if one in plain]
    alike = same or difflib.get_close_matches(asked, plain, n=1, cutoff=_ALIKE)
    alike = alike or [one for one in plain if len(asked) > 2 and asked in one.split("_")]
    return plain[alike[0]] if alike else None


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")
