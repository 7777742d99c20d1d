"""The block of transformers that workloads train."""

from __future__ import annotations

from torch import Tensor, nn


class Block(nn.Module):
    """Attention and two linear maps, normalised before each: Vaswani et al., "Attention Is All You Need", NeurIPS 2017.

    Args:
        width: of what a token is described by; the second part is four times as wide.
        causal: whether a token sees itself and those before it alone.
    """

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1 = nn.LayerNorm(width)
        self.attend = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.shrink = nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        samples, length, width = hidden.shape
        heads = self.attend(self.norm1(hidden)).view(samples, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind()
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        hidden = hidden + self.project(seen.transpose(1, 2).reshape(samples, length, width))
        return hidden + self.shrink(nn.functional.gelu(self.widen(self.norm2(hidden))))
