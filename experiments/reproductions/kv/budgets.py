"""How much each selector has to fetch until what it decodes is what exact attention decodes: `budgets.json`, and the
table of docs/kv-transfer.md.

    python -m experiments.reproductions.kv.budgets [SELECTOR ...]

Both sides are in this process, so that nothing is timed. Of the selectors that are named, or all, each setting decodes
the texts of workload `recall` from two seeds, eight of each, and is held against exact attention on the same texts;
what is there of others stays. A minute or two for each selector on one core, and the model's training before the first.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from experiments.common.page import between
from experiments.common.tables import Extract, extracted, table, write_csv
from testbed.core.record.run_directory import write_json
from testbed.orchestrator.machine.clone import CLONE
from testbed.worker.device.clock import PhaseClock
from testbed.worker.methods.kv_transfer.cache.store import LocalLink
from testbed.worker.methods.kv_transfer.model.texts import Sample
from testbed.worker.methods.kv_transfer.model.transformer import DenseCache, KVTransformer
from testbed.worker.methods.kv_transfer.roles import Decoded, Keeper, decode, decode_near
from testbed.worker.methods.kv_transfer.selection.methods import SELECTORS, Method
from testbed.worker.workloads.recall import Recall

FILE = Path(__file__).with_name("budgets.json")
PAGE, REGION = CLONE / "docs" / "kv-transfer.md", "budgets"
SEEDS, TEXTS = (1000, 1001), 8
"""None of those of the reproduction's runs."""
ENOUGH = 0.95
"""Of token match."""
WHOLE_CODECS = ("fp16", "int8", "int4", "kivi4", "kivi2", "cachegen")
GRID: dict[str, list[dict[str, Any]]] = {
    "dense": [{"codec": codec} for codec in WHOLE_CODECS],
    "once": [{"codec": codec} for codec in WHOLE_CODECS],
    "recent": [{"recent": recent} for recent in (32, 128, 256, 384)],
    "sparq": [
        *({"components": c, "budget": budget} for c in (4, 8, 16) for budget in (16, 32, 64, 128)),
        *({"components": c, "budget": budget, "codec": "int4"} for c in (8, 16) for budget in (32, 64, 128)),
    ],
    "quest": [
        *({"page": 4, "budget": budget} for budget in (32, 64)),
        *({"page": 8, "budget": budget} for budget in (8, 16, 24, 32)),
        *({"page": 16, "budget": budget} for budget in (4, 8, 16)),
        *({"page": 8, "budget": budget, "codec": "int4"} for budget in (24, 32, 40, 48)),
    ],
    "loki": [
        *({"rank": rank, "budget": budget} for rank in (8, 16) for budget in (32, 64, 96, 128, 192)),
        *({"rank": 16, "budget": budget, "codec": "int4"} for budget in (64, 96, 128, 192)),
    ],
    "infinigen": [
        *(
            {"reach": reach, "rank": 16, "alpha": alpha, "budget": budget}
            for reach in ("next", "all")
            for alpha in (6.0, 8.0)
            for budget in (64, 128, 192, 256)
        ),
        *(
            {"reach": reach, "rank": 16, "alpha": 8.0, "budget": budget, "codec": "int4"}
            for reach in ("next", "all")
            for budget in (192, 256, 320, 384)
        ),
    ],
    "shadowkv": [
        *({"rank": rank, "budget": budget} for rank in (32, 64) for budget in (8, 16, 24, 32)),
        *({"rank": 64, "budget": budget, "codec": "int4"} for budget in (16, 24, 32)),
    ],
}


@dataclass(frozen=True)
class Outcome:
    """Of one setting; means over texts."""

    setting: dict[str, Any]
    tokens: float
    """Of a text, that are decoded."""
    token_match: float
    recall: float
    exact_recall: float
    """Of exact attention on the same questions."""
    bytes_per_token: float
    """Of questions, answers and what leaves the near side, without frames."""
    trips_per_token: float
    """That are waited for at once."""
    set_up_bytes: float
    near_bytes: float


def measured(
    selector: str, setting: Mapping[str, Any], model: KVTransformer, texts: list[tuple[Sample, Decoded]]
) -> Outcome:
    """
    Args:
        texts: each with what exact attention decodes.
    """
    given = dict(setting)
    method = Method(selector, given.pop("codec", "fp16"), given)
    clock, tokens, right, exact, same = PhaseClock(), 0, 0, 0, 0
    moved = trips = set_up = near = 0
    for sample, expected in texts:
        keeper, chosen = Keeper(model, method, sample, clock, 1.0), method.new(model)
        link = LocalLink(keeper.store)
        found = decode_near(model, sample, chosen, link, lambda keeper=keeper: keeper.set_up, clock, 1.0)
        tokens += len(found.decoded.found)
        same += sum(a == b for a, b in zip(found.decoded.found, expected.found, strict=True))
        right, exact = right + found.decoded.right, exact + expected.right
        moved, trips = moved + link.traffic.total_bytes, trips + link.traffic.round_trips
        set_up, near = set_up + found.set_up_bytes, near + chosen.near_bytes()
    questions = sum(len(sample.asked_at) for sample, _ in texts)
    return Outcome(
        dict(setting),
        tokens / len(texts),
        same / tokens,
        right / questions,
        exact / questions,
        moved / tokens,
        trips / tokens,
        set_up / len(texts),
        near / len(texts),
    )


def texts_of(workload: Recall, model: KVTransformer) -> Iterator[tuple[Sample, Decoded]]:
    for seed in SEEDS:
        batch = workload.batch(0, rank=0, world_size=1, batch_size=TEXTS, seed=seed)
        for index in range(TEXTS):
            sample = batch.sample(index)
            prefilled = model.prefill(torch.tensor(sample.text[: sample.prefill]))
            yield sample, decode(model, sample, lambda prefilled=prefilled: DenseCache(prefilled))


def rows(found: Mapping[str, list[dict[str, Any]]]) -> Iterator[tuple[str, ...]]:
    """Of each selector's settings; the one of the fewest bytes that is enough is marked."""
    for selector, outcomes in found.items():
        able = [one for one in outcomes if one["token_match"] >= ENOUGH]
        least = min(able, key=_all_bytes, default=None)
        for one in outcomes:
            setting = ", ".join(f"{name} {value}" for name, value in one["setting"].items())
            yield (
                selector,
                f"**{setting}**" if one is least else setting,
                f"{one['token_match']:.3f}",
                f"{one['recall']:.3f}",
                f"{one['bytes_per_token'] / 1e3:.1f}",
                f"{one['trips_per_token']:.1f}",
                f"{one['set_up_bytes'] / 1e3:.0f}",
                f"{one['near_bytes'] / 1e3:.0f}",
            )


def _all_bytes(one: Mapping[str, Any]) -> float:
    """Of a text."""
    moved: float = one["set_up_bytes"] + one["bytes_per_token"] * one["tokens"]
    return moved


def written(found: Mapping[str, list[dict[str, Any]]]) -> str:
    """Return what the page shows: for each selector, the setting that is enough and moves the fewest bytes."""
    return extracted(whole(found), TABLE, "docs/kv-transfer.md", _SHOWN)


def whole(found: Mapping[str, list[dict[str, Any]]]) -> str:
    """Return the table of all settings."""
    return table(HEADINGS, list(rows(found)))


HEADINGS = ("selector", "setting", "token match", "recall", "kB a byte", "round trips", "set up, kB", "near, kB")
TABLE = "kv-budgets"
_SHOWN = Extract(
    lambda row: row["setting"].startswith("**"),
    heads=("selector", "setting", "token match", "kB a byte", "round trips", "set up, kB"),
)


def main() -> None:
    torch.set_num_threads(1)
    found = json.loads(FILE.read_text()) if FILE.exists() else {}
    workload = Recall()
    model = workload.model(0)
    texts = list(texts_of(workload, model))
    for selector in sys.argv[1:] or SELECTORS:
        found[selector] = [asdict(measured(selector, setting, model, texts)) for setting in GRID[selector]]
        write_json(FILE, {name: found[name] for name in SELECTORS if name in found})
    write_csv(whole(found), TABLE, CLONE)
    PAGE.write_text(between(PAGE.read_text(), REGION, written(found)))
    sys.stdout.write(whole(found) + "\n")


if __name__ == "__main__":
    main()
