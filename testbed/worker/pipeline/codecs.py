"""The codec of activations: a compressor by its name, or one that was made."""

from __future__ import annotations

from collections.abc import Iterator

from compressors.base import Compressor
from testbed.core.errors import InputError
from testbed.core.parameter_faults import choice
from testbed.worker.build import build
from testbed.worker.laws import catalogue

_INSTEAD = "use none, fp16, int8, topk or sz3"


def codec(asked: object) -> Compressor:
    """
    Raises:
        ValueError: it is none, or cannot serve point to point; all that is wrong, one a line.
    """
    if isinstance(asked, Compressor):
        made = asked
    else:
        if fault := choice("activations", asked, catalogue.names()):
            raise ValueError(f"{fault}; or a compressor, given as {{_target_: …}}")
        try:
            made = build("activations", catalogue.part(str(asked)), Compressor)
        except InputError as error:
            raise ValueError(str(error)) from error
    if faults := list(_faults(made)):
        raise ValueError("\n".join(faults))
    return made


def _faults(made: Compressor) -> Iterator[str]:
    name, traits = type(made).__name__, made.traits
    if not traits.point_to_point:
        yield f"activations={name}: works among all ranks, never point to point; {_INSTEAD}"
    elif traits.feedback == "builtin" or traits.owns != "nothing" or made.feedback not in ("auto", "off"):
        yield (
            f"activations={name} with feedback={made.feedback}: keeps what it leaves out for the next step, whose"
            f" activations are of other samples; {_INSTEAD}, with feedback=auto"
        )
