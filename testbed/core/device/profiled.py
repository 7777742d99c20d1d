"""A device whose times are in a file: a profile, or a timeline."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from testbed.core.device.codecs.library import CODECS, CPU
from testbed.core.device.device import Modelled
from testbed.core.device.kinds import HostSeconds, Speedup
from testbed.core.device.profile import Profile, read_profile
from testbed.core.device.timeline_profile import by_ratios, micro_batches, on_timeline
from testbed.core.device.timelines.timeline_file import is_timeline, timeline_of
from testbed.core.errors import InputError
from testbed.core.kinds import Choice, PathOf
from testbed.core.user_files.json_file import read_json


class Profiled(Modelled):
    """A device that was measured: a profile of `longhaul profile`, or a timeline of docs/timelines.md.

    Args:
        file: Profile, or timeline, of the same model and batch size. A profile is of the same workload too. A relative
            path begins where the command was given.
        codec_speedup: Speed-up of compression over `codecs`. Where the profile is of another compressor, number of
            workers or size of buckets; null takes its times as they are.
        codecs: Codec times: this CPU's, or a measured accelerator's. Those of an accelerator replace the profile's too.
        host_s: Host's time for communication, by kind. In addition to the links' own: before each collective, and
            before a ring passes on a segment that has come.

    Raises:
        ValueError: A parameter is not what it should be.
    """

    def __init__(
        self,
        *,
        file: Annotated[str, PathOf("a profile", absolute=False)],
        codec_speedup: Speedup | None = None,
        codecs: Annotated[str, Choice(CODECS)] = CPU,
        host_s: HostSeconds | None = None,
    ) -> None:
        self.host_s = host_s or {}
        self.file = Path(str(file))
        self.codec_speedup, self.codecs = 1.0 if codec_speedup is None else float(codec_speedup), codecs

    def validate(self) -> Iterator[str]:
        if not self.file.is_file():
            yield f"device.file={self.file}: no such file"

    def profile(self, cpu: Profile) -> Profile:
        measured = self._read(cpu)
        faults = [f"device.file={self.file}: {why}" for why in measured.mismatches(cpu)]
        seconds = {piece.name: piece.seconds for piece in measured.work}
        if lacking := [piece.name for piece in cpu.work if piece.name not in seconds]:
            faults.append(
                f"device.file={self.file}: it does not say how long {len(lacking)} pieces of the strategy's work take"
                f" (the first is {lacking[0]}); device=h200 times K-FAC's, device=paced any by FLOPs"
            )
        if faults:
            raise InputError(*faults)
        device = dataclasses.replace(
            measured,
            cpu_step_s=cpu.cpu_step_s,
            work=tuple(dataclasses.replace(piece, seconds=seconds[piece.name]) for piece in cpu.work),
            factored=cpu.factored,
            buckets=cpu.buckets,
            collectives=cpu.collectives,
            cycle_steps=cpu.cycle_steps,
        )
        return self._with_its_codec(device, measured, cpu)

    def _with_its_codec(self, device: Profile, measured: Profile, cpu: Profile) -> Profile:
        """Keep the codec of the file where it is that of the training: ranks and buckets count too."""
        same_codec = (
            measured.compressor == cpu.compressor
            and measured.buckets == cpu.buckets
            and measured.provenance.get("workers") == cpu.provenance.get("workers")
        )
        return device if same_codec and self.codecs == CPU else self.with_codec(device, cpu)

    def _read(self, cpu: Profile) -> Profile:
        data, where = read_json(self.file), f"device.file={self.file}"
        if is_timeline(data):
            return on_timeline(timeline_of(data, where), cpu, where, tuple(micro_batches(cpu, (cpu.batch_size,))))
        return read_profile(self.file)

    def switched(self, before: Profile, after: Profile) -> Profile:
        found = (whole := self.layers(before)).switched  # the device itself may have been measured with this transform
        if found is None or any(found.mismatches(after)):
            return self.with_codec(by_ratios(whole, before, after, f"device.file={self.file}"), after)
        own = dataclasses.replace(found, cpu_step_s=after.cpu_step_s, collectives=after.collectives)
        return self._with_its_codec(own, found, after)
