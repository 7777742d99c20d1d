"""The profile of a training whose codec takes the times that were measured on an accelerator."""

from __future__ import annotations

import dataclasses
import json

from testbed.core.device.codecs.library import codec_library
from testbed.core.device.profile import Profile
from testbed.core.errors import InputError


def with_measured_codec(layers: Profile, cpu: Profile, codecs: str, factor: float) -> Profile:
    """Return the profile of layers with the times of a codec of `codec_library(codecs)`, longer by `factor`.

    Args:
        layers: Times of the layers on a device.
        cpu: Times of the training on a core of this machine, with what its codec does.

    Raises:
        InputError: The codec was not measured, or the profile does not say what it does.
    """
    library, where = codec_library(codecs), f"device.codecs={codecs}"
    target, _, params = cpu.compressor.partition(" ")
    codec, scale = library.find(target, json.loads(params), where), cpu.scale
    if any(len(bucket.work) != len(bucket.rounds) for bucket in cpu.codec):
        raise InputError(f"{where}: the profile does not say what the codec does; measure it again")
    times = tuple(
        dataclasses.replace(
            bucket,
            rounds=tuple(
                (phase, factor * library.seconds(codec, work, scale))
                for (phase, _), work in zip(bucket.rounds, bucket.work, strict=True)
            ),
        )
        for bucket in cpu.codec
    )
    found = layers.with_codec_of(dataclasses.replace(cpu, codec=times))
    return dataclasses.replace(
        found,
        unknowns=(*found.unknowns, *library.unknowns(codec, factor)),
        provenance={**found.provenance, "codec": {"measured_on": library.device, **library.provenance}},
    )
