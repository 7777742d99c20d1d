"""What a federated run refuses before anything is built, and what its methods know."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from compressors.none import Uncompressed
from compressors.topk import TopK
from testbed.core.errors import InputError
from testbed.worker.methods.federated.aggregation.attacks import LittleIsEnough, SignFlip
from testbed.worker.methods.federated.aggregation.methods import Method
from testbed.worker.methods.federated.aggregation.robust import Krum, Median
from testbed.worker.methods.federated.aggregation.rules import FedDyn, Scaffold
from testbed.worker.methods.federated.clients.availability import Alternating
from testbed.worker.methods.federated.clients.oort import Oort
from testbed.worker.methods.federated.secure_aggregation.secure import Secure
from testbed.worker.strategies.federated import Federated
from testbed.worker.training.parts import build_parts
from testbed.worker.workloads.digits import Digits
from tests.distributed.harness import make_spec


def _faults(workers: int = 5, **given: Any) -> list[str]:
    return list(Federated(**given).validate(Uncompressed(), Digits(), workers))


def test_all_faults_of_its_parameters_are_told_at_once() -> None:
    with pytest.raises(ValueError, match="clients=0") as caught:
        Federated(
            method="scaffolding", clients=0, participants=0, placement="anywhere", speeds=[1, 2], round_timeout_s=0
        )
    assert [line.partition("=")[0] for line in str(caught.value).splitlines()] == [
        *("method", "clients", "participants", "placement", "speeds[1]", "round_timeout_s")
    ]
    with pytest.raises(ValueError, match=r"server\.momentum=1") as caught:
        Federated(
            method="scaffold",
            server={"momentum": 1, "learning_rate": 0},
            mu=0.1,
            learning_rate=None,
            overselect=2,
            participants=100,
            uplink={"payload": "params"},
            checkpoint=True,
            secure=Secure(),
        )
    told = str(caught.value)
    for fault in (
        "server.momentum=1: unknown; Scaffold knows: learning_rate",
        "server.learning_rate=0",
        "mu=0.1: is of method=fedprox",
        "learning_rate=null: method=scaffold",
        "overselect=2: all clients take part as it is",
        "uplink.payload=params: must be delta",
        "secure, checkpoint: ",
    ):
        assert fault in told, fault


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"method": "fedsomething"}, "method=fedsomething"),
        ({"method": "feddyn", "momentum": 0.5}, "method=feddyn assumes steps without momentum"),
        ({"method": "fedavg", "alpha": 0.1}, "alpha=0.1: is of method=feddyn"),
        ({"momentum": 0.9, "learning_rate": None}, "is of clients' SGD"),
        ({"defence": "median"}, "defence=median: must be a Defence"),
        ({"attack": LittleIsEnough(clients=5, attackers=2), "attackers": 2}, "clients lie one by one"),
        ({"attack": SignFlip(), "attackers": 200}, "attackers=200"),
        ({"attackers": 3}, "attack, attackers: give both"),
        ({"speeds": "fast"}, "speeds=fast"),
        ({"straggler_sigma": -1}, "straggler_sigma=-1"),
        ({"selection": Oort(count=3)}, "selection.count=3"),
        ({"overselect": 2.0, "participants": 4, "defence": Median()}, "overselect=2: under a defence"),
        ({"secure": True}, "secure=True: must be a Secure"),
        ({"secure": Secure(), "defence": Median()}, "secure, defence: sees what each client sends"),
        ({"secure": Secure(), "attack": SignFlip(), "attackers": 1}, "secure, attack: is for defences"),
        ({"secure": Secure(), "gate": True}, "secure, gate: is of compression"),
        ({"secure": Secure(), "deadline_s": 3.0}, "secure, deadline_s: has clients' work thrown away"),
        ({"secure": Secure(), "selection": Oort()}, "secure, selection: goes by what single clients learn"),
        (
            {"secure": Secure(), "checkpoint": True},
            "secure, checkpoint: would have a server go on whose masks are gone",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_name(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        Federated(**given)


@pytest.mark.parametrize(
    ("workers", "given", "told"),
    [
        (1, {}, "use workers=2 or more"),
        (5, {"speeds": [1, 1]}, "strategy.speeds: 2 for 4 workers"),
        (5, {"defence": Median()}, "strategy.participants=4, or workers=21"),
        (4, {"defence": Krum(most_liars=1), "participants": 3}, "Krum needs 5 clients a round, and 3 take part"),
        (5, {"defence": Median(), "participants": 4, "method": "scaffold"}, "strategy.clients=4, or another method"),
        (5, {"clients": 5000}, "strategy.clients=5000: there are 1437 samples"),
        (5, {"secure": Secure(privacy=1, dropouts=2)}, "a server that deviates could have two sums of 4 clients"),
        (5, {"secure": Secure(privacy=2, dropouts=2, server="curious")}, "2 clients learn nothing by privacy=2"),
        (5, {"secure": Secure(dropouts=4)}, "strategy.secure.privacy=1 dropouts=4 of 4 workers: needed=0"),
        (2, {"secure": Secure()}, "strategy.secure.privacy=1 dropouts=0 of 1 workers: clients=1"),
        (5, {"secure": Secure(step=1e-9)}, "strategy.secure.step=1e-09: sums of 4 values"),
        (5, {"secure": Secure(drop=0.3)}, "drop=0.3: 1 of 4 workers in each round, and dropouts=0 may"),
        (5, {"secure": Secure(), "method": "scaffold"}, "strategy.secure, method=scaffold: clients keep something"),
        (5, {"secure": Secure(), "method": "feddyn"}, "strategy.secure, method=feddyn: clients keep something"),
        (5, {"secure": Secure(), "uplink": {"codec": "topk"}}, "strategy.uplink.codec: what is masked cannot be"),
        (5, {"secure": Secure(), "uplink": {"codec": "sz3"}}, "strategy.uplink.codec: what is masked cannot be"),
        (5, {"secure": Secure(), "downlink": {"codec": "sz3"}}, "strategy.downlink.codec: goes by bounds"),
    ],
)
def test_what_cannot_be_run_on_so_many_workers_is_refused(workers: int, given: dict[str, Any], told: str) -> None:
    assert any(told in fault for fault in _faults(workers, **given)), _faults(workers, **given)


def test_what_fits_has_no_faults() -> None:
    assert _faults() == []
    assert _faults(defence=Median(), participants=4, attack=SignFlip(scale=5), attackers=20) == []
    assert _faults(method="scaffold", speeds=[1, 1, 0.5, 0.25]) == []
    hidden = {"secure": Secure(dropouts=1, drop=0.3), "placement": "equal"}
    assert _faults(**hidden, uplink={"codec": "raw"}, downlink={"codec": "fp16"}) == []
    for given in ({"placement": "longest_first"}, {"participants": 3}):
        (fault,) = _faults(**{**hidden, **given})
        assert "use strategy.placement=equal and strategy.participants=4 or more" in fault
    (fault,) = Federated(secure=Secure(), placement="equal").validate(TopK(), Digits(), 5)
    assert "strategy.uplink.codec: what is masked cannot be compressed" in fault


def test_all_faults_of_what_is_asked_of_secure_sums_are_told_at_once() -> None:
    with pytest.raises(ValueError, match="privacy=0") as caught:
        Secure(privacy=0, dropouts=-1, step=0.0, largest=float("inf"), server="honest", drop=1.0)
    for fault in ("dropouts=-1", "step=0.0", "largest=inf", "server=honest: unknown", "drop=1.0"):
        assert fault in str(caught.value), fault


class Secretive(Digits):
    sample_losses = None  # type: ignore[assignment]


def test_oort_needs_the_losses_of_samples() -> None:
    given: dict[str, Any] = {"selection": Oort(), "availability": Alternating(present_s=1, absent_s=1)}
    assert _faults(**given, deadline_s=1.0) == []
    (fault,) = Federated(**given).validate(Uncompressed(), Secretive(), 5)
    assert "strategy.selection: goes by the losses of samples, and Secretive has none" in fault


def test_a_trace_is_read_before_anything_is_built(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("client,from_s,until_s\n0,3,2\n1,0,x\n")
    trace = {
        "_target_": "testbed.worker.methods.federated.clients.availability.Trace",
        "file": str(tmp_path / "trace.csv"),
    }
    with pytest.raises(InputError) as caught:
        build_parts(make_spec("federated", workers=3, strategy_params={"availability": trace, "mu": 1}))
    told = "\n".join(caught.value.faults)
    assert "strategy.availability.file=" in told and "line 2: from_s=3, until_s=2" in told and "line 3: '1,0,x'" in told
    (tmp_path / "good.csv").write_text("client,from_s,until_s\n100,3,20\n")
    trace["file"] = str(tmp_path / "good.csv")
    with pytest.raises(InputError, match=r"strategy\.availability\.file=.*names 1 clients that there are not \(100\)"):
        build_parts(make_spec("federated", workers=3, strategy_params={"availability": trace}))


def test_epochs_mean_nothing_where_clients_draw_their_own_samples() -> None:
    with pytest.raises(InputError, match="epochs=2: strategy=federated goes by rounds"):
        build_parts(make_spec("federated", workers=3, steps=None, epochs=2.0))


def test_a_rule_is_of_all_clients_whoever_takes_part() -> None:
    scaffold = Method(name="scaffold", server={"learning_rate": 0.5}, learning_rate=0.1).rule(7)
    assert isinstance(scaffold, Scaffold) and (scaffold.clients, scaffold.learning_rate) == (7, 0.5)
    feddyn = Method(name="feddyn", server={}, alpha=0.3, learning_rate=0.1).rule(7)
    assert isinstance(feddyn, FedDyn) and (feddyn.clients, feddyn.alpha) == (7, 0.3)
