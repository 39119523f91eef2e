"""Training steps small enough for one core (100 to 200 ms each, on one of today's) of models as they are: what simulated times are
compared with measured ones on.

Most are modules of the corpus at a reduced size. Two-tower, DLRM, Deep Speech 2, the experts and the inception network have branches
that devices can share; BERT, the U-Net and the GRU are chains.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from datasets.build import deepspeech2, dlrm, gru, torch_models
from datasets.build import mixture_of_experts as experts
from datasets.build import two_tower as two_tower_model
from datasets.build import unet as unet_model
from gnnplace.frontends.torch.step import TorchStep


def two_tower() -> TorchStep:
    """Towers of equal work, and tables so small that Adam's update of all their rows is little of it."""
    sizes = two_tower_model.Sizes((4, 4), rows=2000, feature_width=32, widened=64, deep_widths=(512, 512, 256), output_width=128)
    return torch_models.two_tower(batch=768, sizes=sizes)


def dlrm_clicks() -> TorchStep:
    """Twelve sparse tables, plain SGD."""
    sizes = dlrm.Sizes(rows=(20_000,) * 12, width=64, bottom=(512, 256), top=(512, 256))
    return torch_models.dlrm(batch=3072, sizes=sizes)


def gru_language() -> TorchStep:
    """Two layers over ten time steps: many small ops."""
    return torch_models.gru_lm(batch=32, steps=10, sizes=gru.Sizes(vocabulary=2000, units=384, layers=2))


def bert() -> TorchStep:
    """Three layers of width 128, with dropout."""
    from transformers import BertConfig

    settings = BertConfig(
        vocab_size=2000, hidden_size=128, num_hidden_layers=3, num_attention_heads=4, intermediate_size=512,
        max_position_embeddings=128, attn_implementation="eager",
    )  # fmt: skip
    return torch_models.bert_base(batch=16, length=64, settings=settings)


def mixture_of_experts() -> TorchStep:
    """Three layers of four experts."""
    sizes = experts.Sizes(vocabulary=1000, max_length=128, width=128, heads=4, layers=3, experts=4, expert_width=512)
    return torch_models.moe_8e(batch=8, length=128, sizes=sizes)


def unet() -> TorchStep:
    """Channels 32, 64 and 96 on images of 24 x 24."""
    return torch_models.unet(batch=6, size=24, sizes=unet_model.Sizes(channels=(32, 64, 96), time_width=128, groups=8))


def deep_speech_2() -> TorchStep:
    """Two bidirectional layers over ten time steps: two directions that know nothing of each other."""
    return torch_models.deep_speech_2(batch=40, steps=10, sizes=deepspeech2.Sizes(frequencies=81, channels=8, units=320, layers=2))


def inception(batch: int = 16, size: int = 32, channels: int = 32, blocks: int = 4) -> TorchStep:
    """Blocks of four branches of convolutions, as in GoogLeNet (Szegedy et al. 2015), batch norm behind each."""
    images, labels = torch.rand(batch, 3, size, size), torch.randint(10, (batch,))
    return TorchStep(Inception(channels, blocks), _class_loss, (images, labels))


class Convolution(nn.Sequential):
    """Convolution, batch norm, ReLU; the size of the image stays."""

    def __init__(self, before: int, after: int, window: int) -> None:
        super().__init__(nn.Conv2d(before, after, window, padding=window // 2, bias=False), nn.BatchNorm2d(after), nn.ReLU())


class InceptionBlock(nn.Module):
    """Four views of one image, beside each other in the channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        part = channels // 4
        self.branches = nn.ModuleList(
            (
                Convolution(channels, part, 1),
                nn.Sequential(Convolution(channels, channels, 1), Convolution(channels, part, 3)),
                nn.Sequential(Convolution(channels, part, 1), Convolution(part, part, 5)),
                nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), Convolution(channels, part, 1)),
            )
        )

    def forward(self, image: Tensor) -> Tensor:
        return torch.cat([branch(image) for branch in self.branches], dim=1)


class Inception(nn.Module):
    """Images `[batch 3 height width]` to logits of ten classes."""

    def __init__(self, channels: int, blocks: int) -> None:
        super().__init__()
        self.stem = Convolution(3, channels, 3)
        self.blocks = nn.Sequential(*(InceptionBlock(channels) for _ in range(blocks)))
        self.head = nn.Linear(channels, 10)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(image)).mean(dim=(2, 3)))


def _class_loss(module: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(module(images), labels)
