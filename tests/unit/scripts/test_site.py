"""The site has every page of ours once, with links that lead somewhere, and fetches nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts import make_site as site
from scripts import reference_pages

ROOT = Path(__file__).resolve().parents[3]


def translated(text: str, page: str) -> tuple[str, site.Copies]:
    copies = site.Copies()
    return site.translated(text, page, copies), copies


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("README.md", "[b](docs/benchmarks.md#accuracy)", "[b](benchmarks.md#accuracy)"),
        ("README.md", "![f](docs/figures/dear-bell.svg)", "![f](figures/dear-bell.svg)"),
        ("README.md", "[l](LICENSE)", "[l](source/LICENSE.txt)"),
        ("README.md", "[d](docs/reproductions)", "[d](source/docs/reproductions/index.md)"),
        ("docs/sweeps.md", "[c](../CONTRIBUTING.md)", "[c](project/CONTRIBUTING.md)"),
        ("docs/reproductions/dear.md", "[l](../../testbed/cli.md#a)", None),
        ("docs/reproductions/dear.md", "[x](../../Makefile)", "[x](../source/Makefile.txt)"),
        ("docs/reproductions/dear.md", "[r](../../README.md)", "[r](../index.md)"),
        ("docs/traps.md", "[w](https://example.org/a) and [h](#here)", "[w](https://example.org/a) and [h](#here)"),
        (
            "docs/traps.md",
            "`[c](nowhere.md)`\n\n```\n[d](nowhere.md)\n```",
            "`[c](nowhere.md)`\n\n```\n[d](nowhere.md)\n```",
        ),
    ],
)
def test_a_link_leads_to_the_same_in_the_site(page: str, link: str, expected: str | None) -> None:
    text, copies = translated(link, page)
    if expected is None:
        assert copies.faults == [f"{page}: links to testbed/cli.md, which is not there"] and text == link
    else:
        assert (text, copies.faults) == (expected, [])


def test_markers_of_regions_are_left_out_and_their_tables_stay() -> None:
    text, _ = translated("<!-- x: begin -->\n| a |\n| --- |\n<!-- x: end -->\n", "README.md")
    assert text == "\n| a |\n| --- |\n\n"


def test_a_path_out_of_the_tree_is_a_fault() -> None:
    _, copies = translated("[x](../../../etc/passwd)", "docs/traps.md")
    assert len(copies.faults) == 1


def test_every_page_has_one_place_in_the_navigation() -> None:
    named = list(site.named(site.navigation()))
    assert sorted(named) == sorted([*site.pages().values(), *reference_pages.PAGES])


def test_the_navigation_is_by_kind() -> None:
    kinds = [title for entry in site.navigation() for title in entry]
    assert kinds == ["Longhaul", "Tutorials", "How to", "Reference", "Explanation", "Reproductions", "Studies"]


@pytest.mark.tier("all")
def test_the_site_is_built_with_the_readme_s_figures_and_fetches_nothing(tmp_path: Path) -> None:
    assert site.build(tmp_path) == []
    made = tmp_path / "site"
    index = (made / "index.html").read_text()
    figures = re.findall(r"!\[[^]]*\]\(docs/([^)]+)\)", (ROOT / "README.md").read_text())
    assert figures and all(f'src="{figure}"' in index and (made / figure).exists() for figure in figures)
    for page in made.rglob("*.html"):
        text = page.read_text()
        assert not re.findall(r"""<(?:script|img|iframe)[^>]*src=["']?(?:https?:)?//[^>]*>""", text), page
        assert not re.findall(r"""<link[^>]*rel=["']?(?:stylesheet|preconnect)[^>]*(?:https?:)?//[^>]*>""", text), page


@pytest.mark.tier("all")
def test_what_mkdocs_finds_wrong_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gather = site.gather

    def with_a_page_more(folder: Path) -> list[str]:
        faults = gather(folder)
        (folder / "stray.md").write_text("# Stray\n\n[x](index.md#no-such-heading)\n")
        return faults

    monkeypatch.setattr(site, "gather", with_a_page_more)
    said = "\n".join(site.build(tmp_path))
    assert "stray.md" in said and "no-such-heading" in said
