"""Measured figures in sentences are those of the CSV file, or of the ledger, that has them.

A case is a page, a sentence of it with a `{}` for each figure, and where each figure comes from. What a benchmark
measures again changes its CSV file, and then the sentence has to follow.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
_NUMBER = re.compile(r"\d[\d,]*\.?\d*")


@dataclass(frozen=True)
class Cell:
    """A figure: the sum of some cells of a row, without signs.

    Args:
        where: Values that choose the row; a value in a file may go on after a blank with `(others used ...`.
        column: Columns that are added; of a cell the number `pick`, from 0.
        form: Format of the figure; empty: as it is in the file.
        factor: Factor from the unit of the file to that of the sentence.
    """

    table: str
    where: tuple[tuple[str, str], ...]
    column: tuple[str, ...]
    form: str = ""
    factor: float = 1.0
    pick: int = 0

    def __str__(self) -> str:
        texts = [_NUMBER.findall(row_of(self)[name])[self.pick] for name in self.column]
        if len(texts) == 1 and not self.form:
            return str(texts[0])
        return f"{sum(float(text.replace(',', '')) for text in texts) * self.factor:{self.form}}"


@cache
def rows(table: str) -> Sequence[dict[str, str]]:
    return list(csv.DictReader((ROOT / "docs" / "tables" / f"{table}.csv").read_text().splitlines()))


def row_of(cell: Cell) -> dict[str, str]:
    """Return the row that a cell is in, which has to be one."""
    (found,) = [
        row
        for row in rows(cell.table)
        if all(row[name].partition(" (others used")[0].strip("`") == value for name, value in cell.where)
    ]
    return found


def of(table: str, where: str, column: str, form: str = "", *, by: float = 1.0, pick: int = 0) -> Cell:
    """Return a cell, its row given as `column=value; column=value` and its columns as `a + b`."""
    pairs = tuple((name, value) for name, _, value in (part.partition("=") for part in where.split("; ")))
    return Cell(table, pairs, tuple(column.split(" + ")), form, by, pick)


def ledger(system: str) -> str:
    """Return the ratio that the README's table of systems has for one."""
    (found,) = re.findall(
        rf"^\| \[{system}\]\([^)]*\) \| \w+ \| [\d.]+ \| ([\d.]+) \|", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    return str(found)


def repeats(system: str) -> list[str]:
    """Return the ratio of each repeat of a system."""
    found = json.loads((ROOT / "experiments" / "reproductions" / system / "result.json").read_text())
    return [f"{value:.2f}" for value in found["ratios"].values()]


def digits(compressor: str, column: str, form: str = "") -> Cell:
    return of("compression", f"title=digits on wan100m; compressor={compressor}", column, form)


def set_up(system: str, column: str, nodes: int = 128) -> Cell:
    return of("set_up", f"nodes={nodes}; system={system}", column)


def started(workers: int, how: str, column: str) -> Cell:
    return of("start_up", f"workers={workers}; start={how}", column)


def slowed(tcp: str, k: int, form: str = ".1f") -> Cell:
    return of("run_dilation", f"tcp={tcp}; k={k}", "against k=1: %", form)


def dilated(transfer: str, k: int) -> Cell:
    return of("dilation", f"transfer={transfer}; tcp=reno; k={k}", "against k=1: %", ".1f")


def reached(strategy: str, column: str, link: str = "wan100m", form: str = "") -> Cell:
    return of("strategies", f"title=digits on {link}; strategy={strategy}", column, form)


def netem(system: str, column: str, form: str, pick: int = 0) -> Cell:
    return of("netem", f"rate=100 Mbit/s; RTT=67 ms; system={system}", column, form, pick=pick)


def secure(workload: str, updates: str) -> Cell:
    return of("secure", f"workload={workload}; updates={updates}", "round, s")


MININET, OURS = "Mininet, TCLink", "longhaul, netem"
FORKED, EACH = "forked from one", "an interpreter each"
FIRST, CPU, MEMORY = "first step begins, s", "CPU, s", "memory, GB"
TRANSFER, ALL_REDUCE = "20 MB to the last byte", "all-reduce of 10 MB, 4 ranks"
LINKS = ("wan100m", "wan1g")
TARGET, WAN = "s to 0.97", "over the WAN, MB"
QUEUE, RTT = "rate, queue filled: %", "RTT error p50 / p99, ms"

CASES = [
    (
        "README.md",
        "`topk` reaches 97 % accuracy in {} s, uncompressed training in {} s.",
        [digits("topk", TARGET), digits("none", TARGET)],
    ),
    ("README.md", "`powersgd` sends {}x less payload than `none`", [digits("powersgd", "dense / payload", ".0f")]),
    ("docs/compressors.md", "a `digits` step is {}x faster with `topk`", [digits("topk", "none's step / this")]),
    (
        "docs/studies/compressors.md",
        "`powersgd` sends {}x less than `none`",
        [digits("powersgd", "dense / payload", ".0f")],
    ),
    (
        "docs/benchmarks.md",
        "Of 100,000 packets {} % were lost at a target of 0.1 % ({} standard deviations off), and {} % at 1 %. "
        "Gilbert-Elliott bursts of 8 at 1 % lost {} % in bursts of {}.",
        [
            of("loss", "asked=0.1 %", "share"),
            of("loss", "asked=0.1 %", "standard deviations off"),
            of("loss", "asked=1 %", "share"),
            of("loss", "asked=1 %, bursts of 8", "share"),
            of("loss", "asked=1 %, bursts of 8", "lost in a row, mean"),
        ],
    ),
    (
        "docs/benchmarks.md",
        "is {} % too slow at 10 Mbit/s (Longhaul {} %) and {} % at 1 Gbit/s",
        [
            of("mininet_tclink", "bw=10; delay=none; cores=idle", QUEUE, ".1f"),
            of("mininet_tclink", "bw=10; delay=none; cores=idle", "ours at this rate: %", ".1f"),
            of("mininet_tclink", "bw=1000; delay=none; cores=idle", QUEUE, ".1f"),
        ],
    ),
    (
        "docs/benchmarks.md",
        "rates are {} % (Longhaul) and {} % (`TCLink`) too low. "
        "Median RTTs are {} and {} ms too long, their p99 {} and {} ms",
        [
            *(netem(system, QUEUE, ".2f") for system in (OURS, MININET)),
            *(netem(system, RTT, ".2f") for system in (OURS, MININET)),
            netem(OURS, RTT, ".2f", pick=1),
            netem(MININET, RTT, ".1f", pick=1),
        ],
    ),
    (
        "docs/benchmarks.md",
        "A star of 128 nodes comes up in {} s (Mininet: {} s), with a runc container in every node in {} s. "
        "It goes down in {} (Mininet: {} s) and {} s. 1000 nodes take {} s.",
        [
            *(set_up(system, "up, s") for system in ("longhaul", "mininet", "longhaul with containers")),
            *(set_up(system, "down, s") for system in ("longhaul", "mininet", "longhaul with containers")),
            set_up("longhaul", "up, s", nodes=1000),
        ],
    ),
    (
        "docs/benchmarks.md",
        "16 workers forked from one process take {} s, {} CPU seconds and {} GB (PSS); "
        "an interpreter each {} s, {} and {} GB. 64 forked workers take {} s, {} and {} GB.",
        [
            *(started(16, FORKED, column) for column in (FIRST, CPU, MEMORY)),
            *(started(16, EACH, column) for column in (FIRST, CPU, MEMORY)),
            *(started(64, FORKED, column) for column in (FIRST, CPU, MEMORY)),
        ],
    ),
    (
        "docs/benchmarks.md",
        "takes {} CPU seconds per GB at 100 Mbit/s and {} at 1 Gbit/s.",
        [of("cost", f"rate={rate}", "all, s/GB", ".1f") for rate in ("100 Mbit/s", "1 Gbit/s")],
    ),
    (
        "docs/benchmarks.md",
        "Monitoring an idle star takes {} ms/s of CPU time with 4 WAN links and {} with 64.",
        [of("monitor", f"WAN links={n}", "collector, ms/s + probe process, ms/s", ".1f") for n in (4, 64)],
    ),
    (
        "docs/benchmarks.md",
        "takes {} % of a core (target: 2 %), and steps are {} ± {} % longer",
        [of("observation", "k=1", name) for name in ("collector: of a core", "observed steps are longer by", "±")],
    ),
    (
        "docs/benchmarks.md",
        "Transfers are {} and {} % off at k = 2 and 4, all-reduces {} and {} %",
        [*(dilated(TRANSFER, k) for k in (2, 4)), *(dilated(ALL_REDUCE, k) for k in (2, 4))],
    ),
    (
        "docs/benchmarks.md",
        "the worst phase is {} % off (target: 2 %), a step {} % off the sum of its parts",
        [of("pacing", "workers=64", "worst phase: %"), of("pacing", "workers=8", "step against its parts: %")],
    ),
    (
        "docs/benchmarks.md",
        "steps with reno are {} % off at k = 2 and {} % at k = 4",
        [slowed("reno", 2), slowed("reno", 4)],
    ),
    (
        "docs/benchmarks.md",
        "With BBR they are {} and {} % off, with `tcp=stock` {} % at k = 2.",
        [slowed("tuned", 2), slowed("tuned", 4), slowed("stock", 2)],
    ),
    (
        "docs/benchmarks.md",
        "With 8 workers `ring` and `hierarchical` take {}x gloo's time, the two-shot ones {} to {}x",
        [
            of("collectives", f"workers=8; algorithm={name}", "time / gloo's")
            for name in ("ring", "two_shot", "hierarchical_two_shot")
        ],
    ),
    *(
        (
            "docs/strategies.md",
            f"`{name}` {{}} and {{}} ({{}} MB",
            [*(reached(name, TARGET, link) for link in LINKS), reached(name, WAN, form=form)],
        )
        for name, form in (("streaming_diloco", ""), ("diloco", ""), ("local_sgd", ""), ("ddp", ".0f"))
    ),
    (
        "docs/reproductions/diloco.md",
        "`diloco` reaches 97 % in {} s, `ddp` in {} s.",
        [reached("diloco", TARGET), reached("ddp", TARGET)],
    ),
    (
        "docs/federated.md",
        "With `blocks` a round takes {} s without drop-outs and {} s with 30 %, in the clear {} s",
        [secure("blocks", one) for one in ("secure, 0% drop out", "secure, 30% drop out", "in the clear")],
    ),
    (
        "docs/parameter-server.md",
        "three updates 0.3 s apart took {} s without, {} s with two decoders; all at once {} and {} s.",
        [
            of("parameter-server-figures", f"case={what}", "result", pick=pick)
            for what in ("0.3 s apart", "all at once")
            for pick in (0, 2)
        ],
    ),
    (
        "docs/reproductions/pad-kfac.md",
        "PAD-KFAC reaches 84 % in 90 to 100 steps of {} s. SGD takes 200 to 230 of {} s.",
        [of("second_order", f"={name}", "step, ms: mean", ".2f", by=1e-3) for name in ("PAD-KFAC", "SGD")],
    ),
    (
        "docs/reproductions/pufferfish.md",
        "from 4 to 64 workers a step grows from {} to {} ms with factors",
        [of("low_rank", f"=factors; workers={n}", "mean step, s (predicted)", ".1f", by=1e3) for n in (4, 64)],
    ),
    (
        "docs/studies/scale.md",
        "`none` grows from {} to {} s",
        [
            of("study_scale", "title=Links of 100 Mbit/s; step, s=none", column, form)
            for column, form in (("4 workers", ".2f"), ("1000 workers", ""))
        ],
    ),
    (
        "docs/plans.md",
        "Rank correlations are {} on dtfm-regional4 and {} on gcp4",
        [of("plans", f"network={name}; model=corrected", "Spearman") for name in ("dtfm-regional4", "gcp4")],
    ),
    ("docs/reproductions/grace.md", "is **{}x faster** than overlapped dense gradients at 1 Gbit/s", [ledger("grace")]),
    (
        "docs/reproductions/cuttlefish.md",
        "all steps take {}x, {}x and {}x less time than at full rank",
        repeats("cuttlefish"),
    ),
    ("docs/reproductions/dear.md", "**{}x faster** than the best other for BERT-base", [ledger("dear")]),
    ("docs/reproductions/deepreduce.md", "**{}x fewer bytes**", [ledger("deepreduce")]),
    ("docs/reproductions/fedml.md", "3.12 s with an equal split: **{}x faster**.", [ledger("fedml")]),
    ("docs/federated.md", "`blocks` reaches 75 % {}x faster", [ledger("fedbuff")]),
    ("docs/reproductions/pad-kfac.md", "PAD-KFAC with gradients is **{}x faster** than SPD-KFAC", [ledger("pad-kfac")]),
    ("docs/reproductions/pufferfish.md", "instead of 62.0 s at full rank: **{}x faster**.", [ledger("pufferfish")]),
    ("docs/reproductions/spd-kfac.md", "SPD-KFAC is **{}x** (ResNet-50)", [ledger("spd-kfac")]),
    ("docs/reproductions/hierarchical.md", "from 188.2 MB to 46.5 MB (**{}x**)", [ledger("hierarchical")]),
]


@pytest.mark.parametrize(("page", "sentence", "figures"), CASES, ids=[f"{case[0]}: {case[1][:60]}" for case in CASES])
def test_a_figure_of_a_sentence_is_that_of_its_source(page: str, sentence: str, figures: Sequence[object]) -> None:
    said = " ".join(sentence.format(*figures).split())
    assert said in " ".join((ROOT / page).read_text().split())


def test_figures_are_rounded_and_have_no_sign_and_one_number_of_a_cell_is_picked() -> None:
    one = Cell("netem", (("rate", "100 Mbit/s"), ("RTT", "67 ms"), ("system", OURS)), (RTT,), ".2f", pick=1)
    assert (str(one), str(Cell(one.table, one.where, (QUEUE,)))) == ("0.54", "0.16")
