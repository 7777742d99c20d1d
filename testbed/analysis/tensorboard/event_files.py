"""`longhaul tensorboard`: event files for TensorBoard, one folder a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from testbed.analysis.record.record import Record, is_finite, load
from testbed.analysis.tensorboard.scalars import Scalar, Scalars
from testbed.core.errors import InputError
from testbed.core.files import open_regular_bytes, parse_json

_POLL_S = 0.5
_LARGEST_READ_BYTES = 1 << 24


def write_event_files(
    paths: Sequence[Path],
    output: Path,
    *,
    clock: str = "wall",
    follow: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Path]:
    """Write each run's scalars into the folder of its name below `output` and return these folders.

    Event files of an earlier call in these folders are replaced.

    Args:
        paths: Directories of runs.
        clock: One of `CLOCKS`.
        follow: True to go on until every run has ended or was killed, with a look at the records twice a second.
        sleep: Waits between two looks.

    Raises:
        InputError: A path is no run, with every fault, or `output` cannot be written.
    """
    runs = _loaded(paths)
    writers = [_Writer(record, output / record.run_id, clock) for record in runs]
    try:
        pending = list(writers)
        while pending:
            pending = [writer for writer in pending if not writer.advance(is_last=not follow)]
            if pending:
                sleep(_POLL_S)
    finally:
        for writer in writers:
            writer.close()
    return [writer.folder for writer in writers]


def _loaded(paths: Sequence[Path]) -> list[Record]:
    found: list[Record] = []
    faults: list[str] = []
    for path in paths:
        try:
            found.append(load(path))
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(*faults)
    return found


class _Writer:
    """Event file of one run."""

    def __init__(self, record: Record, folder: Path, clock: str) -> None:
        from tensorboardX.event_file_writer import EventsWriter

        self.folder = folder
        self._record, self._clock = record, clock
        self._tail = _Tail(record)
        self._scalars = Scalars(record.spec.workers if record.spec else None)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for old in folder.glob("events.out.tfevents.*"):
                old.unlink()
            self._file = EventsWriter(str(folder / "events"))
        except OSError as error:
            raise InputError(f"{folder}: cannot be written: {error.strerror}") from error

    def advance(self, *, is_last: bool) -> bool:
        """Write what is new; return True if the run has ended, or `is_last`, and all is written."""
        run = self._record.run
        # Asked before the events are read, so that the last ones are read after the end.
        has_ended = is_last or run.summary.exists() or not run.is_alive()
        if "start_unix_s" not in self._record.provenance:
            self._record = load(run.path)  # a run notes its start once it has begun
        self._write(self._scalars.of(self._tail.events()))
        if has_ended:
            self._write(self._scalars.rest())
        self._file.flush()
        return has_ended

    def close(self) -> None:
        self._file.close()

    def _write(self, scalars: Iterable[Scalar]) -> None:
        from tensorboardX.proto import event_pb2, summary_pb2

        for scalar in scalars:
            value = summary_pb2.Summary.Value(tag=scalar.tag, simple_value=scalar.value)
            summary = summary_pb2.Summary(value=[value])
            event = event_pb2.Event(wall_time=self._unix_s(scalar.t_s), step=scalar.step, summary=summary)
            self._file.write_event(event)

    def _unix_s(self, t_s: float) -> float:
        spec = self._record.spec
        factor = spec.dilation if spec and self._clock == "wall" and is_finite(spec.dilation) else 1.0
        start_unix_s = self._record.start_unix_s or 0.0
        return start_unix_s + factor * t_s


class _Tail:
    """Events of a record that grows, each once."""

    def __init__(self, record: Record) -> None:
        self._path = record.run.events
        self._offset = 0

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield those of whole lines that came since the last call."""
        try:
            file = open_regular_bytes(self._path)
        except (FileNotFoundError, ValueError):
            return
        with file:
            while lines := self._lines(file):
                for line in lines:
                    try:
                        event = parse_json(line.decode(errors="replace"), strict=False)
                    except ValueError:
                        continue
                    if isinstance(event, dict) and "event" in event:
                        yield event

    def _lines(self, file: BinaryIO) -> list[bytes]:
        file.seek(self._offset)
        read = file.read(_LARGEST_READ_BYTES)
        whole = read[: read.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.splitlines()
