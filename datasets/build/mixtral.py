"""Mixtral (Jiang et al. 2024, "Mixtral of Experts", section 2 and table 1): Llama whose feed-forward layers are eight experts each.

Every token goes to two of the eight (`token_choice`), weighted by the softmax of their two scores. 8x7B: 32 layers of width 4096, experts
of 14,336 inside, 32 heads that share 8 of keys and values; 47 B parameters in the paper (section 3), 46,702,792,704 released. There an
expert takes whatever chooses it; here an equal share of the choices, so that the experts do as much as in the paper for even choices.
"""

from __future__ import annotations

from datasets.build import llama
from datasets.build.token_choice import ExpertLayer

EXPERTS, CHOICES = 8, 2
SIZES = llama.Sizes(key_heads=8, inner=14_336)


class Mixtral(llama.Llama):
    """Token ids `[batch length]` to logits `[batch length vocabulary]`."""

    def __init__(self, sizes: llama.Sizes) -> None:
        super().__init__(sizes)
        for layer in self.layers:
            experts = [llama.FeedForward(sizes.width, sizes.inner) for _ in range(EXPERTS)]
            layer.mlp = ExpertLayer(sizes.width, experts, choices=CHOICES, factor=1.0, among_chosen=True)
