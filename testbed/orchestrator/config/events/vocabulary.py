"""The vocabulary: what each word of an entry means, as changes, outages and heals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.core.errors import InputError
from testbed.core.spec.schedule import Change
from testbed.core.spec.topology import Link
from testbed.core.units import parse_time_s
from testbed.orchestrator.config.events import quantities, traces
from testbed.orchestrator.config.events.entry import Entry, moment
from testbed.orchestrator.config.events.outages import Heal, Outage

MAX_CHANGES = 100_000
"""Of one entry, and of all together: each is written to the spec, and one second has room for some hundred."""
BIN_S = 0.1
"""Of a mahimahi trace: its rate is the mean over this long."""
_FORMATS = ("mahimahi", "csv")

Meaning = Change | Outage | Heal


@dataclass(frozen=True)
class Word:
    meaning: Callable[[Entry], Iterable[Meaning]]
    """Called once; the entry's faults are complete when it is exhausted."""
    keys: tuple[str, ...]
    """Beside the word itself and `at`."""


def _set(entry: Entry) -> Iterator[Meaning]:
    texts = {key: value for key, value in entry.values.items() if key in quantities.FIELDS}
    length_s = entry.length_or_none_s("for")
    if not texts:
        entry.fault(f"set: sets nothing; give {', '.join(quantities.FIELDS)}")
    for fault in quantities.faults_of_keys(texts, one_way="from" in entry.values):
        entry.fault(fault)
    names = [quantities.FIELDS[key] for key in texts]
    links = entry.links()
    for link in links or entry.topology.wan_links[:1]:  # a value is read even where the link is not known
        sources = entry.sources(link) if links else [link.a]
        try:
            by_source = quantities.fields(texts, link, sources, bare=False)
        except ValueError as error:
            entry.fault(str(error))
            return  # the same for every link
        if any(values.get("rate_bit_s") == 0 for values in by_source.values()):
            entry.fault("rate: 0 is no rate; for an outage give flap with for, every and until, or a trace")
            return
        yield from entry.set(entry.at_s, link, by_source)
        if length_s is not None:
            own = quantities.own_fields(names, link, sources)
            yield from entry.set(entry.at_s + length_s, link, own, f"end of {entry.cause}")


def _flap(entry: Entry) -> Iterator[Meaning]:
    down_s, every_s = entry.length_s("for"), entry.length_s("every")
    until_s = entry.take("until", parse_time_s, math.inf)
    links = entry.links()
    if not entry.faults and every_s <= down_s:
        entry.fault(f"every: must be longer than for, {down_s:g} s, or the link never comes up; found {every_s:g} s")
    if until_s <= entry.at_s:
        entry.fault(f"until: a time of the run, as at is, and after it; found {until_s:g} s")
    count = 0 if entry.faults else math.ceil((until_s - entry.at_s) / every_s - 1e-9)
    if _fits(entry, 2 * count * len(links)):
        for index in range(count):
            start_s = entry.at_s + index * every_s
            yield from _outages(entry, links, start_s, start_s + down_s)


def _outages(entry: Entry, links: Iterable[Link], start_s: float, end_s: float) -> Iterator[Outage]:
    for link in links:
        yield Outage(link.name, moment(start_s), moment(end_s), entry.cause)


def _partition(entry: Entry) -> Iterator[Meaning]:
    sets = _region_sets(entry)
    length_s = entry.length_or_none_s("for")
    if sets is None:
        return
    cut = _links_between(entry, sets)
    detour = _region_between(entry, sets, cut)
    if detour:
        entry.fault(f"partition: the sets are still joined by way of {detour}; put it into one of them")
    elif not cut:
        entry.fault("partition: no WAN link joins these sets")
    yield from _outages(entry, cut, entry.at_s, math.inf if length_s is None else entry.at_s + length_s)


def _region_sets(entry: Entry) -> list[list[str]] | None:
    """Two or more sets, no region in two of them."""
    value, regions = entry.values[entry.word], list(entry.topology.regions)
    if not isinstance(value, list) or len(value) < 2:
        entry.fault(f"{entry.word}: must be two or more sets of regions, as in [[a, b], [c]]; found {value!r:.80}")
        return None
    sets = [entry.names(each, regions, "region") for each in value]
    named = [region for each in sets for region in each]
    for region in dict.fromkeys(named):
        if named.count(region) > 1:
            entry.fault(f"{entry.word}: {region} is in more than one set")
    return None if entry.faults else sets


def _links_between(entry: Entry, sets: list[list[str]]) -> list[Link]:
    home = {region: index for index, each in enumerate(sets) for region in each}
    links = entry.topology.wan_links
    return [ln for ln in links if ln.a in home and ln.b in home and home[ln.a] != home[ln.b]]


def _region_between(entry: Entry, sets: list[list[str]], cut: list[Link]) -> str | None:
    """A region of no set by way of which one set still reaches another."""
    left = [link for link in entry.topology.wan_links if link not in cut]
    for index, start in enumerate(sets):
        others = {region for number, each in enumerate(sets) if number != index for region in each}
        via: dict[str, str | None] = dict.fromkeys(start)
        frontier = list(start)
        while frontier:
            here = frontier.pop()
            for link in left:
                for end, other in ((link.a, link.b), (link.b, link.a)):
                    if end != here or other in via:
                        continue
                    if other in others:
                        return via[here]
                    via[other] = via[here] or other
                    frontier.append(other)
    return None


def _heal(entry: Entry) -> Iterator[Meaning]:
    value = entry.values["heal"]
    if isinstance(value, list) and any(isinstance(each, list) for each in value):
        sets = _region_sets(entry)
        links = _links_between(entry, sets) if sets else []
    else:
        links = entry.links()
    yield Heal(entry.at_s, tuple(link.name for link in links), entry.cause, entry.where)


def _node(entry: Entry) -> Iterator[Meaning]:
    for node in entry.names(entry.values[entry.word], [node.name for node in entry.topology.nodes], "node"):
        yield Change(t_s=entry.at_s, kind=entry.word, node=node, cause=entry.cause)


def _trace(entry: Entry) -> Iterator[Meaning]:
    name = entry.take("file", _text, "")
    form = entry.values.get("format", "csv" if name.endswith(".csv") else None)
    length_s = entry.length_or_none_s("for")
    links = entry.links()
    if form not in _FORMATS:
        entry.fault(f"format: must be {' or '.join(_FORMATS)}, found {form!r}")
    if form == "csv" and "bin" in entry.values:
        entry.fault("bin: only a mahimahi trace is averaged over bins")
    loop = entry.truth("loop", form == "mahimahi" and length_s is not None)
    if loop and length_s is None:
        entry.fault("loop: give for, how long it is repeated")
    if entry.faults:
        return
    play = _mahimahi if form == "mahimahi" else _csv
    try:
        yield from play(entry, links, entry.folder / name, length_s, loop)
    except InputError as error:
        entry.faults += [f"{entry.where}: {fault}" for fault in error.faults]


def _mahimahi(entry: Entry, links: list[Link], path: Path, length_s: float | None, loop: bool) -> Iterator[Meaning]:
    bin_s = entry.length_s("bin") if "bin" in entry.values else BIN_S
    bin_ms = round(bin_s * 1000)
    if abs(bin_s * 1000 - bin_ms) > 1e-6 or not bin_ms:
        entry.fault(f"bin: must be a whole number of milliseconds, found {bin_s * 1000:g} ms")
        return
    opportunities_ms = traces.read_mahimahi(path)
    own_length_s = traces.mahimahi_length_s(opportunities_ms)
    plays_s = own_length_s if length_s is None else length_s if loop else min(length_s, own_length_s)
    if not _fits(entry, math.ceil(plays_s * 1000 / bin_ms) * len(links)):
        return
    rates = list(traces.mahimahi_rates(opportunities_ms, plays_s, bin_ms))
    for link in links:
        sources = entry.sources(link)
        for t_s, rate_bit_s in rates:
            yield from entry.set(entry.at_s + t_s, link, {source: {"rate_bit_s": rate_bit_s} for source in sources})
        yield from _own_again(entry, link, sources, ["rate_bit_s"], plays_s)


def _csv(entry: Entry, links: list[Link], path: Path, length_s: float | None, loop: bool) -> Iterator[Meaning]:
    rows = traces.read_csv(path)
    keys = dict.fromkeys(key for row in rows for key in row.cells)
    for fault in quantities.faults_of_keys(keys, one_way="from" in entry.values):
        entry.fault(f"{path}, line {rows[0].line}: {fault}")
    if loop and len(rows) < 2:
        entry.fault(f"{path}: one row cannot be repeated; give a second one, or no loop")
    if entry.faults:
        return
    rounds = (length_s or 0.0) / traces.csv_round_s(rows) if loop else 1
    if not _fits(entry, math.ceil(rounds * len(rows)) * len(links)):
        return
    plays_s = math.inf if length_s is None else length_s
    steps = [step for step in traces.csv_steps(rows, plays_s, loop=loop) if step[1].cells]
    entry.places = {moment(entry.at_s + t_s): (path, row.line) for t_s, row in steps}
    for link in links:
        sources = entry.sources(link)
        fields = [_row_fields(entry, path, row, link, sources) for _, row in steps]
        if entry.faults:
            return
        _play_outages([(t_s, values) for (t_s, _), values in zip(steps, fields, strict=True)], sources, plays_s)
        for (t_s, _), values in zip(steps, fields, strict=True):
            yield from entry.set(entry.at_s + t_s, link, values)
        if length_s is not None:
            yield from _own_again(entry, link, sources, [quantities.FIELDS[key] for key in keys], length_s)


def _row_fields(
    entry: Entry, path: Path, row: traces.Row, link: Link, sources: list[str]
) -> dict[str, dict[str, float]]:
    try:
        return quantities.fields(row.cells, link, sources, bare=True)
    except ValueError as error:
        if not entry.faults:  # one of a file with the wrong unit stands for all
            entry.fault(f"{path}, line {row.line}: at {row.t_s:g} s: {error}")
        return {}


def _play_outages(
    steps: Sequence[tuple[float, dict[str, dict[str, float]]]], sources: list[str], plays_s: float
) -> None:
    """Replace rates of 0 by those of an outage."""
    for source in sources:
        if not any(values[source].get("rate_bit_s") == 0 for _, values in steps):
            continue
        timed = [(t_s, values[source]) for t_s, values in steps if "rate_bit_s" in values[source]]
        rates = traces.outage_rates([(t_s, values["rate_bit_s"]) for t_s, values in timed], plays_s)
        for (_, values), rate_bit_s in zip(timed, rates, strict=True):
            values["rate_bit_s"] = rate_bit_s


def _own_again(entry: Entry, link: Link, sources: list[str], names: Iterable[str], after_s: float) -> list[Change]:
    own = quantities.own_fields(list(names), link, sources)
    return entry.set(entry.at_s + after_s, link, own, f"end of {entry.cause}")


def _fits(entry: Entry, count: int) -> bool:
    if count > MAX_CHANGES:
        entry.fault(f"makes up to {count} changes, at most {MAX_CHANGES} are taken; shorten it or take longer steps")
    return not entry.faults


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"must be text, found {value!r}")
    return value


WORDS: dict[str, Word] = {
    "set": Word(_set, ("from", *quantities.FIELDS, "for")),
    "flap": Word(_flap, ("for", "every", "until")),
    "partition": Word(_partition, ("for",)),
    "heal": Word(_heal, ()),
    "crash": Word(_node, ()),
    "leave": Word(_node, ()),
    "join": Word(_node, ()),
    "trace": Word(_trace, ("from", "file", "format", "bin", "loop", "for")),
}
