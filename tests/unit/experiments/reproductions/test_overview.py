"""The ledger of all systems says what is recorded, and so do the pages of reproductions and of the artifact."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from experiments.common.benchmark import find_benchmarks
from experiments.common.papers.claim import OWN, Claim
from experiments.common.papers.declaration import FOLDER, PAGES, System, find_systems
from experiments.reproductions import overview, page
from experiments.reproductions.ledger import least, verdict_at
from experiments.reproductions.outcome import result
from experiments.reproductions.overview import Recorded, counts_line, ledger_table, recorded
from testbed.core.errors import InputError
from tests.unit.experiments.reproductions.fake_runs import found, regions, system


def test_the_ledger_says_what_is_recorded() -> None:
    table = overview.README.read_text().partition("<!-- ledger: begin -->")[2].partition("\n\n")[2].partition("\n\n")[0]
    lines = [line for line in table.partition("<!--")[0].splitlines() if line]
    assert lines[0].count("|") == 8, "seven columns at most"
    found = {re.findall(r"\[(.*?)\]", row[0])[0]: row for row in (line.strip("| ").split(" | ") for line in lines[2:])}
    results = {path.parent.name: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*/result.json"))}
    assert sorted(found) == sorted(one["system"] for one in results.values())
    for one in results.values():
        row = found[one["system"]]
        emulated, interval = one["emulated"], one["interval"]
        assert row[1] in one["class"] and row[1] in ("paper", "own")
        assert float(row[2]) == pytest.approx(one["claimed"], abs=0.005)
        assert row[3] == "-" if emulated is None else float(row[3]) == pytest.approx(emulated, abs=0.005)
        assert (row[4] == "-") == (interval is None) and row[5] == str(one["repeats"]["counted"])
        assert row[6].startswith("no verdict" if one["verdict"] is None else one["standing"])


def test_all_pages_are_as_they_would_be_written(tmp_path: Path) -> None:
    copies = {path: tmp_path / path.name for path in (overview.PAGE, overview.ARTIFACT, overview.README)}
    for path, copy in copies.items():
        copy.write_text(path.read_text())
    overview.write(page=copies[overview.PAGE], artifact=copies[overview.ARTIFACT], readme=copies[overview.README])
    for path, copy in copies.items():
        assert copy.read_text() == path.read_text(), "run `make reproduce REPRODUCE=--tables`, or overview.write()"


@pytest.mark.parametrize("one", find_systems(None), ids=lambda one: one.name)
def test_a_system_s_page_is_as_it_would_be_written(one: System, tmp_path: Path) -> None:
    copy = tmp_path / "pages" / f"{one.name}.md"
    copy.parent.mkdir()
    copy.write_text((PAGES / f"{one.name}.md").read_text())
    page.write(one, json.loads((FOLDER / one.folder / "result.json").read_text()), copy.parent)
    for made in (copy, *(tmp_path / "tables").glob("*")):
        kept = PAGES.parent / made.relative_to(tmp_path).as_posix().replace("pages", PAGES.name)
        assert made.read_text() == kept.read_text(), "run `make reproduce REPRODUCE=--tables`"


def test_every_benchmark_is_listed_with_its_minutes() -> None:
    text = overview.ARTIFACT.read_text().partition("<!-- figures: begin -->")[2].partition("<!-- figures: end -->")[0]
    assert sorted(re.findall(r"`(\w+)` \(\d+\)", text)) == sorted(find_benchmarks())


def test_no_call_for_one_system_is_said_to_last_more_than_ten_minutes() -> None:
    assert all(0 < overview.usual_s(one) <= 600 for one in find_systems(None))


@pytest.mark.parametrize("claimed", [1.2, 1.83, 7.39])
def test_from_the_least_ratio_on_the_verdict_is_reproduced(claimed: float) -> None:
    bound = least(claimed)
    assert (verdict_at(claimed, bound), verdict_at(claimed, bound - 0.001)) == ("reproduced", "partly")


def test_what_was_never_measured_has_a_row_without_figures(tmp_path: Path) -> None:
    (one,) = recorded([system()], tmp_path)
    assert "| 1.50 | - | - | 0 | not measured |" in ledger_table([one])


def test_a_verdict_that_the_interval_does_not_settle_says_so() -> None:
    runs = [found(arm, figure, seed=seed) for seed in range(3) for arm, figure in (("new", 1.0), ("slow", 9.0))]
    runs += [found("old", figure, seed=seed) for seed, figure in enumerate((1.3, 1.4, 1.5))]
    one = Recorded(system(), result(system(), runs))
    assert ledger_table([one]).endswith("| 3 | partly (interval reaches reproduced) |")
    assert "[made](docs/reproductions/made.md)" in ledger_table([one])


def test_systems_are_counted_by_class_and_verdict() -> None:
    own = dataclasses.replace(system(), terms=Claim(kind=OWN))
    verdicts = [(system(), "partly"), (system(), None), (system(), "partly"), (own, "not")]
    assert counts_line([Recorded(one, {"verdict": verdict}) for one, verdict in verdicts]) == (
        "The paper's claim: 3 systems, 2 partly, 1 without a verdict; our own comparison: 1 system, 1 not reproduced."
    )


def test_a_damaged_result_and_a_page_without_its_region_are_named(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "result.json").write_text("{")
    with pytest.raises(InputError, match=r"made/result\.json"):
        recorded([system()], tmp_path)
    table = tmp_path / "reproductions.md"
    table.write_text(regions("something"))
    with pytest.raises(InputError, match=r"reproductions\.md.*ledger"):
        overview.write(tmp_path / "none", table, table, table)
