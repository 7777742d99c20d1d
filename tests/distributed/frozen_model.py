"""The byte-level transformer with a prefix that is not trained."""

from __future__ import annotations

from torch import nn

from testbed.worker.workloads.bytelm import Bytelm, ByteTransformer


class FrozenBytelm(Bytelm):
    """Its embeddings and its first block stay as they are."""

    def model(self, seed: int) -> nn.Module:
        model = super().model(seed)
        assert isinstance(model, ByteTransformer)
        for frozen in (model.bytes, model.positions, model.blocks[0]):
            frozen.requires_grad_(False)
        return model
