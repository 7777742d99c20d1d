"""The model of workload `tiny_vit`, and how it is trained before: to tell every other character from the rest of them.

Its 32,000 images are those that the workload does not train on; 23 of the 45 characters are among them.
"""

from __future__ import annotations

import functools
from pathlib import Path

import torch
from torch import Tensor, nn

from testbed.worker.data.glyph_images import CHARACTERS, glyph_images
from testbed.worker.data.pretrained.weights import Recipe, State, pretrained
from testbed.worker.model.chain import Chain, Readout, drawn
from testbed.worker.model.transformer_block import Block

SET_APART = 8_000
"""First images, which what comes before fine-tuning does not see."""
_WIDTH, _HEADS, _LAYERS = 64, 2, 8
_TOKENS = 16
"""Of 8 x 8 pixels."""
_DEVIATION = 0.08
"""Of initial weights of linear maps."""
_MEAN, _SPREAD = 76.0, 58.8
"""Of training pixels, about."""


class Stem(nn.Module):
    """Tokens by three convolutions of stride 2 in place of one linear map of each patch: learnt with far fewer images
    (Xiao et al., "Early Convolutions Help Transformers See Better", NeurIPS 2021), here without normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, stride=2, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.conv3 = nn.Conv2d(32, _WIDTH, 3, stride=2, padding=1)
        self.positions = nn.Embedding(_TOKENS, _WIDTH)

    def forward(self, images: Tensor) -> Tensor:
        seen = nn.functional.gelu(self.conv1(images))
        seen = self.conv3(nn.functional.gelu(self.conv2(seen)))
        return seen.flatten(2).transpose(1, 2) + self.positions.weight


def untrained(random: torch.Generator) -> Chain:
    """Eight layers of width 64, and a mean of the tokens that is read."""
    blocks = [Block(_WIDTH, _HEADS, causal=False) for _ in range(_LAYERS)]
    model = Chain(Stem(), blocks, Readout(_WIDTH, len(CHARACTERS), at=None))
    drawn(model, random, _DEVIATION)
    return model


def scaled(pixels: Tensor) -> Tensor:
    """[samples, 1, 32, 32], from bytes."""
    return pixels.float().sub_(_MEAN).div_(_SPREAD).unsqueeze_(1)


@functools.cache
def weights() -> State:
    """
    Raises:
        InputError: fonts are missing or others than expected.
    """
    images = glyph_images()
    pixels, labels = (torch.from_numpy(part[SET_APART:]) for part in images.train)
    known = labels % 2 == 0
    pixels, labels = pixels[known], labels[known].long()
    recipe = Recipe(
        name="tiny_vit",
        steps=1_000,
        batch_size=32,
        learning_rate=0.002,
        seed=1,
        data=images.sha256,
        source=Path(__file__),
    )

    def loss(model: nn.Module, random: torch.Generator) -> Tensor:
        chosen = torch.randint(len(labels), (recipe.batch_size,), generator=random)
        return nn.functional.cross_entropy(model(scaled(pixels[chosen])), labels[chosen])

    return pretrained(recipe, untrained, loss)
