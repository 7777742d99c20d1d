from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import torch
from torch import Tensor

from compressors.base.compressor import Compressor, Context, FeedbackMode, Layout, Rounds, Route, Traits, choose_route
from compressors.base.feedback import ErrorFeedback, with_feedback
from compressors.parts.merging import in_lockstep
from testbed.core.kinds import Kind, shown
from testbed.core.parameters import whole

_LIMITS = ("min_numel", "max_numel", "min_dims", "max_dims")
_KEYS = ("names", *_LIMITS, "compressor")


@dataclass(frozen=True)
class _Rule:
    """Conditions on tensors, the compressor that they choose, and the key of the rule in the configuration."""

    key: str
    compressor: Compressor
    names: tuple[str, ...] = ()
    min_numel: int = 0
    max_numel: int | None = None
    min_dims: int = 0
    max_dims: int | None = None

    def matches(self, shape: tuple[int, ...], numel: int, name: str | None) -> bool:
        """
        Raises:
            ValueError: it goes by names, and the tensor has none.
        """
        if numel < self.min_numel or len(shape) < self.min_dims:
            return False
        if (self.max_numel is not None and numel > self.max_numel) or (
            self.max_dims is not None and len(shape) > self.max_dims
        ):
            return False
        if self.names and name is None:
            raise ValueError(
                f"{self.key}.names={list(self.names)}: buckets have no names of parameters here; go by size"
            )
        return not self.names or any(fnmatch.fnmatchcase(str(name), pattern) for pattern in self.names)


@dataclass(frozen=True)
class _ForTensors(Kind):
    """Compressors that leave the optimizer alone."""

    type_text = "a compressor, given as {_target_: …}"
    bases = (Compressor,)

    def faults(self, name: str, value: object, *, null: bool = False) -> Iterator[str]:
        if not isinstance(value, Compressor):
            yield f"{name}={shown(value)}: must be {self.type_text}"
        elif (owns := with_feedback(value).traits.owns) != "nothing":
            yield f"{name}={type(value).__name__}: takes over the optimizer's {owns}, which belongs to all parameters"


@dataclass(frozen=True)
class _Rules(Kind):
    """Lists of rules, the first of which that matches counts."""

    type_text = "list of rules"
    bases = (Compressor,)
    values_text = f"each with compressor, and perhaps {', '.join(_KEYS[:-1])}"

    def faults(self, name: str, value: object, *, null: bool = False) -> Iterator[str]:
        if not isinstance(value, Sequence) or isinstance(value, str):
            yield f"{name}={shown(value)}: must be a list"
            return
        for index, rule in enumerate(value):
            yield from filter(None, _rule_faults(f"{name}[{index}]", rule))


class Policy(Compressor):
    """Give each tensor to a compressor by name and size.

    Give each tensor of a bucket to a compressor by its name and size: the first rule that matches.

    No paper describes it: users leave norms and biases as they are, and send matrices through what `otherwise` says.

    The tensors of one compressor in a bucket are a smaller bucket of their own. Their exchanges take place side by
    side: those that ask for the same kind of sum, or for payloads of known and equal sizes, go as one collective.
    Each compressor has feedback by its own traits and parameter, kept here; so there is none around the whole, and
    `feedback=off` turns all of it off. None may take over the optimizer's momentum, which belongs to all parameters.
    It is biased, linear and fixed in size as its compressors are.
    Wire: that of each compressor over its tensors. The routes of those that gather are for the links of the run, so
    `sent_bytes` knows them from the first step on.
    Keeps the state of each compressor, under the number of its rule, and feedback with it.

    Args:
        rules: Rules, first match wins: `{names, min_numel, max_numel, min_dims, max_dims, compressor}`. All but the
            compressor may be missing. `names` is a pattern as in a shell, or a list of them; limits are inclusive, in
            elements and dimensions.
        otherwise: Compressor of all other tensors.

    Raises:
        ValueError: a rule has other keys, a limit is not a whole number from 0 up, or what is given is no compressor,
            or one that takes over the optimizer's momentum.
    """

    def __init__(
        self,
        *,
        otherwise: Annotated[Compressor, _ForTensors()],
        rules: Annotated[Sequence[Mapping[str, Any]], _Rules()] = (),
        feedback: FeedbackMode = "auto",
    ) -> None:
        super().__init__(feedback=feedback)
        self.rules = [_rule(f"rules[{index}]", rule) for index, rule in enumerate(rules)]
        self.rules.append(_Rule("otherwise", otherwise))
        given = [rule.compressor for rule in self.rules]
        self.compressors = given if self.feedback == "off" else [with_feedback(compressor) for compressor in given]
        self.traits = _traits(given, self.compressors)
        self.needs_link_stats = any(compressor.needs_link_stats for compressor in given)
        self._links = 0.0, 0.0

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        return sum(self.compressors[index].payload_bytes(part, context) for index, part, _ in self._groups(layout))

    def sent_bytes(self, layout: Layout, world_size: int, route: Route, *, step: int = 0) -> int:
        sent = 0
        for index, part, _ in self._groups(layout):
            codec = self.compressors[index]
            sent += codec.sent_bytes(part, world_size, self._route(codec, part, world_size, step), step=step)
        return sent

    def rounds(self, tensor: Tensor, context: Context, *, out: Tensor, error: Tensor | None = None) -> Rounds:
        self._links = context.alpha_s, context.beta_s_byte
        groups = [
            _Group(self.compressors[index], places, tensor, out, error)
            for index, _, places in self._groups(context.layout)
        ]
        started = []
        for (index, part, _), group in zip(self._groups(context.layout), groups, strict=True):
            own = replace(
                context,
                layout=part,
                route=self._route(self.compressors[index], part, context.world_size, context.step),
                stream=f"{context.stream}rule {index}",
            )
            started.append(group.rounds(own))
        yield from in_lockstep(started)

    def validate(self, world_size: int) -> Iterator[str]:
        yield from super().validate(world_size)
        for rule in self.rules:
            for line in rule.compressor.validate(world_size):
                if not line.startswith("workers="):  # said above for all of them
                    yield f"{rule.key}.{'' if rule.key == 'otherwise' else 'compressor.'}{line}"

    def state_dict(self) -> dict[str, Any]:
        return {str(index): compressor.state_dict() for index, compressor in enumerate(self.compressors)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for index, compressor in enumerate(self.compressors):
            compressor.load_state_dict(state.get(str(index), {}))

    def move_state(self, state: dict[str, Any], old: Sequence[Layout], new: Sequence[Layout]) -> dict[str, Any]:
        def parts(index: int, layouts: Sequence[Layout]) -> list[Layout]:
            return [part for layout in layouts for found, part, _ in self._groups(layout) if found == index]

        return {
            str(index): compressor.move_state(state.get(str(index), {}), parts(index, old), parts(index, new))
            for index, compressor in enumerate(self.compressors)
        }

    def _groups(self, layout: Layout) -> list[tuple[int, Layout, list[slice]]]:
        """Return (number of the compressor, its part of the bucket, where that lies) for those that have tensors."""
        found: dict[int, list[int]] = {}
        for place, (shape, numel) in enumerate(zip(layout.shapes, layout.numels, strict=True)):
            name = layout.names[place] if layout.names else None
            index = next(i for i, rule in enumerate(self.rules) if rule.matches(shape, numel, name))
            found.setdefault(index, []).append(place)
        starts = [0]
        for numel in layout.numels:
            starts.append(starts[-1] + numel)
        groups = []
        for index, places in sorted(found.items()):
            shapes = tuple(layout.shapes[place] for place in places)
            names = tuple(layout.names[place] for place in places) if layout.names else ()
            part = Layout(shapes, layout.bucket, names)
            groups.append((index, part, _stretches([slice(starts[p], starts[p + 1]) for p in places])))
        return groups

    def _route(self, codec: Compressor, part: Layout, world_size: int, step: int) -> Route:
        alpha_s, beta_s_byte = self._links
        return choose_route(codec, part, world_size, alpha_s=alpha_s, beta_s_byte=beta_s_byte, step=step)


class _Group:
    """The tensors of one compressor in a bucket: a view if they lie together, otherwise copied out and in."""

    def __init__(
        self, codec: Compressor, places: list[slice], tensor: Tensor, out: Tensor, error: Tensor | None
    ) -> None:
        self._codec, self._places = codec, places
        self._tensor, self._out, self._error = tensor, out, error

    def rounds(self, context: Context) -> Rounds:
        tensor, out, error = self._tensor, self._out, self._error
        apart = len(self._places) > 1
        ours = self._of(tensor)
        result = ours if out is tensor else torch.empty_like(ours) if apart else out[self._places[0]]
        left: Tensor | None = None
        if error is not None:
            left = ours if error is tensor or apart else error[self._places[0]]
        yield from _with_error(self._codec, ours, context, result, left)
        self._put(result, out)
        if left is not None and error is not None:
            self._put(left, error)

    def _of(self, tensor: Tensor) -> Tensor:
        if len(self._places) == 1:
            return tensor[self._places[0]]
        return torch.cat([tensor[place] for place in self._places])

    def _put(self, group: Tensor, bucket: Tensor) -> None:
        start = 0
        for place in self._places:
            piece = group[start : start + place.stop - place.start]
            start += len(piece)
            if piece.data_ptr() != bucket[place].data_ptr():
                bucket[place] = piece


def _with_error(codec: Compressor, tensor: Tensor, context: Context, out: Tensor, error: Tensor | None) -> Rounds:
    """Yield rounds whose error is the uncontributed part, also if it is kept: by how much the residual grew."""
    if error is None or not isinstance(codec, ErrorFeedback):
        yield from codec.rounds(tensor, context, out=out, error=error)
        return
    before = codec.residual(context.layout.bucket, context.stream)
    before = torch.zeros_like(tensor, dtype=torch.float32) if before is None else before.clone()
    yield from codec.rounds(tensor, context, out=out)
    after = codec.residual(context.layout.bucket, context.stream)
    assert after is not None
    torch.sub(after, before, out=error)


def _stretches(places: list[slice]) -> list[slice]:
    """Return ranges with neighbours joined."""
    joined = [places[0]]
    for place in places[1:]:
        if place.start == joined[-1].stop:
            joined[-1] = slice(joined[-1].start, place.stop)
        else:
            joined.append(place)
    return joined


def _traits(given: Sequence[Compressor], used: Sequence[Compressor]) -> Traits:
    """Return the promises that all of them keep, alone and with the feedback they have."""
    traits = [compressor.traits for compressor in given]
    keeps = any(compressor is not inner for compressor, inner in zip(used, given, strict=True))
    kinds = {trait.feedback for trait in traits}
    worlds = [trait.max_world for trait in traits if trait.max_world is not None]
    contractions = [trait.contraction for trait in traits if trait.contraction is not None]
    return Traits(
        own_rounds=True,
        max_rounds=lambda world_size: sum(trait.rounds_among(world_size) for trait in traits),
        point_to_point=False,
        fixed_size=all(trait.fixed_size for trait in traits),
        max_world=min(worlds, default=None),
        averages=all(trait.averages for trait in traits),
        carries_non_finite=Traits.carry(traits),
        unbiased=all(trait.unbiased for trait in traits) and not keeps,
        contraction=min(contractions) if len(contractions) == len(traits) and not keeps else None,
        feedback="builtin"
        if kinds & {"builtin", "recommended", "required"}
        else "harmful"
        if "harmful" in kinds
        else "none",
    )


def _rule(key: str, given: Mapping[str, Any]) -> _Rule:
    fields = dict(given)
    names = fields.pop("names", ())
    return _Rule(key, names=(names,) if isinstance(names, str) else tuple(names), **fields)


def _rule_faults(key: str, rule: object) -> Iterator[str | None]:
    if not isinstance(rule, Mapping):
        yield f"{key}={shown(rule)}: must have a compressor, and may have {', '.join(_KEYS[:-1])}"
        return
    for name in rule:
        if name not in _KEYS:
            yield f"{key}.{shown(name)}={shown(rule[name])}: unknown; known: {', '.join(_KEYS)}"
    for name in _LIMITS:
        yield whole(f"{key}.{name}", rule.get(name, 0), 0)
    names = rule.get("names", ())
    if not isinstance(names, str) and not (isinstance(names, Sequence) and all(isinstance(n, str) for n in names)):
        yield f"{key}.names={shown(names)}: must be a pattern, or a list of them"
    yield from _ForTensors().faults(f"{key}.compressor", rule.get("compressor"))
