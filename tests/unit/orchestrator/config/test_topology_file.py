"""`topo=./mynet.yaml`: a user's own network by its path."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.core.errors import InputError
from testbed.core.record.run_directory import RUN_ID, new_run_id
from testbed.orchestrator.cli.main import main
from testbed.orchestrator.config.config import compose, resolve

LISTED = """
regions: {paris: 2, lima: 1}
links:
  - {a: paris, b: lima, rate: 50 Mbit/s, rtt: 180 ms, source: "my ping of 2026-11-20"}
"""


def lines(*overrides: str) -> tuple[str, ...]:
    with pytest.raises(InputError) as caught:
        compose(overrides)
    return caught.value.faults


def test_a_described_network_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "my-net_1.yaml"
    path.write_text(LISTED)
    monkeypatch.chdir(tmp_path)
    for given in (f"topo={path}", "topo=./my-net_1.yaml", "topo=my-net_1.yaml"):
        spec = compose([given, "seed=3"])
        assert (spec.topo, spec.workers, spec.seed) == ("my-net_1", 3, 3)
    assert RUN_ID.match(new_run_id(spec.topo, "ddp", "none", spec.hash))
    (link,) = compose(["topo=my-net_1.yaml", "topo.rate=10 Mbit/s"]).topology.wan_links
    assert link.forward.rate_bit_s == 1e7
    path.write_text(LISTED.replace(', source: "my ping of 2026-11-20"', ""))
    (line,) = lines(f"topo={path}", "topo.rate=10 Mbit/s")
    assert line.startswith("topo.links[0].source: must say where"), "a cap is no source for a round trip"
    path.write_text(LISTED)
    assert lines("topo=my-net_1.yaml", "workers=5") == (
        "workers=5: the regions of my-net_1 lay down 3 in all; leave workers out",
    )


def test_a_family_by_path_takes_overrides_like_ours(tmp_path: Path) -> None:
    path = tmp_path / "loop.yml"
    path.write_text("_target_: topologies.ring.build\nregions: [a, b, c]\nrtt: 10 ms\nrun: {workers: 6}\n")
    topology = compose([f"topo={path}", "topo.rate=5 Mbit/s"]).topology
    assert (topology.name, len(topology.nodes), len(topology.wan_links)) == ("loop", 6, 3)
    assert topology.wan_links[0].rtt_s == 0.01
    assert topology.wan_links[0].forward.source.startswith("assumed: given by the user: rate=5 Mbit/s")
    (line,) = lines(f"topo={path}", "topo.ratee=5")
    assert "did you mean rate?" in line


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("a b.yaml", LISTED, "'a b' names the topology"),
        ("long-name-of-a-topology.yaml", LISTED, "22 at most"),
        ("net.yaml", "a: [1\nb: 2", ", line 2: is not YAML"),
        ("net.yaml", "- 1\n", "must hold _target_ and its parameters, or regions and links"),
        ("net.yaml", "", "must hold _target_"),
        ("net.yaml", "\x00", "is not YAML"),
        ("net.yaml", "_target_: no.such\n", "topo._target_=no.such: cannot be imported"),
        ("net.yaml", "regions: [a]\n", "topo.links: must be given"),
        ("net.yaml", "regions: [a]\nlinks: {}\n", "topo.links={}: must be a list"),
        ("net.yaml", "regions: a\nlinks: []\n", "topo.regions=a: must be a list"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(tmp_path: Path, name: str, text: str, fault: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    (line,) = lines(f"topo={path}")
    assert fault in line and "\n" not in line


def test_faults_of_a_file_come_beside_all_others(tmp_path: Path) -> None:
    path = tmp_path / "net.yaml"
    path.write_text(LISTED.replace("50 Mbit/s", "50 Mbps").replace("lima, rate", "lina, rate") + "hops: 3\n")
    found = lines(f"topo={path}", "compressor=topkk", "steps=0")
    assert sorted(line.split(":")[0].split("=")[0] for line in found) == [
        *("compressor", "steps", "topo.hops", "topo.links[0].b", "topo.links[0].rate"),
    ]
    assert resolve([f"topo={path}"]).stand_in is not None
    assert lines("topo=nowhere.yaml", "steps=0")[0] == "topo=nowhere.yaml: cannot be read: No such file or directory"


def test_drawn_by_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.yaml"
    path.write_text(LISTED)
    assert main(["topologies", str(path)]) == 0
    assert "paris ══ WAN ══ lima   RTT 180 ms" in capsys.readouterr().out
