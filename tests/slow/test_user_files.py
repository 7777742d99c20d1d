"""A minute of generated inputs for each reader of users' files: accepted, or refused soon with one line a fault."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from testbed.core.errors import InputError
from testbed.orchestrator.config.background import compile_background
from testbed.orchestrator.config.events.compiler import compile_events, read_events
from testbed.orchestrator.config.topology import build_topology, read_topology_file
from testbed.orchestrator.config.user_files.yaml_reader import read_yaml
from testbed.orchestrator.search.sweep import files
from testbed.worker.methods.federated.clients.availability import read_trace
from topologies import full_mesh

SECONDS = 60.0
EXAMPLES = 100
MOST_S = 2.0
LEAST_ACCEPTED = 0.1
MESH = full_mesh.build(
    workers=3, regions=["us", "eu", "asia"], rate="100 Mbit/s", rtt="80 ms", source="assumed: a test"
)
WORDS = "' [ ] { } , ; - s % no ~ on 010 0x1F 1:30 1e999 -1 0 0.5 .nan true null us eu all host ../x Mbit/s"
MARKS = '\0|\ufeff|\r\n|\n|\t|\u2028|é|\x1b[2J|&a |*a|<<: |!!x |---\n|# |: |  |"'
ODD = [*WORDS.split(" "), *MARKS.split("|"), "1600000000", "9" * 20, "1" * 50, "[" * 50]
NAMES = st.sampled_from(["us", "eu", "asia", "no", "010", "x-1", "paris"])
RATES = st.sampled_from(["100 Mbit/s", "1 Gbit/s", "20 kbit/s", "5e6 bit/s"])
TIMES = st.sampled_from(["0", "20 ms", "1 s", "180 ms", "1 min"])
COUNTS = st.integers(0, 4)


@st.composite
def _damaged(draw: st.DrawFn, whole: st.SearchStrategy[str]) -> bytes:
    """Bytes of a file: as it should be, or with some places changed."""
    text = draw(whole)
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2, 4]))):
        place, removed = draw(st.integers(0, len(text))), draw(st.sampled_from([0, 0, 1, 5]))
        text = text[:place] + draw(st.one_of(st.sampled_from(ODD), st.text(max_size=4))) + text[place + removed :]
    encoding = draw(st.sampled_from(["utf-8"] * 20 + ["utf-8-sig", "utf-16", "latin-1"]))
    return text.encode(encoding, errors="replace")


@st.composite
def _topology(draw: st.DrawFn) -> str:
    if draw(st.booleans()):
        names = draw(st.lists(NAMES, min_size=2, max_size=4, unique=True))
        return f"_target_: topologies.{draw(st.sampled_from(['ring', 'full_mesh', 'star']))}.build\nregions: {names}\n"
    regions = draw(st.lists(NAMES, min_size=2, max_size=3, unique=True))
    lines = [f"regions: {{{', '.join(f'{name}: {draw(COUNTS) + 1}' for name in regions)}}}", "links:"]
    for other in regions[1:]:
        loss = draw(st.sampled_from(["", ", loss: 0.1%", ", jitter: 1 ms", ", queue: 1 BDP"]))
        link = f"a: {regions[0]}, b: {other}, rate: {draw(RATES)}, rtt: 20 ms{loss}, source: my ping"
        lines.append(f"  - {{{link}}}")
    return "\n".join(lines) + "\n"


@st.composite
def _events(draw: st.DrawFn) -> str:
    entry = st.one_of(
        st.builds("{{at: {}, set: all, rate: {}}}".format, TIMES, RATES),
        st.builds("{{at: {}, set: us-eu, loss: 1%, for: 2 s}}".format, TIMES),
        st.builds("{{at: {}, partition: [[us], [eu, asia]], for: 5 s}}".format, TIMES),
        st.builds("{{at: {}, flap: us-eu, for: 1 s, every: 4 s, until: 80 s}}".format, TIMES),
        st.builds("{{at: {}, crash: eu-0}}".format, TIMES),
    )
    return "".join(f"- {one}\n" for one in draw(st.lists(entry, min_size=1, max_size=3, unique=True)))


@st.composite
def _sweep(draw: st.DrawFn) -> str:
    more = draw(st.sampled_from(["", "max_hours: 2\n", "exclude:\n  - seed=0\n", "executors: {slurm: {jobs: 3}}\n"]))
    return f"axes:\n  - topo=lan,wan1g\n  - seed=range({draw(COUNTS) + 2})\n  - steps={draw(COUNTS)}\n{more}"


@st.composite
def _csv(draw: st.DrawFn) -> str:
    rates = draw(st.lists(st.sampled_from(["5e6", "0", "20 Mbit/s", "50%", ""]), min_size=1, max_size=5))
    return "t_s,rate,loss\n" + "".join(f"{second},{rate},0.1%\n" for second, rate in enumerate(rates))


@st.composite
def _mahimahi(draw: st.DrawFn) -> str:
    return (
        "".join(f"{t_ms}\n" for t_ms in sorted(draw(st.lists(st.integers(0, 5000), min_size=1, max_size=20))))
        + "6000\n"
    )


@st.composite
def _clients(draw: st.DrawFn) -> str:
    spans = draw(st.lists(st.tuples(COUNTS, st.integers(0, 99)), min_size=1, max_size=5, unique=True))
    return "client,from_s,until_s\n" + "".join(f"{client},{10 * t},{10 * t + 5.5}\n" for client, t in spans)


def _read_topology(path: Path) -> object:
    found = read_topology_file(path)
    params = {key: value for key, value in found.values.items() if key not in ("_target_", "run")}
    workers = found.values.get("run", {}).get("workers", 4)
    return build_topology("net", str(found.values["_target_"]), params, workers)


def _read_events(path: Path) -> object:
    return compile_events(read_events(str(path)), MESH, "digits")


def _read_background(path: Path) -> object:
    return compile_background(str(path), MESH)


def _read_trace(form: str) -> Callable[[Path], object]:
    def read(path: Path) -> object:
        return compile_events(
            read_events([{"at": 0, "trace": "us-eu", "file": str(path), "format": form}]), MESH, "digits"
        )

    return read


def _read_clients(path: Path) -> object:
    found, faults = read_trace.__wrapped__(str(path), None)
    if faults:
        raise InputError(*faults)
    return found


BACKGROUND = st.sampled_from(["us-eu:30%\n", "- us-eu:30%\n- {link: us-asia, load: 50%, from: us, mean_flow: 1 MB}\n"])
READERS: dict[str, tuple[Callable[[Path], Any], st.SearchStrategy[str]]] = {
    "topology": (_read_topology, _topology()),
    "events": (_read_events, _events()),
    "sweep": (lambda path: files.read(str(path)), _sweep()),
    "background": (_read_background, BACKGROUND),
    "csv": (_read_trace("csv"), _csv()),
    "mahimahi": (_read_trace("mahimahi"), _mahimahi()),
    "clients": (_read_clients, _clients()),
    "settings": (
        lambda path: read_yaml(path).plain(),
        st.just("_target_: mine.Signs\nfeedback: auto\nlevels: [1, 2]\n"),
    ),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", READERS)
def test_each_input_is_accepted_or_refused_soon_in_lines(name: str, tmp_path: Path) -> None:
    read, whole = READERS[name]
    path, counts = tmp_path / "net.yaml", Counter[str]()

    @settings(max_examples=EXAMPLES, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(_damaged(whole))
    def judge(content: bytes) -> None:
        path.write_bytes(content)
        begun_s = time.process_time()
        try:
            read(path)
            counts["accepted"] += 1
        except InputError as error:
            faults = error.faults
            counts["refused"] += 1
            assert faults and all(fault and "\n" not in fault and len(fault) < 1000 for fault in faults)
        assert time.process_time() - begun_s < MOST_S

    ends_s, number = time.monotonic() + SECONDS, 0
    while time.monotonic() < ends_s:
        seed(number)(judge)()
        number += 1
    assert counts["accepted"] >= LEAST_ACCEPTED * counts.total() > 0, counts
