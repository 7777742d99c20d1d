"""Runs as series: groups that differ by the seed alone, split into panels of at most eight."""

from __future__ import annotations

import dataclasses
import textwrap
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from testbed.analysis.comparison.groups import SETTING, Group
from testbed.analysis.record.identity import UNKNOWN, kind_of, spoken_kind
from testbed.analysis.record.run_settings import NETWORK, differing, spoken
from testbed.analysis.style.series_style import MAX_SERIES, Method, SeriesStyle, place_of, styles_for

T = TypeVar("T")
MAX_LETTERS = 30
"""Length of a label, so that labels leave room for the panel."""
_MIN_PER_FACET = 3
"""Average number of series from which on one panel per strategy, or per compressor, reads better than halves."""


@dataclass(frozen=True)
class Row:
    """One series to be: a method in one setting."""

    method: Method
    groups: tuple[Group, ...]
    """One group, but where a series joins several, as over numbers of workers."""
    label: str
    style: SeriesStyle

    @property
    def run_ids(self) -> tuple[str, ...]:
        return tuple(record.run_id for group in self.groups for record in group.taken)


@dataclass(frozen=True)
class Facet:
    """Rows of one panel."""

    title: str
    rows: tuple[Row, ...]
    setting: tuple[str, ...] = ()
    """Setting that its runs share; with more than eight methods, several panels have one."""


def methods_of(groups: Sequence[Group]) -> dict[int, Method]:
    """Return what each group shows, by `id`; the differences of networks are the panels'."""
    by_pair: dict[tuple[str, str], list[Group]] = defaultdict(list)
    for group in groups:
        by_pair[group.strategy, group.compressor].append(group)
    found = {}
    for (strategy, compressor), same in by_pair.items():
        settings = [group.every_setting() for group in same]
        keys = [key for key in differing(settings) if key not in NETWORK]
        for group, mine in zip(same, settings, strict=True):
            found[id(group)] = Method(strategy, compressor, spoken(mine, keys))
    return found


def differing_keys(groups: Sequence[Group]) -> list[str]:
    """Return keys of settings in which groups differ besides strategy, compressor and network."""
    keys = differing(group.every_setting() for group in groups)
    return [key for key in keys if key not in NETWORK and not key.startswith(("strategy.", "compressor."))]


def legend_title(methods: Iterable[Method]) -> str:
    """Return what labels name: "strategy", "compressor", or both."""
    strategies, compressors = _varying(methods)
    return ", ".join(word for word, varies in (("strategy", strategies), ("compressor", compressors)) if varies)


def _varying(methods: Iterable[Method]) -> tuple[bool, bool]:
    strategies, compressors = _parts(methods)
    if len(strategies) == len(compressors) == 1:
        return True, True
    return len(strategies) > 1, len(compressors) > 1


def facets(groups: Sequence[Group], without: tuple[str, ...] = ()) -> tuple[list[Facet], str]:
    """Split groups into panels, one for each setting, and for each eight methods of it.

    Args:
        groups: In any order.
        without: Names of `SETTING` that the panels do not tell apart, such as the number of workers.

    Returns:
        The panels, and the title of the legend.
    """
    names = [name for name in (*SETTING, "network") if name not in without]
    methods = methods_of(groups)
    by_setting: dict[tuple[str, ...], dict[Method, list[Group]]] = defaultdict(lambda: defaultdict(list))
    for group in groups:
        known = dict(zip((*SETTING, "network"), (*group.setting, group.network), strict=True))
        by_setting[tuple(known[name] for name in names)][methods[id(group)]].append(group)
    every = {method for by_method in by_setting.values() for method in by_method}
    shown = _varying(every)
    found: list[Facet] = []
    taken: set[SeriesStyle] = set()
    for chunk_title, chunk in _chunks(every):
        styles = styles_for(_with_those_of_next_panels(chunk_title, chunk, every), () if chunk_title else taken)
        taken |= set(styles.values())
        for key, by_method in by_setting.items():
            there = [method for method in chunk if method in by_method]
            told = [varies and chunk_title not in part for varies, part in zip(shown, _parts(there), strict=True)]
            labels = _labels(there, told)
            rows = [Row(one, tuple(by_method[one]), labels[one], styles[one]) for one in there]
            title = ": ".join(filter(None, (_setting_title(key, names, list(by_setting)), chunk_title)))
            found += [Facet(title, tuple(rows), key)] if rows else []
    return found, legend_title(every)


def _with_those_of_next_panels(title: str, chunk: Sequence[Method], every: Collection[Method]) -> Sequence[Method]:
    """Return the methods that get styles with those of a panel of one strategy, or one compressor.

    A name that lacks in this panel keeps its style free, so that panels have the same styles.
    """
    for part in ("strategy", "compressor"):
        if title and {getattr(method, part) for method in chunk} == {title}:
            found = {dataclasses.replace(method, **{part: title}) for method in every}
            return sorted(found, key=place_of) if len(found) <= MAX_SERIES else chunk
    return chunk


def styles_of(groups: Sequence[Group]) -> dict[int, SeriesStyle]:
    """Return the style that each group has in figures of all of them, by `id`."""
    found, _ = facets(groups)
    return {id(group): row.style for facet in found for row in facet.rows for group in row.groups}


def _parts(methods: Iterable[Method]) -> tuple[set[str], set[str]]:
    found = list(methods)
    return {one.strategy for one in found}, {one.compressor for one in found}


def _labels(methods: Sequence[Method], told: Sequence[bool]) -> dict[Method, str]:
    """Return a short label for each method; its setting only where another one has its strategy and compressor."""
    counts = Counter((one.strategy, one.compressor) for one in methods)
    labels: dict[Method, str] = {}
    for one in methods:
        words = [word for word, is_told in zip((one.strategy, one.compressor), told, strict=True) if is_told]
        setting = one.setting if counts[one.strategy, one.compressor] > 1 else ""
        label = textwrap.shorten(f"{', '.join(words)} {setting}".strip(), MAX_LETTERS, placeholder=" …")
        same = sum(other == label or other.startswith(f"{label} (") for other in labels.values())
        labels[one] = f"{label} ({same + 1})" if same else label
    return labels


def _setting_title(key: tuple[str, ...], names: Sequence[str], keys: Sequence[tuple[str, ...]]) -> str:
    """Return what tells a setting from the others."""
    words = []
    for place, (name, word) in enumerate(zip(names, key, strict=True)):
        if len({other[place] for other in keys}) > 1 and word:
            words.append(f"{word} workers" if name == "workers" else spoken_kind(word) if name == "kind" else word)
    return ", ".join(words)


def _chunks(methods: Iterable[Method]) -> list[tuple[str, list[Method]]]:
    """Return at most eight methods a panel, by strategy or by compressor where that makes few panels."""
    ordered = sorted(methods, key=place_of)
    if len(ordered) <= MAX_SERIES:
        return [("", ordered)]
    for part in ("strategy", "compressor"):
        by_part: dict[str, list[Method]] = defaultdict(list)
        for method in ordered:
            by_part[getattr(method, part)].append(method)
        if len(by_part) > 1 and len(ordered) >= _MIN_PER_FACET * len(by_part):
            return [(name, piece) for name, found in by_part.items() for piece in even_pieces(found)]
    return [("", piece) for piece in even_pieces(ordered)]


def even_pieces(items: Sequence[T]) -> list[list[T]]:
    """Return pieces of about the same length, none above `MAX_SERIES`."""
    if not items:
        return []
    count = -(-len(items) // MAX_SERIES)
    size, longer = divmod(len(items), count)
    pieces, start = [], 0
    for index in range(count):
        end = start + size + (index < longer)
        pieces.append(list(items[start:end]))
        start = end
    return pieces


def kind_word(groups: Iterable[Group]) -> str:
    """Return "emulated ", "measured " or "simulated ", or nothing where runs of several kinds are shown."""
    kinds = {kind_of(record) for group in groups for record in group.taken} - {UNKNOWN}
    return f"{kinds.pop()} " if len(kinds) == 1 else ""
