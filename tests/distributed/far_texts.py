"""Texts of the standard library for a small model that has learnt nothing: what travels is what is tested."""

from __future__ import annotations

from testbed.worker.methods.kv_transfer.model.transformer import KVTransformer, Shape
from testbed.worker.workloads.recall import Recall

SHAPE = Shape(layers=2, heads=2, head_width=8)


class FarTexts(Recall):
    def model(self, seed: int) -> KVTransformer:
        return KVTransformer(SHAPE, seed=self.model_seed)

    def data_hash(self) -> str:
        return ""
