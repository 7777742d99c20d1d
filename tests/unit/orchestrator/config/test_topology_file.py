"""`topo=./mynet.yaml`: a user's own network by its path."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from testbed.core.errors import InputError
from testbed.core.record.run_directory import RUN_ID, new_run_id
from testbed.core.spec.topology import Topology
from testbed.orchestrator.cli.main import main
from testbed.orchestrator.config.config import compose, resolve
from testbed.orchestrator.config.topology import build_topology, read_topology_file

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
    assert line.startswith(f"topo={path}, line 4: topo.links[0].source: must say where"), (
        "a cap is no source for a round trip"
    )
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
        ("a b.yaml", LISTED, "the topology is called as its file, 'a b'"),
        ("long-name-of-a-topology.yaml", LISTED, "must be 22 letters"),
        ("net.yaml", "a: [1\nb: 2", ", line 2: is not YAML"),
        ("net.yaml", "- 1\n", "must hold _target_ and its parameters, or regions and links"),
        ("net.yaml", "", "must hold _target_"),
        ("net.yaml", "\x00", "holds the control character U+0000"),
        ("net.yaml", "_target_: no.such\n", "line 1: topo._target_=no.such: is neither"),
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
    assert line.startswith(f"topo={path}"), "the file, whatever is missing in it"


def test_faults_of_a_file_come_beside_all_others(tmp_path: Path) -> None:
    path = tmp_path / "net.yaml"
    path.write_text(LISTED.replace("50 Mbit/s", "50 Mbps").replace("lima, rate", "lina, rate") + "hops: 3\n")
    found = lines(f"topo={path}", "compressor=topkk", "steps=0")
    own = [line.removeprefix(f"topo={path}, ") for line in found]
    assert sorted(line.split(": ")[0] + line.split(": ")[1].split("=")[0] for line in own if "line" in line[:5]) == [
        *("line 4topo.links[0].b", "line 4topo.links[0].rate", "line 5topo.hops"),
    ]
    assert sorted(line.split("=")[0] for line in own if "line" not in line[:5]) == ["compressor", "steps"]
    assert resolve([f"topo={path}"]).stand_in is not None
    assert lines("topo=nowhere.yaml", "steps=0")[0] == (
        "topo=nowhere.yaml: cannot be read: No such file or directory; give the path of a file"
    )


def test_drawn_by_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.yaml"
    path.write_text(LISTED)
    assert main(["topologies", str(path)]) == 0
    assert "paris ══ WAN ══ lima   RTT 180 ms" in capsys.readouterr().out


def described(tmp_path: Path, text: str) -> str:
    (tmp_path / "net.yaml").write_text(text)
    return f"topo={tmp_path}/net.yaml"


def drawn(tmp_path: Path, text: str) -> Topology:
    """The topology in a file, without the rest of a run."""
    (tmp_path / "net.yaml").write_text(text)
    found = read_topology_file(tmp_path / "net.yaml")
    params = {key: value for key, value in found.values.items() if key not in ("_target_", "run")}
    workers = found.values.get("run", {}).get("workers", 4)
    try:
        return build_topology("net", str(found.values["_target_"]), params, workers, is_users=True)
    except InputError as error:
        raise InputError(*found.located(error.faults, ())) from error


TWO = "regions: {us: 1, eu: 1}\n"
MANY = ",".join(f"r{index}" for index in range(9000))
SECOND = "  - {name: x, a: eu, b: us, rate: 1 Gbit/s, rtt: 5 ms, source: s}\n"
LINK = "links:\n  - {a: %s, b: %s, rate: 100 Mbit/s, rtt: 20 ms, source: my ping}\n"


@pytest.mark.parametrize(
    "names", [("no", "se"), ("on", "off"), ("010", "08"), ("0x1F", "1e3"), ("null", "True"), ("y", "5")]
)
def test_names_are_text_as_written(tmp_path: Path, names: tuple[str, str]) -> None:
    a, b = names
    for regions in (f"{{{a}: 1, '{b}': 2}}", f"[{a}, {b}]"):
        topology = drawn(tmp_path, f"regions: {regions}\n{LINK % names}")
        assert topology.regions == names and topology.wan_links[0].name == f"{a}-{b}"
        assert topology.nodes[0].name == f"{a}-0"
    text = f"regions: [us, eu]\n{LINK % ('us', 'eu')}".replace("source:", f"name: {a}, source:")
    assert drawn(tmp_path, text).wan_links[0].name == a
    text = f"_target_: topologies.ring.build\nregions: [{a}, {b}]\nrtt: 5 ms\n"
    assert drawn(tmp_path, text).regions == names


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("regions: {us: 1, eu: 1, us: 2}\n" + LINK % ("us", "eu"), "line 1: the key 'us' is there twice"),
        (TWO + LINK % ("us", "eu, rtt: 2 s"), "line 3: the key 'rtt' is there twice"),
        ("regions:\n  us: 1\n  ~: 1\n" + LINK % ("us", "~"), "line 3: topo.regions: the name '~' must be"),
        ("regions:\n  us: 1\n  '': 1\n" + LINK % ("us", "''"), "line 3: topo.regions: the name '' is empty"),
        ("regions:\n  us: 1\n  ../up: 1\n" + LINK % ("us", "../up"), "line 3: topo.regions: the name '../up'"),
        ("regions:\n  us: 1\n  host: 1\n" + LINK % ("us", "host"), "line 3: topo.regions: the name 'host' is reserved"),
        ("regions: {us: 1:10, eu: 1}\n" + LINK % ("us", "eu"), "line 1: topo.regions.us='1:10': must be how many"),
        (
            f"regions:\n  us: 1\n  {'x' * 40}: 4\n" + LINK % ("us", "x" * 40),
            f"line 3: topology net: a node of the region '{'x' * 40}': the name '{'x' * 40}-0' must be",
        ),
        ("regions: {us: 1, US: 1, eu: 1}\n" + LINK % ("us", "eu"), "line 1: topology net: no path to 'US', 'US-0'"),
        (TWO + LINK % ("us", "eu, jitter: 1e-400 ms"), "line 3: topo.links[0].jitter: time '1e-400 ms': too small"),
        (TWO + (LINK % ("us", "eu")).replace("100 M", "1_00 M"), "line 3: topo.links[0].rate: rate '1_00 Mbit/s'"),
        ("regions: {us: 300000, eu: 1}\n" + LINK % ("us", "eu"), "line 1: topo.regions.us=300000: must be how many"),
        (TWO + LINK % ("us", "eu, loss: 0.5"), "line 3: topo.links[0].loss: ratio 0.5: has no %"),
        (TWO + LINK % ("us", "eu, reorder: 1"), "line 3: topo.links[0].reorder: ratio 1: has"),
        (TWO + LINK % ("us", "eu, hops: 1"), "line 3: topo.links[0].hops: unknown"),
        (TWO + "run: {wokers: 3}\n" + LINK % ("us", "eu"), "line 2: run.wokers: unknown key"),
        (
            "_target_: topologies.star.build\nrun:\n  workers: 300000\n",
            "line 3: run.workers=300000: must be a whole number",
        ),
        ("_target_: topologies.lan.build\nrun: {workers: 1:10}\n", "line 2: run.workers=1:10: must be a whole number"),
        (TWO + "run: 3\n" + LINK % ("us", "eu"), "line 2: run: must hold what"),
        (TWO + LINK % ("us", "eu") + SECOND, "line 4: topology net: link x: joins eu and us, as us-eu does"),
        ("_target_: topologies.ring.build\nregions: [a, b]\nloss: 0.1\n", "line 3: topo.loss: ratio '0.1': has no %"),
        (f"_target_: topologies.full_mesh.build\nregions: [{MANY}]\n", "line 2: topo.regions: has 9000 names"),
        ("_target_: os.system\ncommand: 'true'\n", "line 1: topo._target_=os.system: is neither"),
        ("_target_: [1]\n", "line 1: topo._target_="),
        ("_target_:\n", "line 1: topo._target_=''"),
    ],
)
def test_a_fault_of_a_topology_has_its_line(tmp_path: Path, text: str, line: str) -> None:
    begun_s = time.process_time()
    with pytest.raises(InputError) as caught:
        drawn(tmp_path, text)
    (fault,) = caught.value.faults
    assert fault.startswith(f"topo={tmp_path}/net.yaml, {line}") and "\n" not in fault
    assert time.process_time() - begun_s < 60, "no work grows with the square of what is given"


def test_a_fault_of_an_argument_has_no_line_of_the_file(tmp_path: Path) -> None:
    topo = described(tmp_path, "regions: {us: 1, eu: 1}\nrate: 5 Mbit/s\n" + LINK % ("us", "eu"))
    (fault,) = lines(topo, "topo.rate=fast")
    assert fault.startswith("topo.rate: rate 'fast'")


def test_four_thousand_workers_are_drawn_soon(tmp_path: Path) -> None:
    topo = described(tmp_path, "regions: {us: 4000, eu: 96}\n" + LINK % ("us", "eu"))
    begun_s = time.process_time()
    assert len(compose([topo]).topology.nodes) == 4096
    assert time.process_time() - begun_s < 60, "no work grows with the square of what is given"
