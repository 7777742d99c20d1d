"""Every kind of compressor can be timed, in its heaviest step, within bounds. Times are only held to be there: the
machine is shared."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch import Tensor

from compressors.base.compressor import Context, Exchange, Layout, Rounds, Traits
from compressors.base.payload import PayloadError
from compressors.none import Uncompressed
from compressors.parts import codec_process
from testbed.core.device.codecs.work import CodecTimes
from testbed.core.device.profile import Collective
from testbed.core.errors import InputError
from testbed.core.spec.run_spec import Part, RunSpec
from testbed.worker.plugins import compressor_catalogue
from testbed.worker.profile import codec_rounds
from testbed.worker.profile import codec_times as codec_times_module
from testbed.worker.profile.codec_rounds import Alone, AmongAll
from testbed.worker.profile.codec_times import codec_times
from topologies import lan, two_regions

LAYOUT = Layout(((64, 100), (64,)), names=("matrix", "bias"))
NUMEL = 6464


@pytest.fixture(autouse=True)
def _all_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which steps are tried is not to depend on how fast the machine is."""
    for name, seconds in (("_TRY_S", 100.0), ("_PLAN_S", 100.0)):
        monkeypatch.setattr(codec_times_module, name, seconds)


def spec(compressor: str | type, workers: int = 4, **given: Any) -> RunSpec:
    part = (
        compressor_catalogue.part(compressor)
        if isinstance(compressor, str)
        else Part(compressor.__name__, f"{__name__}.{compressor.__name__}")
    )
    fields: dict[str, Any] = {"topology": lan.build(workers=workers), "steps": 200} | given
    return RunSpec(
        workload=Part("digits", "testbed.worker.workloads.digits.Digits"),
        strategy=Part("ddp", "testbed.worker.strategies.ddp.DDP"),
        compressor=part,
        device=Part("native", "testbed.core.device.Native"),
        **fields,
    )


def timed(compressor: str | type, **given: Any) -> tuple[CodecTimes, list[Collective]]:
    (found,), collectives = codec_times(spec(compressor, **given), [LAYOUT])
    return found, collectives


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("none", ["all_reduce"]),
        ("dgc", ["all_gather"] * 2),  # asks for sizes
        ("policy", ["all_reduce", "all_gather"]),
        ("sz3", ["all_gather"] * 2),
        ("adaptive", ["all_gather"]),
        ("powersgd", ["all_reduce"] * 2),
        ("signum", ["all_to_all", "all_gather"]),
        ("gtopk", ["all_to_all"] * 4),  # two levels up the tree, two down
        ("deepreduce_bloom", ["all_gather"] * 2),
        ("oktopk", ["all_to_all", "all_to_all", "all_gather", "all_gather"]),  # and one before where it estimates anew
    ],
)
def test_every_kind_is_timed(name: str, kinds: list[str]) -> None:
    found, collectives = timed(name, topology=two_regions.build(workers=4))
    assert [one.kind for one in collectives] in (kinds, ["all_reduce", *kinds] if name == "oktopk" else kinds)
    assert len(found.rounds) == len(collectives) + 1, "each collective ends one round and begins another"
    assert found.elements == NUMEL
    assert all(seconds > 0 for _, seconds in found.rounds)
    assert found.rounds[0][0] == "compress" and found.rounds[-1][0] == "decompress"


@pytest.mark.parametrize("name", ["onebit_adam", "zeroone_adam"])
@pytest.mark.parametrize("length", [{"steps": 200}, {"steps": None, "epochs": 30.0}, {"steps": 1}])
def test_steps_that_warm_up_or_send_nothing_are_not_taken_for_all(name: str, length: dict[str, Any]) -> None:
    found, collectives = timed(name, **length)
    assert collectives
    is_warming_up = length == {"steps": 1}
    assert ({one.kind for one in collectives} == {"all_reduce"}) == is_warming_up
    assert len(found.rounds) == len(collectives) + 1


class Rare(Uncompressed):
    """Sends something every 50 steps."""

    traits = Traits(own_rounds=True, max_rounds=1)

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        return 4 * layout.numel if context.step % 50 == 7 else 0

    def rounds(self, tensor: Tensor, context: Context, *, out: Tensor, error: Tensor | None = None) -> Rounds:
        if context.step % 50 == 7:
            (total,) = yield Exchange(kind="all_reduce", data=[tensor.clone()])
            out.copy_(total)


def _work(seconds: float) -> None:
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        pass


class Late(Uncompressed):
    """Works hard in the last steps only, and for its result in the first ones."""

    traits = Traits(chunkable=False)

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        _work(0.004 if context.step > 190 else 0.001)
        return super().encode(tensor, context)

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        _work(0.0006 if context.step < 10 else 0.0)
        super().decode(payload, out, context, add=add, scale=scale)


class Addressed(Uncompressed):
    """Its payloads say whose they are; own ones are not taken for another's. Counts what is done, by rank."""

    traits = Traits(chunkable=False)
    decoded: dict[int, int] = {}  # noqa: RUF012

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        payload = super().encode(tensor, context)
        payload[-1] = context.rank
        return payload

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        if payload[-1] != context.rank:
            raise PayloadError(f"of rank {int(payload[-1])}, not {context.rank}")
        super().decode(payload, out, context, add=add, scale=scale)


def test_a_step_that_sends_is_found_among_those_that_do_not() -> None:
    _, collectives = timed(Rare)
    assert collectives == [Collective(kind="all_reduce", size_bytes=4 * NUMEL)]


def test_each_round_takes_as_long_as_in_the_step_where_it_takes_longest() -> None:
    found, _ = timed(Late)
    assert found.rounds[0][1] >= 0.004
    assert found.rounds[1][1] >= 4 * 0.0006


def test_seconds_of_the_process_that_runs_c_codecs_count() -> None:
    values = torch.randn(200_000, generator=torch.Generator().manual_seed(0))
    codec_process.encode("sz3", values[:100], 8192, algorithm=3, bound=0.01)
    noted: list[tuple[str, float]] = []
    before_s, own_s = codec_process.cpu_s(), time.thread_time()
    with codec_rounds._Noted(noted, "compress"):
        codec_process.encode("sz3", values, 1 << 20, algorithm=3, bound=0.01)
    own_s = time.thread_time() - own_s
    helper_s = codec_process.cpu_s() - before_s
    assert helper_s > own_s
    assert helper_s < noted[0][1] <= helper_s + own_s


def test_payloads_for_one_rank_alone_are_timed_among_all() -> None:
    with pytest.raises(PayloadError):
        Alone(spec(Addressed), LAYOUT).once(0)
    found, collectives = timed(Addressed)
    assert [phase for phase, _ in found.rounds] == ["compress", "decompress"]
    assert collectives == [Collective(kind="all_gather", size_bytes=4 * NUMEL)]


def test_steps_of_two_routes_share_what_is_kept() -> None:
    """DGC sends parts while it warms up and is dense, and whole payloads later; its bucket has no four equal parts."""
    asked = spec("dgc", topology=two_regions.build(workers=4, rate="100 Mbit/s"))
    alone = Alone(asked, Layout(((417_290,),)))
    kinds = [[one.kind for one in alone.once(step).collectives] for step in (0, 100, 0)]
    assert kinds == [["all_to_all"] * 2 + ["all_gather"] * 2, ["all_gather"] * 2, kinds[0]]


def test_a_step_taken_again_is_the_same_step() -> None:
    """Also of those that have changed since: what is kept does not go on from one repetition to the next."""
    among = AmongAll(spec("oktopk"), LAYOUT, ValueError("why"), time.monotonic() + 60)
    found = [among.once(step).collectives for step in (5, 32, 5, 100, 32, 5)]
    assert found[0] == found[2] == found[5]
    assert found[1] == found[4]
    assert found[1][0].kind == "all_reduce"  # estimates anew


def test_so_many_ranks_that_they_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec_rounds, "_MAX_TOTAL_NUMEL", 4 * NUMEL - 1)
    with pytest.raises(InputError, match=r"of rank 0, not 1; .* among 4 ranks only, whose buckets of 6464 elements do"):
        timed(Addressed)


def test_what_takes_too_long_among_all_ranks_is_refused() -> None:
    among = AmongAll(spec(Addressed), LAYOUT, ValueError("why"), time.monotonic() - 1)
    with pytest.raises(InputError, match=r"why; .* among 4 ranks only, which takes too long .* fewer workers"):
        among.once(0)


def test_what_is_for_the_others_alone_is_left_out_where_it_would_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else n ranks that decode what n ranks sent cost n * n."""
    ranks: list[int] = []
    decode = Addressed.decode

    def counted(self: Addressed, payload: Tensor, *args: Any, **kwargs: Any) -> None:
        ranks.append(id(self))
        decode(self, payload, *args, **kwargs)

    monkeypatch.setattr(Addressed, "decode", counted)
    for quick_s, deciding in ((1e9, 4), (0.0, 1)):
        monkeypatch.setattr(codec_rounds, "_QUICK_S", quick_s)
        ranks.clear()
        AmongAll(spec(Addressed), LAYOUT, ValueError("why"), time.monotonic() + 60)._together(0)
        assert len(set(ranks)) == deciding
