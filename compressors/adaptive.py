from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from torch import Tensor

from compressors.base.compressor import Compressor, Context, FeedbackMode, Layout, Rounds, Route, Traits, choose_route
from compressors.base.feedback import with_feedback
from testbed.core.kinds import Kind, Number, shown
from testbed.core.parameters import inner_feedback, number

_KEYS = ("compressor", "codec_s_element")


@dataclass(frozen=True)
class _Candidate:
    compressor: Compressor
    codec_s_element: float = 0.0


@dataclass(frozen=True)
class _Candidates(Kind):
    """Lists of compressors, of which any may be picked in a step."""

    type_text = "list of candidates"
    bases = (Compressor,)
    values_text = "each with compressor, and perhaps codec_s_element (s)"

    def faults(self, name: str, value: object, *, null: bool = False) -> Iterator[str]:
        if not isinstance(value, Sequence) or isinstance(value, str) or not value:
            yield f"{name}={shown(value)}: must be a list of one at least"
            return
        found = [fault for index, given in enumerate(value) for fault in _faults(f"{name}[{index}]", given) if fault]
        yield from found or _mixed_faults(name, [given["compressor"] for given in value])


class Adaptive(Compressor):
    """Pick for each bucket the least lossy compressor that is fast enough.

    Pick a compressor for each bucket by its size and by the links: the least lossy one that is fast enough.

    No paper describes it. Costs as in Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005: a bucket of n elements takes
    messages * alpha + bytes a rank sends * beta + n * codec seconds. Candidates are in the order of what they lose, the
    best first; the first that takes at most `within` times as long as the fastest is picked. So on a fast link, or for
    a small bucket that is all latency, gradients go as they are; the slower the link, the further down the list.

    Alpha and beta are those of the context: what the topology says at first, then what exchanges took, which the
    runtime measures and all ranks agree on, so that all pick the same in the same step. Where nothing is known of
    links, bytes alone count. Seconds of codecs are not measured in the run: `codec_s_element` gives them.
    Residuals belong to the whole, by feedback around it, and stay owed when another candidate is picked.
    It is biased, fixed in size, and refuses NaN and infinity as its candidates do.
    Wire: that of the candidate, whose number is not sent. `sent_bytes` is for the links of the last step.
    Keeps the state of each candidate, under its number. Measured links are not kept: a resumed run measures again.

    Args:
        candidates: Compressors to choose from, the least lossy first. Each is `{compressor: {_target_: …},
            codec_s_element: …}`, with the seconds of encoding and decoding an element, 0 if missing. Their own feedback
            must be auto.
        within: Longest time allowed, relative to the fastest candidate.

    Raises:
        ValueError: There is no candidate, one is no compressor, takes over the optimizer, keeps or is harmed by
            residuals where others need them, or a number is out of its range.
    """

    needs_link_stats = True

    def __init__(
        self,
        *,
        candidates: Annotated[Sequence[Mapping[str, Any]], _Candidates()],
        within: Annotated[float, Number(least=1, below=1e6)] = 1.5,
        feedback: FeedbackMode = "auto",
    ) -> None:
        super().__init__(feedback=feedback)
        self.candidates = [_Candidate(**given) for given in candidates]
        self.within = within
        self.traits = _traits([candidate.compressor.traits for candidate in self.candidates])
        self._links = 0.0, 0.0

    def pick(self, layout: Layout, world_size: int, step: int, alpha_s: float, beta_s_byte: float) -> int:
        """Return the number of the candidate for a bucket, a function of values that all ranks know."""
        ranks = max(2, world_size)  # alone, as of two
        known = bool(alpha_s or beta_s_byte)
        seconds = []
        for candidate in self.candidates:
            codec = candidate.compressor
            route = choose_route(codec, layout, ranks, alpha_s=alpha_s, beta_s_byte=beta_s_byte, step=step)
            sent_bytes = codec.sent_bytes(layout, ranks, route, step=step) / ranks
            if known:
                latency_s = _messages(codec.traits, route, ranks) * alpha_s
                seconds.append(latency_s + sent_bytes * beta_s_byte + layout.numel * candidate.codec_s_element)
            else:
                seconds.append(sent_bytes)
        enough = self.within * min(seconds)
        return next(index for index, taken in enumerate(seconds) if taken <= enough)

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        return self._picked(layout, context.world_size, context.step).payload_bytes(layout, context)

    def sent_bytes(self, layout: Layout, world_size: int, route: Route, *, step: int = 0) -> int:
        codec = self._picked(layout, world_size, step)
        return codec.sent_bytes(layout, world_size, self._route(codec, layout, world_size, step), step=step)

    def rounds(self, tensor: Tensor, context: Context, *, out: Tensor, error: Tensor | None = None) -> Rounds:
        self._links = context.alpha_s, context.beta_s_byte
        codec = self._picked(context.layout, context.world_size, context.step)
        route = self._route(codec, context.layout, context.world_size, context.step)
        yield from codec.rounds(tensor, replace(context, route=route), out=out, error=error)

    def state_dict(self) -> dict[str, Any]:
        return {str(index): candidate.compressor.state_dict() for index, candidate in enumerate(self.candidates)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for index, candidate in enumerate(self.candidates):
            candidate.compressor.load_state_dict(state.get(str(index), {}))

    def move_state(self, state: dict[str, Any], old: Sequence[Layout], new: Sequence[Layout]) -> dict[str, Any]:
        return {
            str(index): candidate.compressor.move_state(state.get(str(index), {}), old, new)
            for index, candidate in enumerate(self.candidates)
        }

    def _picked(self, layout: Layout, world_size: int, step: int) -> Compressor:
        return self.candidates[self.pick(layout, world_size, step, *self._links)].compressor

    def _route(self, codec: Compressor, layout: Layout, world_size: int, step: int) -> Route:
        alpha_s, beta_s_byte = self._links
        return choose_route(codec, layout, world_size, alpha_s=alpha_s, beta_s_byte=beta_s_byte, step=step)


def _messages(traits: Traits, route: Route, world_size: int) -> int:
    """Return the number of messages after one another, by the algorithms of `compressors.base.alpha_beta`."""
    after = world_size - 1
    asks = 1 if traits.fixed_size else 2  # for sizes first
    if route is Route.REDUCE_SUM:
        return 2 * after
    if route is Route.GATHER:
        return asks * after
    if route is Route.TWO_SHOT:
        return asks * (1 + after)
    return traits.rounds_among(world_size) * 2 * after


def _traits(traits: Sequence[Traits]) -> Traits:
    """Return the promises that all candidates keep."""
    worlds = [trait.max_world for trait in traits if trait.max_world is not None]
    contractions = [trait.contraction for trait in traits if trait.contraction is not None]
    kinds = [trait.feedback for trait in traits]
    return Traits(
        own_rounds=True,
        max_rounds=lambda world_size: max(trait.rounds_among(world_size) for trait in traits),
        point_to_point=False,
        fixed_size=all(trait.fixed_size for trait in traits),
        max_world=min(worlds, default=None),
        averages=all(trait.averages for trait in traits),
        carries_non_finite=Traits.carry(traits),
        unbiased=all(trait.unbiased for trait in traits),
        contraction=min(contractions) if len(contractions) == len(traits) else None,
        feedback=next((kind for kind in ("required", "recommended", "harmful") if kind in kinds), "none"),
    )


def _faults(key: str, given: object) -> Iterator[str | None]:
    if not isinstance(given, Mapping) or not isinstance(given.get("compressor"), Compressor):
        yield f"{key}={shown(given)}: must have a compressor, given as {{_target_: …}}, and may have codec_s_element"
        return
    for name in given:
        if name not in _KEYS:
            yield f"{key}.{shown(name)}={shown(given[name])}: unknown; known: {', '.join(_KEYS)}"
    yield number(f"{key}.codec_s_element", given.get("codec_s_element", 0.0), least=0, below=1)
    compressor = given["compressor"]
    name = type(compressor).__name__
    if fault := inner_feedback(f"{key}.compressor.feedback", compressor.feedback, "Adaptive"):
        yield fault
    elif (owns := with_feedback(compressor).traits.owns) != "nothing":
        yield f"{key}.compressor={name}: takes over the optimizer's {owns}, which cannot change from step to step"
    elif compressor.traits.feedback == "builtin":
        yield f"{key}.compressor={name}: keeps residuals of its own, which would be left behind when another is picked"


def _mixed_faults(key: str, compressors: Sequence[Compressor]) -> Iterator[str]:
    kinds = [compressor.traits.feedback for compressor in compressors]
    needs = next((type(c).__name__ for c, kind in zip(compressors, kinds, strict=True) if kind == "required"), None)
    needs = needs or next(
        (type(c).__name__ for c, kind in zip(compressors, kinds, strict=True) if kind == "recommended"), None
    )
    for index, (compressor, kind) in enumerate(zip(compressors, kinds, strict=True)):
        if kind == "harmful" and needs is not None:
            name = type(compressor).__name__
            yield f"{key}[{index}].compressor={name}: is harmed by the feedback that {needs} needs"
