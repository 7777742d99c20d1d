"""Decoding far from the keys and values: one rank computes a text's beginning and keeps its cache, one decodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from compressors.base.compressor import Compressor
from compressors.base.payload import PayloadError
from testbed.core.kinds import Choice, Number
from testbed.core.parameters import Count, CountOrZero, Flag
from testbed.worker.interfaces.strategy import ExtraWork, StepStats, Strategy, WorkerContext
from testbed.worker.interfaces.workload import Batch, Workload, parameters_crc32
from testbed.worker.methods.kv_transfer.cache.store import LocalLink
from testbed.worker.methods.kv_transfer.connection import FAR, NEAR, CacheConnection, RequestKind, connect
from testbed.worker.methods.kv_transfer.model.texts import Sample, Texts, TextWorkload
from testbed.worker.methods.kv_transfer.model.transformer import KVTransformer
from testbed.worker.methods.kv_transfer.record import dense_bytes, quality_event, text_event, work_of
from testbed.worker.methods.kv_transfer.roles import Keeper, LineLink, decode_near, next_request
from testbed.worker.methods.kv_transfer.selection.low_dimension import REACHES
from testbed.worker.methods.kv_transfer.selection.methods import CODECS, SELECTORS, Method
from testbed.worker.methods.kv_transfer.selection.selector import Block


class KVTransfer(Strategy):
    """Rank 0 decodes texts whose keys and values lie with rank 1, over the link between them. Nothing is trained.

    Prefill and decoding apart, as between two data centres, or between an accelerator and its host: rank 1, the far
    side, computes the beginning of each text and keeps what its layers make of it; rank 0, the near side, computes
    every byte from there on, and asks in each layer for what its selector wants. A step is a batch of texts, decoded
    one after another; its loss is the mean of what the bytes cost that can be foretold, in nats. Selectors and codecs
    are those of `testbed.worker.methods.kv_transfer`, each after the paper it names; docs/kv-transfer.md has a table of
    them. With
    selector=dense and codec=fp32 what is found is what one process would find.

    Both sides know the text's beginning, which is not sent. After the last step the near side decodes the first texts
    again, and further ones if more are to be compared, beside exact attention over a cache of its own, and tells how
    near its selector came to that (event `kv_quality`); that is in no step's time. Event `kv_text` has each text's
    bytes, round trips and times.

    Cost: of each byte decoded what the selector asks for; before the first one what it sets up. Messages are frames on
    a connection of their own (`testbed.worker.methods.kv_transfer.connection`). Computing is work of the kinds
    "prefill" and "decode"; what
    the far side takes to answer, this processor takes. Neither rank goes on without the other. The run's
    compressor is for gradients, of which there are none, so that it carries none: keys and values have `codec`.

    Args:
        selector: Method that chooses what is fetched.
        codec: Codec of what is fetched. kivi4, kivi2, cachegen: whole caches (dense, once).
        compared: Texts compared with exact attention at the end.
        recent: Last positions, kept near; null here and below: selector's.
        sinks: First positions, kept near.
        block: Positions that leave the window together.
        budget: Most positions fetched per head. Pages for quest, chunks for shadowkv.
        components: Key components fetched (sparq).
        compensate: Let the mean value replace unfetched ones (sparq).
        page: Positions of a page (quest).
        rank: Dimensions of near keys (loki, infinigen, shadowkv).
        alpha: Score distance from the highest, for fetching (infinigen).
        reach: Layers requested at once (infinigen).
        chunk: Positions of a chunk (shadowkv).
        outliers: Chunks kept near as a whole (shadowkv).

    Raises:
        ValueError: a parameter is not one of these, or not the selector's; all of them.
    """

    has_optimizer = False
    trains = False
    uses_collectives = False
    takes_connections = True

    def __init__(
        self,
        *,
        selector: Annotated[str, Choice(SELECTORS)] = "dense",
        codec: Annotated[str, Choice(CODECS)] = "fp16",
        compared: CountOrZero = 4,
        recent: Count | None = None,
        sinks: CountOrZero | None = None,
        block: Block | None = None,
        budget: Count | None = None,
        components: Count | None = None,
        compensate: Flag | None = None,
        page: Block | None = None,
        rank: Count | None = None,
        alpha: Annotated[float, Number(above=0, most=1e6, unit="nats")] | None = None,
        reach: Annotated[str, Choice(REACHES)] | None = None,
        chunk: Block | None = None,
        outliers: CountOrZero | None = None,
    ) -> None:
        given: dict[str, Any] = {
            "recent": recent,
            "sinks": sinks,
            "block": block,
            "budget": budget,
            "components": components,
        }
        given |= {"compensate": compensate, "page": page, "rank": rank, "alpha": alpha, "reach": reach}
        given |= {"chunk": chunk, "outliers": outliers}
        self.method = Method(selector, codec, given)
        self.compared = compared
        self._texts = 0

    def part(self, rank: int, world_size: int) -> tuple[int, int] | None:
        return (0, 1) if rank == NEAR else None

    def validate(self, compressor: Compressor, workload: Workload, world_size: int) -> Iterator[str]:
        if world_size != 2:
            yield (
                f"strategy=kv_transfer: is between two ranks, one that decodes and one that keeps keys and values, and"
                f" there are {world_size}; use workers=2"
            )
        if not isinstance(workload, TextWorkload):
            yield (f"strategy=kv_transfer: {type(workload).__name__} has no texts to decode; use workload=recall")

    def bind(self, context: WorkerContext) -> None:
        self._context, comm, spec = context, context.comm, context.spec
        assert isinstance(context.model, KVTransformer), "another workload is refused"
        self._model = context.model
        comm.require_equal(parameters_crc32(self._model), "the checksum of the parameters")
        example = self._drawn(0)
        self._work = work_of(self._model.shape, example)
        self._dense_bytes = dense_bytes(self._model.shape, example)
        self._share = 1 / spec.batch_size
        self._line: CacheConnection | None = connect(comm) if comm.networked else None

    def step(self, batch: Batch, step: int) -> StepStats:
        texts: Texts = self._drawn(step) if batch is None else batch
        nats = []
        for index in range(len(texts.text)):
            sample = texts.sample(index)
            if self._context.rank == FAR:
                self._keep(sample)
            else:
                nats += self._decode(sample)
        return StepStats(sum(nats) / len(nats) if nats else None)

    def dense_bytes_step(self) -> float:
        return self._dense_bytes

    def extra_work(self) -> ExtraWork:
        return ExtraWork(work=self._work)

    def finish(self) -> None:
        if self._line is not None:
            self._line.close()
        for text in range(self.compared if self._context.rank == NEAR else 0):
            step, index = divmod(text, self._context.spec.batch_size)
            sample = self._drawn(step).sample(index)
            self._context.record(quality_event(text, self._model, self.method, sample))

    def _keep(self, sample: Sample) -> None:
        context = self._context
        assert self._line is not None, "a rehearsal is of rank 0"
        if next_request(self._line, context.clock).kind is not RequestKind.BEGIN:
            raise PayloadError("KV request: asks for what is no text's")
        Keeper(self._model, self.method, sample, context.clock, self._share).serve(self._line)

    def _decode(self, sample: Sample) -> list[float]:
        """The nats of what counts."""
        model, clock = self._model, self._context.clock
        selector = self.method.new(model)
        if self._line is None:  # a rehearsal
            keeper = Keeper(model, self.method, sample, clock, self._share)
            near = LocalLink(keeper.store)
            return decode_near(model, sample, selector, near, lambda: keeper.set_up, clock, self._share).decoded.nats
        up_bytes, down_bytes = self._line.sent_bytes, self._line.received_bytes
        link = LineLink(self._line, clock, self._context.comm.stopwatch)
        found = decode_near(model, sample, selector, link, link.begin, clock, self._share)
        link.end()
        moved = self._line.sent_bytes - up_bytes, self._line.received_bytes - down_bytes
        about = sample, found, selector.near_bytes(), link.traffic, self._context.spec.dilation
        self._context.record(text_event(self._texts, *about, *moved))
        self._texts += 1
        return found.decoded.nats

    def _drawn(self, step: int) -> Texts:
        workload, spec = self._context.workload, self._context.spec
        assert isinstance(workload, TextWorkload), "another one is refused"
        return workload.batch(step, rank=0, world_size=1, batch_size=spec.batch_size, seed=spec.seed)
