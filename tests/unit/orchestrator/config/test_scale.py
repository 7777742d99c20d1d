from __future__ import annotations

import pytest

from testbed.core.errors import InputError
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.config.config import compose, resolve

CPU_TIMED = ("parameter_server", "federated", "fedbuff", "gossip")
REPLAY = ("topo=wan1g", "workload=replay", "workload.model=resnet50", "device=paced")


def test_bytes_buckets_and_rates_shrink_together() -> None:
    whole, scaled = compose([*REPLAY]), compose([*REPLAY, "workload.scale=10"])
    assert (whole.scale, scaled.scale) == (1.0, 10.0)
    for before, after in zip(whole.topology.links, scaled.topology.links, strict=True):
        assert after.forward.rate_bit_s == before.forward.rate_bit_s / 10
        assert after.forward.delay_s == before.forward.delay_s
    assert whole.strategy.params["bucket_size"] == "4 MiB"
    assert scaled.strategy.params["bucket_size"] == "419431 B"
    assert RunSpec.from_json(scaled.to_json()) == scaled


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("workload.scale=10000",), "one packet would take"),
        (("workload.scale=10", "compressor=powersgd"), "do not shrink"),
        *(
            (("workload.scale=10", f"strategy={name}"), f"strategy={name}: its codecs and updates take CPU")
            for name in CPU_TIMED
        ),
        (("workload.scale=10", "background=oregon-virginia:30%"), "not scaled"),
        (("workload.scale=10", "topo.loss=1%"), "by chance"),
    ],
)
def test_what_does_not_scale_is_refused(asked: tuple[str, ...], said: str) -> None:
    with pytest.raises(InputError, match=said):
        compose([*REPLAY, *asked])


def test_a_workload_without_scale_is_as_it_is() -> None:
    assert resolve(["topo=wan1g"]).spec.scale == 1.0
