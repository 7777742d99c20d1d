"""Copy `note_parameters` into a training that torch.profiler traces; `longhaul profile --trace` reads what it writes.

    about = {"batch_size": 32, "sample": "3 x 32 x 32 pixels", "precision": "fp32", "device": "a V100"}
    note_parameters(model, "parameters.json", **about)

Call it once, after a backward and before gradients are set to None: so it sees which parameters have one.
"""

from __future__ import annotations

import json

import torch


def note_parameters(model: torch.nn.Module, path: str, **about: object) -> None:
    """Write names and shapes of a model's parameters in module order: no values, no code."""
    first: dict[int, str] = {}
    rows = [
        [name, list(p.shape), p.requires_grad, p.grad is not None, first.setdefault(id(p), name)]
        for name, p in model.named_parameters(remove_duplicate=False)
    ]
    kinds = {name: type(module).__name__ for name, module in model.named_modules()}
    facts = {"model": type(model).__name__, "torch": torch.__version__, "kinds": kinds, "parameters": rows, **about}
    with open(path, "w") as file:
        json.dump({"format": "longhaul-parameters", "version": 1, **facts}, file)
