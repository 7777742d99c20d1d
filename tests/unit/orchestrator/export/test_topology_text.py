"""Topologies as text and as SVG."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from testbed.core.spec.topology import Topology, symmetric
from testbed.core.spec.topology_svg import svg
from testbed.orchestrator.cli.main import main
from testbed.orchestrator.config.config import compose, names
from testbed.orchestrator.export.topology_text import drawing

SVG = "{http://www.w3.org/2000/svg}"


def words_of(picture: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def test_many_links_become_a_matrix_with_every_figure() -> None:
    text = drawing(compose(["topo=aws8"]).topology)
    row = next(line.split() for line in text.splitlines() if "3 eu-west-1" in line)
    assert row == ["3", "eu-west-1", "4310", "3870", "-", "22.3", "214.4", "179", "253.9", "179.7"]
    assert text.count("source: ") == 1 and "licence: Apache-2.0" in text


def test_rates_that_differ_by_direction_get_a_matrix_of_their_own() -> None:
    regions = ["a", "b", "c", "d"]
    pairs = [(a, b) for a in regions for b in regions if a < b]
    links = [{"a": a, "b": b, "rate": "8 Mbit/s", "rtt": "10 ms", "backward": {"rate": "2 Mbit/s"}} for a, b in pairs]
    from topologies import described

    links.append({"a": "d", "b": "e", "rate": "8 Mbit/s", "rtt": "10 ms", "loss": "1%"})
    text = drawing(described.build(workers=5, regions=[*regions, "e"], links=links, source="assumed: a test"))
    assert "rate in Mbit/s, from the line's region to the column's" in text
    assert [line.split() for line in text.splitlines() if line.startswith("   2 b")] == [
        ["2", "b", "10", "-", "10", "10", "."],
        ["2", "b", "2", "-", "8", "8", "."],
    ]
    assert "WAN links: loss 1.000%" in text


def test_impairments_are_spoken() -> None:
    text = drawing(compose(["topo=lossy", "topo.jitter=2 ms", "topo.reorder=1%", "topo.queue=100 packets"]).topology)
    assert "jitter 2 ms (uniform), loss 0.500% in bursts of 4, reorders 1.000%, queue 151.4 kB" in text


@pytest.mark.parametrize("name", names("topo"))
def test_a_picture_is_xml_with_every_region_link_and_source(name: str) -> None:
    topology = compose([f"topo={name}"]).topology
    picture = svg(topology)
    words = words_of(picture)
    assert all(words.count(region) == 1 for region in topology.regions)
    assert len(list(ElementTree.fromstring(picture).iter(f"{SVG}line"))) == len(topology.wan_links)
    assert sum(word.endswith((" ms", " us")) for word in words if "," not in word) == len(topology.wan_links)
    assert any(word.startswith("Source: ") for word in words) == bool(topology.wan_links)


def test_nothing_lies_outside_a_picture_and_no_two_regions_overlap() -> None:
    for count in range(1, 11):
        regions = ",".join(f"region-number-{index}" for index in range(count))
        topology = compose(["topo=full_mesh", f"topo.regions=[{regions}]", "workers=10"]).topology
        root = ElementTree.fromstring(svg(topology))
        boxes = [
            [float(rect.get(key, "")) for key in ("x", "y", "width", "height")]
            for rect in root.iter(f"{SVG}rect")
            if rect.get("stroke")
        ]
        assert len(boxes) == count
        for x, y, width, height in boxes:
            assert x >= 0 and x + width <= float(root.get("width", "")) and y >= 70
            assert y + height <= float(root.get("height", ""))
        for i, (x, y, width, height) in enumerate(boxes):
            assert not any(abs(x - ox) < width and abs(y - oy) < height for ox, oy, _, _ in boxes[i + 1 :])


def test_names_are_escaped_in_a_picture() -> None:
    profile: dict[str, Any] = {"wan": True, "rtt_s": 0.01, "rate_bit_s": 1e8, "source": "assumed: <me> & you"}
    link = symmetric("a<b-c&d", "a<b", "c&d", **profile)
    picture = svg(Topology(name="odd", regions=("a<b", "c&d"), nodes=(), links=(link,)))
    assert {"a<b", "c&d", "Source: assumed: <me> & you"} <= {*words_of(picture)}


def test_svg_is_written_where_it_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "us3.svg"
    assert main(["topologies", "us3", "topo.rate=500 Mbit/s", "--svg", str(path)]) == 0
    assert any("500 Mbit/s each way" in word for word in words_of(path.read_text()))
    assert main(["topologies", "--svg", str(path)]) == 2
    assert main(["topologies", "us3", "--svg", str(tmp_path / "no" / "x.svg")]) == 2
    assert "cannot be written: No such file or directory" in capsys.readouterr().err


def test_what_is_written_under_sudo_is_the_caller_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[Path, int, int]] = []
    monkeypatch.setenv("SUDO_UID", "1001")
    monkeypatch.setenv("SUDO_GID", "1002")
    monkeypatch.setattr(os, "chown", lambda path, user, group, **_: given.append((Path(path), user, group)))
    picture, written = tmp_path / "us3.svg", tmp_path / "us3.clab.yml"
    call = ["topologies", "us3", "--svg", str(picture), "--containerlab", str(written), "--image", "debian"]
    assert main(call) == 0
    assert given == [(picture, 1001, 1002), (written, 1001, 1002)]
    assert main(["topologies", "us3", "--svg", "/dev/null"]) == 0 and len(given) == 2, "no device is given away"


@pytest.mark.tier("all")
def test_the_list_has_a_row_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topologies"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in names("topo"))
    assert "335 Mbit/s to 1.16 Gbit/s" in out and "11 ms to 238 ms" in out


def test_what_a_single_flow_had_stands_beside_the_capacity() -> None:
    assert "5 Gbit/s, delay 5.5 ms, one TCP flow had 1.12 Gbit/s there" in drawing(compose(["topo=us3"]).topology)
