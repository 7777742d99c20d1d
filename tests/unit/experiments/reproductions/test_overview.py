"""The table of all systems says what is recorded, on the page of reproductions and on the artifact's page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from experiments.common.benchmark import find_benchmarks
from experiments.common.papers.declaration import FOLDER, find_systems
from experiments.reproductions import overview
from experiments.reproductions.outcome import verdict_of
from experiments.reproductions.overview import Recorded, least, recorded
from testbed.core.errors import InputError
from tests.unit.experiments.reproductions.fake_runs import regions, system


def rows(text: str, name: str) -> list[list[str]]:
    (found,) = re.findall(rf"<!-- {name}: begin -->\n(.*?)\n<!-- {name}: end -->", text, re.DOTALL)
    return [line.strip("| ").split(" | ") for line in found.splitlines()[2:]]


def test_the_page_says_what_is_recorded() -> None:
    found = {re.findall(r"\[(.*?)\]", row[0])[0]: row for row in rows(overview.PAGE.read_text(), "reproductions")}
    results = {path.parent.name: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*/result.json"))}
    assert sorted(found) == sorted(result["system"] for result in results.values())
    for result in results.values():
        row = found[result["system"]]
        assert row[1] == result["claim"]
        emulated = result["emulated"]
        assert row[3] == "-" if emulated is None else float(row[3]) == pytest.approx(emulated, abs=0.005)
        assert row[4] == (result["verdict"] or "-")
        assert row[6] == f"`make reproduce SYSTEM={result['system']}`"


def test_both_pages_are_as_they_would_be_written(tmp_path: Path) -> None:
    page, artifact = tmp_path / "reproductions.md", tmp_path / "artifact.md"
    page.write_text(overview.PAGE.read_text())
    artifact.write_text(overview.ARTIFACT.read_text())
    overview.write(page=page, artifact=artifact)
    again = "run `make reproduce REPRODUCE=--tables`, or overview.write()"
    assert page.read_text() == overview.PAGE.read_text(), again
    assert artifact.read_text() == overview.ARTIFACT.read_text(), again


def test_every_system_and_every_benchmark_has_a_row() -> None:
    text = overview.ARTIFACT.read_text()
    assert [row[0].split(":")[0] for row in rows(text, "claims")] == [one.name for one in find_systems(None)]
    assert [re.findall(r"only (\w+)", row[0])[0] for row in rows(text, "figures")] == list(find_benchmarks())


def test_no_call_for_one_system_is_said_to_last_more_than_ten_minutes() -> None:
    assert all(0 < overview.usual_s(one) <= 600 for one in find_systems(None))


@pytest.mark.parametrize("claimed", [1.2, 1.83, 7.39])
def test_from_the_least_ratio_on_the_verdict_is_reproduced(claimed: float) -> None:
    bound = least(system(claimed=claimed))
    assert (verdict_of(claimed, bound), verdict_of(claimed, bound - 0.001)) == ("reproduced", "partly")


@pytest.mark.parametrize(
    ("emulated", "room"), [(1.6, "-9 %"), (1.4, "+4 %"), (1.1, "-5 %"), (1.0, "+5 %"), (None, "-")]
)
def test_the_way_to_the_next_verdict_is_the_shorter_one(emulated: float | None, room: str) -> None:
    result = {"emulated": emulated, "verdict": verdict_of(1.5, emulated), "runs": {"baseline": [], "candidate": []}}
    assert f" | {room} | 0 |" in overview.claims_table([Recorded(system(claimed=1.5), result)])


def test_what_was_never_measured_has_a_row_without_figures(tmp_path: Path) -> None:
    (one,) = recorded([system()], tmp_path)
    assert "| 1.50 | - | - |" in overview.systems_table([one])
    assert overview.claims_table([one]).endswith("| -, - | - | - |")


def test_a_damaged_result_and_a_page_without_its_region_are_named(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "result.json").write_text("{")
    with pytest.raises(InputError, match=r"made/result\.json"):
        recorded([system()], tmp_path)
    page = tmp_path / "reproductions.md"
    page.write_text(regions("something"))
    with pytest.raises(InputError, match=r"reproductions\.md.*reproductions"):
        overview.write(tmp_path / "none", page, page)
