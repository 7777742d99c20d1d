"""Readers of what others have written, as opponents: each answers or refuses, and writes nowhere else."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import shutil
import socket
import struct
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from testbed.analysis.record.openmetrics import write_openmetrics
from testbed.analysis.record.record import load
from testbed.analysis.record.samples import series_of
from testbed.core.errors import InputError, RunError
from testbed.core.record.events.base import Event, StepEvent, WorkerEvent
from testbed.core.record.run_row import read_row
from testbed.core.record.telemetry import Channel
from testbed.orchestrator.config.topology import read_topology_file
from testbed.orchestrator.config.user_files.yaml_reader import parse_yaml
from testbed.orchestrator.executors import run_archive
from testbed.orchestrator.observation.summary import summarise
from testbed.orchestrator.observation.verdict.judge import Judge
from testbed.orchestrator.run.workers.intake import Intake
from testbed.worker.laws.cases.malformed import Opponent, withstood
from testbed.worker.laws.cases.registry import require
from testbed.worker.methods.federated.clients.availability import read_trace
from testbed.worker.methods.parameter_server.transport.frame_errors import Refused
from testbed.worker.methods.parameter_server.transport.frame_parser import Expected, parse
from testbed.worker.methods.parameter_server.transport.frames import (
    ENTRY_BYTES,
    HEADER_BYTES,
    MAC_BYTES,
    Coded,
    Frame,
    Kind,
    Payload,
    authentication_code,
)
from testbed.worker.methods.parameter_server.transport.tensor_schema import Schema, TensorSpec
from testbed.worker.model.checkpoint import load as load_model
from tests.fuzzing.exports import Exports

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT / "tests" / "corpus" / "readers"
_RUN_ID = "20250102T030405Z-wan-ddp-topk-0123abcd"
_CUT = b"\n---next file---\n"
"""Between the files of one payload."""
_TENSORS_AT = 20
"""Where a frame's header counts its tensors, and then the bytes of its payload."""


class _Reader:
    """What takes no checksums has none to mend."""

    def resealed(self, data: bytes) -> bytes:
        return data


class Frames(_Reader):
    """Of a parameter server's client, by somebody who has the run's key."""

    _key = b"k" * 32
    _schema = Schema.of([TensorSpec("weight", (3, 2), "float32"), TensorSpec("bias", (3,), "bfloat16")])

    def sound(self) -> list[bytes]:
        tensors = (
            Coded(index=1, codec="sz3", bound=1e-3, update_rms=0.5, raw_bytes=24, data=b"weight"),
            Coded(index=0, codec="none", raw_bytes=6, data=b"bias.."),
        )
        update = Frame(
            kind=Kind.UPDATE,
            sender=3,
            schema_hash=self._schema.hash,
            round=7,
            epoch=6,
            payload=Payload.DELTA,
            tensors=tensors,
            samples=100,
            train_loss=1.25,
        )
        bye = Frame(kind=Kind.BYE, sender=4, schema_hash=self._schema.hash, text="gone, ü")
        return [b"".join(frame.pack(self._key)) for frame in (update, bye)]

    def resealed(self, data: bytes) -> bytes:
        signed = bytearray(data[:-MAC_BYTES])
        if len(signed) >= HEADER_BYTES:
            (tensors,) = struct.unpack_from("!I", signed, _TENSORS_AT)
            follow = len(signed) - HEADER_BYTES - tensors * ENTRY_BYTES
            struct.pack_into("!Q", signed, _TENSORS_AT + 4, max(0, follow))
        return bytes(signed) + authentication_code(self._key, [signed])

    def meet(self, data: bytes, what: str) -> str | None:
        due = frozenset({(Kind.UPDATE, Payload.DELTA)})
        names = frozenset({"none", "sz3"})
        held = {"senders": range(5), "codecs": names, "round": 7, "epoch": 6}
        expected = Expected(schema=self._schema, key=self._key, due=due, **held)  # type: ignore[arg-type]
        return withstood(lambda: parse(data, expected), data, what, Refused)


class Telemetry(_Reader):
    """Of a worker, over its socket."""

    def sound(self) -> list[bytes]:
        lines = (ROOT / "tests" / "data" / "events" / "lines.jsonl").read_bytes().splitlines()
        said = [json.loads(line) for line in lines]
        kinds = {line["event"]: Event.kinds[line["event"]] for line in said}
        for line in said:
            kind = kinds[line["event"]]
            if not issubclass(kind, StepEvent) and "t_s" not in kind.__dataclass_fields__:
                line.pop("t_s", None)  # it is the recorder's
        return [json.dumps(line).encode() + b"\n" for line in said if issubclass(kinds[line["event"]], WorkerEvent)]

    def meet(self, data: bytes, what: str) -> str | None:
        near, far = socket.socketpair()
        with near, far:
            far.sendall(data[:60_000])
            far.shutdown(socket.SHUT_WR)
            return withstood(functools.partial(self._hear, Channel(near)), data, what, ValueError)

    def _hear(self, channel: Channel) -> None:
        intake = Intake(0, "oregon-0", 1000)
        for message in channel.messages():
            for taken in intake.taken(message, channel.line_bytes, 1000.0):
                json.dumps(taken, allow_nan=False).encode()


class _InFolder(_Reader):
    """Reads files of a folder of its own, next to others that it must leave as they are."""

    _names: tuple[str, ...]
    _refusals: tuple[type[Exception], ...] = (InputError, ValueError, OSError)

    def meet(self, data: bytes, what: str) -> str | None:
        around = Path(tempfile.mkdtemp(prefix="longhaul-fuzz-"))
        try:
            folder = around / _RUN_ID
            folder.mkdir()
            (around / "victim").write_text("kept")
            for name, content in zip(self._names, data.split(_CUT), strict=False):
                (folder / name).write_bytes(content)
            refusal = withstood(lambda: self._read(folder), data, what, *self._refusals)
            found = sorted(path.name for path in around.iterdir())
            require(found == sorted([_RUN_ID, "victim"]), f"{what}: wrote outside: {found}")
            require((around / "victim").read_text() == "kept", f"{what}: wrote to another's file")
            return refusal
        finally:
            shutil.rmtree(around)

    def _read(self, folder: Path) -> None:
        raise NotImplementedError


class Records(_InFolder):
    """A run directory: its row, its verdict, its summary and its samples."""

    _names = ("spec.json", "events.jsonl", "summary.json", "provenance.json", "network.json")

    @functools.cache  # noqa: B019 - one for all
    def sound(self) -> list[bytes]:
        from tests.unit.analysis.synthetic import make_run

        with tempfile.TemporaryDirectory() as folder:
            run = make_run(Path(folder))
            events = run.events.read_bytes().splitlines(keepends=True)
            golden = (ROOT / "tests" / "data" / "events" / "lines.jsonl").read_bytes()
            parts = [run.spec.read_bytes(), b"".join(events[:40]) + golden, b"", run.provenance.read_bytes()]
            return [_CUT.join(parts), _CUT.join([parts[0], golden, b'{"schema_version": 1, "status": "killed"}'])]

    def _read(self, folder: Path) -> None:
        read_row(folder)
        record = load(folder)
        series = series_of(record)
        write_openmetrics(record, series, io.StringIO())
        if record.spec is None:
            return
        judge = Judge(record.spec)
        for event in record.run.read_events():
            judge.add(event)
        verdict, reasons = judge.verdict()
        summarise(record.run, status="killed", verdict=verdict, reasons=reasons, wall_s=None)


class Topologies(_InFolder):
    """A topology's YAML."""

    _names = ("mine.yaml",)

    def sound(self) -> list[bytes]:
        link = b"  - {a: us, b: eu, rate: 100 Mbit/s, rtt: 80 ms, loss: 0.1%, source: my ping}\n"
        return [
            b"regions: {us: 2, eu: 1}\nlinks:\n" + link,
            b"_target_: topologies.ring.build\nregions: [us, eu, asia]\n",
        ]

    def _read(self, folder: Path) -> None:
        path = folder / "mine.yaml"
        parse_yaml(path.read_bytes().decode(errors="replace"), "topo=mine.yaml")
        read_topology_file(path)


class Traces(_InFolder):
    """A CSV file of who is available when."""

    _names = ("trace.csv",)

    def sound(self) -> list[bytes]:
        return [b"client,begin_s,end_s\n0,0,10\n1,5.5,20\n0,30,40\n"]

    def _read(self, folder: Path) -> None:
        _, faults = read_trace(str(folder / "trace.csv"), 100.0)
        require(all(fault and "\n" not in fault for fault in faults), "a fault is one line")


class Models(_InFolder):
    """A kept model."""

    _names = ("model.pt",)

    def _model(self) -> torch.nn.Module:
        return torch.nn.Linear(3, 2)

    @functools.cache  # noqa: B019 - one for all
    def sound(self) -> list[bytes]:
        buffer = io.BytesIO()
        torch.save({"longhaul_model": 1, "tensors": self._model().state_dict()}, buffer)
        return [buffer.getvalue()]

    def _read(self, folder: Path) -> None:
        load_model(self._model(), str(folder / "model.pt"))


class Archives(_InFolder):
    """A run from another machine: names and packed files, with sums that are right."""

    _names = ("archive",)
    _refusals = (RunError,)

    def sound(self) -> list[bytes]:
        files = {"summary.json": b"{}", "logs/a.log": b"words\n" * 20}
        return [_CUT.join(name.encode() + b"\0" + zlib.compress(data) for name, data in files.items())]

    def meet(self, data: bytes, what: str) -> str | None:
        return super().meet(data.replace(_CUT, b"\1\1"), what)

    def _read(self, folder: Path) -> None:
        files: dict[str, Any] = {}
        for part in (folder / "archive").read_bytes().split(b"\1\1"):
            name, _, packed = part.partition(b"\0")
            stream = zlib.decompressobj()
            try:
                content = stream.decompress(packed, 1 << 20)
            except zlib.error:
                content = b""
            digest = hashlib.sha256(content).hexdigest()
            files[name.decode(errors="surrogateescape")] = {"sha256": digest, "zlib": packed}
        archive = {"run_id": _RUN_ID, "files": files, "sha256": run_archive._sum_over(_RUN_ID, files)}
        run_archive.unpack(archive, folder)


READERS: dict[str, Callable[[], Opponent]] = {
    "frames": Frames,
    "telemetry": Telemetry,
    "records": Records,
    "topologies": Topologies,
    "traces": Traces,
    "models": Models,
    "archives": Archives,
    "exports": Exports,
}
