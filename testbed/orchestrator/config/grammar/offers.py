"""Overrides that would do instead of something that is refused, to be pasted or taken by `--fix`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from testbed.core.errors import InputError
from testbed.core.spec.run_spec import RunSpec

_LARGEST = ("device.step_s", "strategy.sync_every", "strategy.local_steps")
"""Keys of which the largest value is the one that helps all; of others, such as workers, it is the least."""


@dataclass(frozen=True)
class Offer:
    """Overrides that would do, and what comes of them."""

    changes: Mapping[str, str]
    """Values by key."""
    says: str

    @property
    def overrides(self) -> list[str]:
        """The changes as arguments of a command."""
        return [f"{key}={value}" for key, value in self.changes.items()]

    def __str__(self) -> str:
        return f"{' '.join(self.overrides)}: {self.says}"

    def replaces(self, key: str) -> bool:
        """Return True if a value of `key` that was given before goes: another plug-in has other parameters."""
        return key in self.changes or key.partition(".")[0] in self.changes


class Refused(InputError):
    """Error of a run that is not possible, with offers of what would be.

    Args:
        why: Line that says what cannot be.
        offers: The first is what `--fix` takes.
        dilation: Returns the dilation of a spec that differs by what measurements hardly depend on, such as the number
            of workers; None if none does. Left out where that is not what the run is refused for.
    """

    def __init__(
        self, why: str, offers: Sequence[Offer], dilation: Callable[[RunSpec], float | None] | None = None
    ) -> None:
        self.why, self.offers, self.dilation = why, tuple(offers), dilation
        lines = [f"  {one}" for one in offers]
        super().__init__(f"{why}; what would do (--fix takes the first):" if lines else why, *lines)


def applied(texts: Iterable[str], offer: Offer) -> list[str]:
    """Return arguments with those of the offer instead of what they replace."""
    kept = [text for text in texts if not offer.replaces(text.lstrip("+").partition("=")[0])]
    return [*kept, *offer.overrides]


def joined(offers: Sequence[Offer]) -> Offer:
    """Return one offer for several runs, each of which has one: of every key the value that helps all of them."""
    changes: dict[str, str] = {}
    for key, value in (change for offer in offers for change in offer.changes.items()):
        both = [value, changes.get(key, value)]
        if all(map(_is_number, both)):
            changes[key] = (max if key in _LARGEST else min)(both, key=float)
        else:
            changes[key] = value
    return Offer(changes, "; ".join(dict.fromkeys(offer.says for offer in offers)))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
