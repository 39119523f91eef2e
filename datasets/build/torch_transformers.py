"""The transformers among the PyTorch workloads of the corpus, at the sizes of their papers."""

from __future__ import annotations

from functools import partial

import torch
from transformers import BertConfig

from datasets.build import clip as clip_model
from datasets.build import gpt2, torch_models
from datasets.build import llama as llama_model
from datasets.build import t5 as t5_model
from datasets.build import transformer_xl as transformer_xl_model
from datasets.build import vit as vit_model
from datasets.build.losses import own_loss, token_loss
from datasets.build.torch_workload import Workload
from gnnplace.frontends.torch.step import TorchStep


def bert_large(batch: int = 16, length: int = 128) -> TorchStep:
    """BERT large as a masked language model, dropout 0.1; Devlin et al. 2019, section 3.

    335,174,458 parameters with the head of the masked language model and without the pooler; 340 M in the paper.
    """
    sizes = {"num_hidden_layers": 24, "hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096}
    return torch_models.bert_base(batch, length, BertConfig(**sizes, attn_implementation="eager"))


def llama(sizes: llama_model.Sizes, batch: int, length: int = 2048) -> TorchStep:
    """A Llama that predicts the next token."""
    tokens, labels = torch.randint(sizes.vocabulary, (2, batch, length)).unbind()
    return TorchStep(llama_model.Llama(sizes), token_loss, (tokens, labels))


def t5(sizes: t5_model.Sizes, batch: int = 8, network: type[t5_model.T5] = t5_model.T5) -> TorchStep:
    """T5, or a network made of it, that restores what is missing in a text of 512 tokens by a target of 128."""
    source = torch.randint(sizes.vocabulary, (batch, 512))
    target, labels = torch.randint(sizes.vocabulary, (2, batch, 128)).unbind()
    return TorchStep(network(sizes), token_loss, (source, target, labels))


def vit(sizes: vit_model.Sizes, batch: int = 32) -> TorchStep:
    """A vision transformer that names what an image shows."""
    images, labels = torch.rand(batch, 3, sizes.image, sizes.image), torch.randint(sizes.classes, (batch,))
    return TorchStep(vit_model.ViT(sizes), token_loss, (images, labels))


def clip(sizes: clip_model.Sizes = clip_model.FULL, batch: int = 128) -> TorchStep:
    """CLIP on pairs of an image and a text."""
    images, tokens = torch.rand(batch, 3, sizes.image, sizes.image), torch.randint(sizes.vocabulary, (batch, sizes.length))
    return TorchStep(clip_model.CLIP(sizes), own_loss, (images, tokens))


def transformer_xl(sizes: transformer_xl_model.Sizes, batch: int = 22, length: int = 512) -> TorchStep:
    """A Transformer-XL that predicts the next symbol of one segment."""
    symbols, labels = torch.randint(sizes.vocabulary, (2, batch, length)).unbind()
    memories = [torch.rand(batch, sizes.memory, sizes.width) for _ in range(sizes.layers)]
    return TorchStep(transformer_xl_model.TransformerXL(sizes), token_loss, (symbols, *memories, labels))


# Radford et al. 2019, table 2, whose 345 M and 1,542 M parameters the authors have corrected since: 354,823,168 and 1,557,611,200.
GPT2_MEDIUM = gpt2.Sizes(width=1024, heads=16, layers=24)
GPT2_XL = gpt2.Sizes(width=1600, heads=25, layers=48)

WORKLOADS: dict[str, Workload] = {
    "bert-large": Workload(
        bert_large, "bert", "transformer",
        "transformers BertForMaskedLM, 24 layers of 1024, 335 M parameters, eager attention; batch 16, length 128; Adam",
    ),
    "gpt2-medium": Workload(
        partial(torch_models.gpt2, 4, 1024, GPT2_MEDIUM), "gpt", "transformer",
        "datasets/build/gpt2.py, 24 layers of 1024, 355 M parameters; batch 4, length 1024; Adam",
    ),
    "gpt2-xl": Workload(
        partial(torch_models.gpt2, 2, 1024, GPT2_XL), "gpt", "transformer",
        "datasets/build/gpt2.py, 48 layers of 1600, 1.6 B parameters; batch 2, length 1024; Adam",
    ),
    "llama-1b": Workload(
        partial(llama, llama_model.ONE, 2), "llama", "transformer",
        "datasets/build/llama.py, TinyLlama's sizes, 1.1 B parameters, 4 heads of keys and values; batch 2, length 2048; Adam",
    ),
    "llama-7b": Workload(
        partial(llama, llama_model.SEVEN, 1), "llama", "transformer",
        "datasets/build/llama.py, 6.7 B parameters; batch 1, length 2048; Adam",
    ),
    "t5-base": Workload(
        partial(t5, t5_model.BASE), "t5", "transformer",
        "datasets/build/t5.py, 12 + 12 layers, 223 M parameters; batch 8, length 512, target 128; Adam",
    ),
    "t5-large": Workload(
        partial(t5, t5_model.LARGE), "t5", "transformer",
        "datasets/build/t5.py, 24 + 24 layers, 738 M parameters; batch 8, length 512, target 128; Adam",
    ),
    "vit-b16": Workload(
        partial(vit, vit_model.BASE), "vit", "transformer",
        "datasets/build/vit.py, 86 M parameters, 224 x 224 images; batch 32; Adam",
    ),
    "vit-l16": Workload(
        partial(vit, vit_model.LARGE), "vit", "transformer",
        "datasets/build/vit.py, 304 M parameters, 224 x 224 images; batch 32; Adam",
    ),
    "clip-b32": Workload(
        clip, "clip", "transformer",
        "datasets/build/clip.py, ViT-B/32 and a text transformer, 151 M parameters; batch 128; Adam",
    ),
    **{
        f"transformer-xl-{layers}": Workload(
            partial(transformer_xl, transformer_xl_model.Sizes(layers)), "transformer-xl", "transformer",
            f"datasets/build/transformer_xl.py, {layers} layers of 512, a segment and a memory of 512; batch 22; Adam",
        )
        for layers in (2, 4, 8)
    },
}  # fmt: skip
