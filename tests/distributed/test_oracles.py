"""Every strategy over real ranks has the losses, and sends the bytes, that were recorded before files moved."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.distributed.oracle_ranks import train_all
from tests.oracles import differences, of_events, processor, read, resolved

WORDS: dict[str, list[str]] = read("loopback/words.json")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    torch.set_num_threads(1)
    specs = {name: resolved(words) for name, words in WORDS.items()}
    played = train_all(specs, tmp_path_factory.mktemp("oracles"))
    return {name: of_events(events) | {"hash": specs[name].hash} for name, events in played.items()}


@pytest.mark.parametrize("name", WORDS)
def test_a_strategy_does_what_it_did(name: str, found: dict[str, dict[str, Any]]) -> None:
    recorded = read(f"loopback/{name}.json")
    assert found[name].pop("hash") == recorded["hash"]
    exact = processor() == read("loopback/processor.json")
    faults = differences(
        recorded["found"], found[name], recorded["same"], exact=exact, strategy=name, codec=_codec(name)
    )
    assert not faults, f"{name}: {'; '.join(faults)}"


def _codec(name: str) -> str:
    return next(word.removeprefix("compressor=") for word in WORDS[name] if word.startswith("compressor="))
