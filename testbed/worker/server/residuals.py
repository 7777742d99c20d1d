"""What a lossy message has left out of each tensor, to be sent with the next."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor


class Residuals:
    """Error feedback for messages: r <- (x + r) - decoded, so that what was decoded adds up to what was sent, less r.

    Seide et al., "1-Bit Stochastic Gradient Descent", Interspeech 2014; Karimireddy et al., ICML 2019,
    arXiv:1901.09847. Keeps one tensor for each that travels lossy.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def plus(self, name: str, value: Tensor) -> Tensor:
        """A new tensor where something is kept."""
        kept = self._kept.get(name)
        return value if kept is None else value + kept

    def keep(self, left: Mapping[str, Tensor]) -> None:
        """Replace what is kept of these by what a message has left out."""
        self._kept.update(left)

    def state_dict(self) -> dict[str, Tensor]:
        return {name: kept.clone() for name, kept in self._kept.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self._kept = {name: kept.clone() for name, kept in state.items()}
