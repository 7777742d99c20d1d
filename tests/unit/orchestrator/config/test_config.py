"""From arguments to a spec; every kind of bad input is one clear line, and all lines come at once."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import pytest

from testbed.core.errors import InputError
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.config.config import compose, names, resolve
from testbed.orchestrator.machine.clone import CONF_DIR

TOPOLOGIES = ", ".join(names("topo"))


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """The clone's topologies and common keys, with plug-ins that no test imports."""
    for path in [CONF_DIR / "config.yaml", *(CONF_DIR / "topo").glob("*.yaml")]:
        copy = tmp_path / path.relative_to(CONF_DIR)
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(path.read_text())
    for name, text in {
        "workload/digits": "_target_: w.Digits\nrun: {steps: 300, batch_size: 64}\n",
        "strategy/ddp": "_target_: s.DDP\nbucket_size: 25 MiB\n",
        "compressor/none": "_target_: c.Uncompressed\n",
        "compressor/topk": "_target_: c.TopK\ndensity: 0.01\n",
        "device/native": "_target_: d.Native\n",
        "transform/none": "_target_: t.Unchanged\n",
    }.items():
        path = tmp_path / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def faults(conf: Path, *overrides: str) -> tuple[str, ...]:
    with pytest.raises(InputError) as caught:
        compose(overrides, conf)
    assert all("\n" not in fault for fault in caught.value.faults)
    return caught.value.faults


@pytest.mark.parametrize(
    ("strategy", "key", "old", "new"),
    [
        (
            *("federated", "strategy.secure"),
            "{_target_: testbed.worker.federated.secure.Secure, privacy: 1, dropouts: 1}",
            "{_target_: testbed.worker.methods.federated.secure_aggregation.secure.Secure, privacy: 1, dropouts: 1}",
        ),
        (
            *("parameter_server", "strategy.bound._target_"),
            "testbed.core.bound_baselines.Fixed",
            "testbed.worker.methods.parameter_server.bounds.baselines.Fixed",
        ),
        (
            *("ddp", "workload.partition"),
            "{_target_: testbed.core.federated.partitions.Iid}",
            "{_target_: testbed.worker.data.partitions.Iid}",
        ),
    ],
)
def test_a_class_that_moved_may_be_given_by_the_name_it_had(strategy: str, key: str, old: str, new: str) -> None:
    by_old, by_new = (compose([f"strategy={strategy}", f"{key}={value}"]) for value in (old, new))
    assert by_old == by_new and by_old.hash == by_new.hash


def test_defaults_of_the_clone_compose() -> None:
    spec = compose([])
    parts = (spec.workload.name, spec.strategy.name, spec.compressor.name, spec.device.name)
    assert (spec.topo, *parts) == ("wan1g", "digits", "ddp", "none", "native")
    assert (spec.workers, spec.seed, spec.dilation, spec.runtime, spec.shaper, spec.tcp) == (
        (4, 0, 1, "runc", "auto", "tuned")
    )


NATURAL = {"_target_": "testbed.worker.data.partitions.Natural"}


@pytest.mark.parametrize("strategy", ["federated", "fedbuff"])
def test_a_workload_recommends_parameters_of_strategies_but_for_those_given(strategy: str) -> None:
    asked = ["workload=speakers", f"strategy={strategy}", "workers=5"]
    params = compose(asked).strategy.params
    assert (params["clients"], params["partition"]) == (444, NATURAL)
    params = compose([*asked, "strategy.clients=50"]).strategy.params
    assert (params["clients"], params["partition"]) == (50, NATURAL)
    params = compose([*asked, "strategy.partition.alpha=0.1"]).strategy.params
    assert params["partition"]["alpha"] == 0.1 and params["clients"] == 444
    others = (compose(["workload=speakers"]), compose([f"strategy={strategy}", "workers=5"]))
    assert [spec.strategy.params.get("clients") for spec in others] == [None, 100]
    assert others[0].workload.params.keys() >= {"schedule", "width"} and "run" not in others[0].workload.params


@pytest.mark.parametrize("wrong", ["5", "[federated]", "{federated: 444}"])
def test_what_a_workload_recommends_has_a_form(wrong: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"_target_: mine.Mine\nrun: {{steps: 3, strategy: {wrong}}}\n")
    (fault,) = [line for line in resolve([f"workload={file}"]).faults if "run.strategy" in line]
    assert fault.startswith("workload: run.strategy=") and "must be {NAME: {KEY: VALUE}}" in fault


def test_a_licence_is_recorded_and_changes_no_hash() -> None:
    spec = compose(["workload=fashion"])
    told = dataclasses.replace(spec, data_licence="MIT, somebody")
    assert told.hash == spec.hash and "data_licence" not in spec.to_json()
    assert told.to_json()["data_licence"] == "MIT, somebody" and RunSpec.from_json(told.to_json()) == told


@pytest.mark.parametrize(("name", "rate_bit_s"), [("wan1g", 1e9), ("wan100m", 1e8), ("wan10m", 1e7)])
def test_wan_topologies_have_their_rate_and_67_ms(conf: Path, name: str, rate_bit_s: float) -> None:
    (link,) = compose([f"topo={name}"], conf).topology.wan_links
    assert link.forward.rate_bit_s == link.backward.rate_bit_s == rate_bit_s
    assert link.rtt_s == pytest.approx(0.067)
    assert "Rate: assumed" in link.forward.source


def test_lan_has_no_wan_link(conf: Path) -> None:
    assert compose(["topo=lan"], conf).topology.wan_links == ()


@pytest.mark.parametrize("quote", ["", "'"])
def test_topology_parameters_reach_build_with_their_units(conf: Path, quote: str) -> None:
    spec = compose([f"topo.rate={quote}50 Mbit/s{quote}", f"topo.rtt={quote}120 ms{quote}"], conf)
    (link,) = spec.topology.wan_links
    assert link.forward.rate_bit_s == 50e6
    assert link.rtt_s == pytest.approx(0.12)


def test_a_changed_number_no_longer_bears_the_files_source(conf: Path) -> None:
    (link,) = compose(["topo.rtt=120 ms"], conf).topology.wan_links
    assert link.forward.source.startswith("assumed: given by the user: rtt=120 ms")
    (link,) = compose(["topo.rtt=120 ms", "topo.source=my ping of today"], conf).topology.wan_links
    assert link.forward.source == "my ping of today"


def test_parameters_of_plugins_stay_data(conf: Path) -> None:
    part = compose(["compressor=topk", "compressor.density=2", "compressor.new=[1,2]"], conf).compressor
    assert (part.name, part.target) == ("topk", "c.TopK")
    assert part.params == {"density": 2, "new": [1, 2]}


def test_a_class_from_outside_the_tree_starts_from_no_parameters(conf: Path) -> None:
    part = compose(["strategy._target_=pkg.module.Mine", "strategy.k=3"], conf).strategy
    assert (part.name, part.target, part.params) == ("Mine", "pkg.module.Mine", {"k": 3})


def test_workload_recommends_what_the_user_leaves_open(conf: Path) -> None:
    spec = compose([], conf)
    assert (spec.steps, spec.epochs, spec.batch_size, spec.evaluate_every) == (300, None, 64, 20)
    spec = compose(["epochs=2", "batch_size=8"], conf)
    assert (spec.steps, spec.epochs, spec.batch_size) == (None, 2.0, 8)
    assert "run" not in spec.workload.params


def test_several_faults_come_in_one_go(conf: Path) -> None:
    lines = faults(conf, "topo=wan1gg", "compressor=topkk", "workers=0")
    assert lines == (
        f"topo=wan1gg: unknown topology; did you mean wan1g? known: {TOPOLOGIES}",
        "compressor=topkk: unknown compressor; did you mean topk? known: none, topk",
        "workers=0: must be from 1 to 4096",
    )


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("topo=mars", f"topo=mars: unknown topology; known: {TOPOLOGIES}"),
        ("topo=nowhere.yaml", "topo=nowhere.yaml: cannot be read: No such file or directory"),
        ("topo.run.workers=3", "topo.run.workers=3: what a topology recommends; give workers=… itself"),
        ("topo.queue=3 apples", "topo.queue: queue '3 apples': not such as '1 BDP'"),
        ("topo.jitter_distribution=[]", "topo.jitter_distribution=[]: must be text"),
        ("workload=digit", "workload=digit: unknown workload; did you mean digits? known: digits"),
        ("strategy=", "strategy=: unknown strategy; known: ddp"),
        ("device=null", "device=null: unknown device; known: native"),
        ("workers=abc", "workers=abc: must be a whole number"),
        ("workers=2.5", "workers=2.5: must be a whole number"),
        ("workers=true", "workers=True: must be a whole number"),
        ("workers=null", "workers=null: must be a whole number"),
        ("workers=[4]", "workers=[4]: must be a whole number"),
        ("workers=1", "workers=1: 2 regions need at least one worker each; ask for 2 or more"),
        ("seed=-1", "seed=-1: must be from 0 to below 2**31"),
        ("seed=3000000000", "seed=3000000000: must be from 0 to below 2**31"),
        ("timeout_s=1e300", "timeout_s=1e+300: must be at most 1 000 000"),
        ("max_wall_s=1e8", "max_wall_s=100000000.0: must be at most 10 000 000"),
        ("topo=./net.YAML", "topo=./net.YAML: a path of a YAML file ends in .yaml or .yml; correct it"),
        ("topo=/dev/zero", "topo=/dev/zero: a path of a YAML file ends in .yaml or .yml; correct it"),
        ("compressor=mine.Yml", "compressor=mine.Yml: a path of a YAML file ends"),
        ("steps=0", "steps=0: must be at least 1"),
        ("dilation=inf", "dilation=inf: must be a finite number"),
        ("dilation=nan", "dilation=nan: must be a finite number"),
        ("target=1e-400", "target=1e-400: is too small; give a number that a computer can hold"),
        ("compressor.density=0.5e-330", "compressor.density=0.5e-330: is too small"),
        ("compressor.x=[1,nan]", "compressor.x=[1,nan]: must be a finite number"),
        ("runtime=podman", "runtime=podman: unknown; known: runc, docker"),
        ("metrics_port=70000", "metrics_port=70000: must be from 0 (any free one) to 65535"),
        ("topo.workers=3", "topo.workers=3: give workers=3 instead"),
        ("topo.rate=true", "topo.rate=True: must be text"),
        ("topo.regions=paris", "topo.regions=paris: must be a list, as in [a,b]"),
        ("topo._target_=no.such", "topo._target_=no.such: is neither topologies.FAMILY.build of a family"),
        ("topo._target_=nodots", "topo._target_='nodots': not of the form module.function"),
        ("topo._target_=os.getcwd", "topo._target_=os.getcwd: is neither"),
        (
            "topo._target_=topologies.rnig.build",
            "topo._target_=topologies.rnig.build: unknown family; did you mean ring?",
        ),
        ("workers=300000", "workers=300000: must be from 1 to 4096"),
        ("topo.loss=0.5", "topo.loss: ratio 0.5: has no %, and may mean 0.5% or 50%"),
        ("compressor._target_=Mine", "compressor._target_=Mine: 'Mine' is not of the form package.module.Class"),
        ("workload.run.steps=3", "workload.run.steps=3: what a workload recommends; give steps=… itself"),
        ("compressor.x=${nope}", "configuration in"),
        ("workers", "workers: not of the form key=value"),
        ("=3", "=3: no key before '='; give key=value"),
        ("workers=4=5", "workers=4=5: cannot be read"),
        ("~compressor", "~compressor: nothing can be removed; give key=value"),
        ("compressor=none,topk", "compressor=none,topk: several values are a sweep; a run takes one"),
        ("hydra.verbose=true", "hydra.verbose=true: unknown key; known: accelerator, background, batch_size"),
    ],
)
def test_each_fault_is_one_line(conf: Path, override: str, line: str) -> None:
    found = faults(conf, override)
    assert len(found) == 1
    assert found[0].startswith(line)


@pytest.mark.parametrize(
    "value", ["[" * 5_000, "{a:" * 3_000, "f(" * 9_000, "${oc.env:" * 2_000, "a," * 60_000, "9" * 100_000]
)
def test_an_argument_without_measure_is_refused_soon(conf: Path, value: str) -> None:
    begun_s = time.process_time()
    (line,) = faults(conf, f"events={value}")
    assert time.process_time() - begun_s < 10 and len(line) < 400, "Hydra's grammar alone takes minutes for brackets"
    assert "nested more than 50 deep" in line or "use a file" in line


def test_a_rate_in_furlongs_names_the_units(conf: Path) -> None:
    (line,) = faults(conf, "topo.rate=10 furlongs")
    assert "unknown unit 'furlongs'" in line and "Mbit/s" in line


def test_a_mistyped_key_suggests_the_right_one(conf: Path) -> None:
    (line,) = faults(conf, "worker=3")
    assert "did you mean workers?" in line
    (line,) = faults(conf, "topo.ratee=3")
    assert (
        "did you mean rate?" in line and "known: bad_loss, " in line and "rate, regions, reorder, rtt, source" in line
    )


def test_the_same_key_twice_is_a_fault(conf: Path) -> None:
    assert faults(conf, "topo=lan", "topo=wan1g") == ("topo: given 2 times (lan, wan1g); give it once",)


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("events=[{at: 0 s, at: 1 s, set: all, rate: 5 Mbit/s}]", "at"),
        ("events=[{at: 0 s, set: all, rate: 5 Mbit/s},{at: 1 s, rate: 1 Mbit/s, rate: 2 Mbit/s}]", "rate"),
        ("strategy={a: 1, a: 2}", "a"),
        ("compressor.inner={_target_: x.Y, deep: {density: 0.1, density: 0.1}}", "density"),
        ("memory_limit={oregon: 1 GB, oregon: 2 GB}", "oregon"),
        ("workload.x={1: a, 1: b}", "1"),
        ("topo.rate={a: {b: [1,{null: 2, null: 3}]}}", "null"),
    ],
)
def test_a_key_twice_within_a_value_is_a_fault(conf: Path, override: str, key: str) -> None:
    assert faults(conf, override) == (f"{override}: {key} is given twice in {{...}}; give it once",)


def test_a_key_alone_and_within_a_value_is_a_fault(conf: Path) -> None:
    line = "compressor.inner.a.b: given twice, alone and in compressor.inner={a: {b: 1}}; give it once"
    assert line in faults(conf, "compressor.inner={a: {b: 1}}", "compressor.inner.a.b=2")


def test_steps_and_epochs_exclude_each_other(conf: Path) -> None:
    (line,) = faults(conf, "steps=3", "epochs=1")
    assert "give exactly one of the two" in line


def test_a_region_name_that_cannot_name_a_host_is_refused(conf: Path) -> None:
    (line,) = faults(conf, "topo.regions=[a/b,c]")
    assert "'a/b' must be letters, digits and inner hyphens" in line


def test_a_missing_default_is_named_as_such(conf: Path) -> None:
    (conf / "workload" / "digits.yaml").unlink()
    assert faults(conf) == ("workload=digits (the default): unknown workload; known: none",)


def test_a_damaged_file_is_a_line(conf: Path) -> None:
    (conf / "compressor" / "topk.yaml").write_text("_target_: [\n")
    (line,) = faults(conf, "compressor=topk")
    assert line.startswith("configuration in")


def test_a_spec_stands_in_for_what_is_at_fault(conf: Path) -> None:
    resolved = resolve(["topo=mars", "compressor=topk", "steps=0"], conf)
    assert len(resolved.faults) == 2
    assert resolved.stand_in is not None
    assert (resolved.stand_in.topo, resolved.stand_in.compressor.name) == ("wan1g", "topk")


def test_names_are_the_files_of_a_group(conf: Path) -> None:
    assert names("compressor", conf) == ["none", "topk"]
    assert names("nothing", conf) == []


def test_a_topology_recommends_how_many_workers_it_needs(conf: Path) -> None:
    assert compose(["topo=ibm10"], conf).workers == 10
    assert compose(["topo=ibm10", "workers=12"], conf).workers == 12
    (line,) = faults(conf, "topo=ibm10", "workers=4")
    assert "10 regions need at least one worker each" in line
    (conf / "topo" / "ring.yaml").write_text("_target_: topologies.ring.build\nrun: {workers: many}\n")
    assert faults(conf, "topo=ring") == ("topo: run.workers=many in its file: must be a whole number from 1",)


def test_faults_of_a_topology_come_with_those_of_its_unknown_keys(conf: Path) -> None:
    lines = faults(conf, "topo=ring", "topo.rate=3", "topo.rtt=fast", "topo.hops=3", "topo.regions=[a,a]")
    assert [line.split("=")[0].split(":")[0] for line in lines] == [
        "topo.hops",
        "topo.rate",
        "topo.rtt",
        "topo.regions",
    ]


def test_links_of_one_name_are_refused(conf: Path) -> None:
    (line,) = faults(conf, "topo=ring", "topo.regions=[a,b-c,a-b,c]")
    assert "2 links are called 'a-b-c'" in line


def test_more_links_than_addresses_are_refused(conf: Path) -> None:
    regions = ",".join(f"r{index}" for index in range(24))
    (line,) = faults(conf, "topo=full_mesh", f"topo.regions=[{regions}]", "workers=24")
    assert "276 WAN links; the address plan holds" in line


def test_a_parameter_that_must_be_given_may_be_an_absolute_path(conf: Path) -> None:
    (conf / "device" / "profile.yaml").write_text("_target_: d.Profiled\nfile: ???\ncodec_speedup: null\n")
    asked = ["topo=lan", "workload=digits", "device=profile"]
    found = resolve([*asked, "device.file=/data/mine.json"], conf)
    assert found.faults == () and found.spec.device.params["file"] == "/data/mine.json"
    assert any("Missing mandatory value: file" in fault for fault in resolve(asked, conf).faults)
