"""CITATION.cff has the keys of the Citation File Format 1.2.0, and says of the project what its other files say."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import testbed

ROOT = Path(__file__).resolve().parents[3]
CITATION: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text())
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

REQUIRED = {"authors", "cff-version", "message", "title"}
KNOWN = REQUIRED | {
    *("abstract", "commit", "contact", "date-released", "doi", "identifiers", "keywords", "license", "license-url"),
    *("preferred-citation", "references", "repository", "repository-artifact", "repository-code", "type", "url"),
    "version",
}
OF_ENTITY = {
    *("name", "address", "alias", "city", "country", "date-end", "date-start", "email", "fax", "location", "orcid"),
    *("post-code", "region", "tel", "website"),
}
OF_PERSON = {
    *("address", "affiliation", "alias", "city", "country", "email", "family-names", "fax", "given-names"),
    *("name-particle", "name-suffix", "orcid", "post-code", "region", "tel", "website"),
}


def faults(citation: dict[str, Any]) -> list[str]:
    """By the format's schema, as far as such a file can come to it."""
    found = [f"lacks {key}" for key in sorted(REQUIRED - citation.keys())]
    found += [f"has {key}, which the format does not know" for key in sorted(citation.keys() - KNOWN)]
    texts = ("title", "message", "abstract", "version", "license", "commit", "doi", "url", "repository-code")
    found += [f"{key} is no text" for key in texts if not isinstance(citation.get(key, ""), str)]
    if citation.get("cff-version") != "1.2.0":
        found.append("cff-version is not 1.2.0")
    if citation.get("type", "software") not in ("software", "dataset"):
        found.append("type is neither software nor dataset")
    for key in ("authors", "keywords"):
        one = citation.get(key, ["-"])
        if not isinstance(one, list) or not one or len({str(entry) for entry in one}) != len(one):
            found.append(f"{key} is no list of different entries")
    for author in citation.get("authors") or []:
        allowed = OF_ENTITY if isinstance(author, dict) and "name" in author else OF_PERSON
        if not isinstance(author, dict) or not author or author.keys() - allowed:
            found.append(f"an author is neither a person nor an entity: {author}")
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", str(citation.get("date-released", "2000-01-01"))):
        found.append("date-released is no day")
    return found


def test_it_is_of_the_format() -> None:
    assert faults(CITATION) == []


@pytest.mark.parametrize(
    "change",
    [
        {"title": None},
        {"stars": 5},
        {"cff-version": "1.3"},
        {"authors": []},
        {"authors": [{"names": "x"}]},
        {"type": "x"},
    ],
)
def test_what_is_not_of_the_format_is_found(change: dict[str, Any]) -> None:
    assert faults({**CITATION, **change}) != []


def test_it_says_what_the_project_says() -> None:
    assert CITATION["version"] == testbed.__version__
    assert CITATION["license"] == PROJECT["license"]
    readme = (ROOT / "README.md").read_text().split("\n\n")[1].replace("\n", " ")
    assert CITATION["abstract"] == readme


def test_the_newest_release_in_the_changelog_is_this_version() -> None:
    headings = re.findall(r"^## ([\w.]+)(.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert len({version for version, _ in headings}) == len(headings)
    releases = headings[1:] if headings[0] == ("Unreleased", "") else headings
    assert releases[0][0] == testbed.__version__
