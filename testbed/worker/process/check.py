"""Builds every part of a spec, with no network, and says what is wrong, before the orchestrator builds anything."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, TextIO

from testbed.core.errors import EXIT_COMPLETED, EXIT_INPUT, InputError, raise_input_faults
from testbed.core.spec.run_spec import PROCESSOR, RunSpec


def check(source: TextIO, sink: TextIO) -> int:
    """Read `RunSpec.to_json()`, write {"faults", "parameters", "metric", "uses_feedback", "computes",
    "exchanges_models", "epoch_steps", "data_hash", "data_licence", "start_hash", "lacks"}, the last of this machine's
    packages; return the exit status. Of {"specs": [...]} write {"faults": [], "answers": [...]}, one for each. A spec
    with "accelerated", or an accelerator of its own, is also asked whether it can be trained there. Data are fetched
    only for a question with "fetch"; otherwise the answer says in "to_fetch" what has to be."""
    question = json.load(source)
    fetch = bool(question.get("fetch"))
    if "specs" in question:
        answer: dict[str, Any] = {"faults": [], "answers": [_answer(spec, fetch=fetch) for spec in question["specs"]]}
    else:
        answer = _answer(question, fetch=fetch)
    json.dump(answer, sink, allow_nan=False)
    sink.write("\n")
    return EXIT_INPUT if answer["faults"] else EXIT_COMPLETED


def _answer(spec: dict[str, Any], *, fetch: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {"faults": [], "parameters": None, "metric": None}
    try:
        answer |= _built(RunSpec.from_json(spec), accelerated=bool(spec.get("accelerated")), fetch=fetch)
    except InputError as error:
        answer["faults"] = list(error.faults)
    except (ValueError, KeyError, TypeError) as error:
        answer["faults"] = [f"spec: {type(error).__name__}: {error}"]
    return answer


def _built(spec: RunSpec, *, accelerated: bool, fetch: bool) -> dict[str, Any]:
    from testbed.worker.device.accelerator import build_faults
    from testbed.worker.interfaces.workload_capabilities import data_hash, licence, to_fetch
    from testbed.worker.model import checkpoint
    from testbed.worker.plugins.factory import prefixed
    from testbed.worker.training import capabilities
    from testbed.worker.training.parts import build_parts, first_model, misfits

    parts = build_parts(spec)
    workload, metric = parts.workload, parts.workload.metric
    faults = [*parts.device.validate(), *(prefixed("workload", fault) for fault in workload.validate())]
    if accelerated:
        faults += misfits(spec, parts, "--accelerator")
    if spec.accelerator != PROCESSOR:
        faults += misfits(spec, parts, f"accelerator={spec.accelerator}")
    raise_input_faults(faults)
    if not fetch and (lacking := to_fetch(workload)) is not None:
        return {"to_fetch": lacking}
    start_hash = None if spec.start_from is None else checkpoint.checksum(spec.start_from)
    model, _ = first_model(dataclasses.replace(spec, start_hash=start_hash), parts)
    parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
    if parts.transform.changes_the_model:
        capabilities.example(parts.transform, model)
    return {
        "parameters": parameters,
        "metric": metric and {key: getattr(metric, key) for key in ("name", "target", "higher_is_better")},
        "uses_feedback": parts.compressor.uses_feedback,
        "computes": workload.computes,
        "exchanges_models": parts.strategy.exchanges_models,
        "epoch_steps": parts.epoch_steps(spec),
        "data_hash": data_hash(workload),
        "data_licence": licence(workload),
        "start_hash": start_hash,
        "lacks": list(build_faults(spec.accelerator)),
    }
