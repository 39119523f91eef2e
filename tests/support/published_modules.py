"""Modules of published code beside ours: the same parameters in both."""

from __future__ import annotations

import re

from torch import Tensor, nn

Parts = list[tuple[str, str]]

LLAMA_PARTS: Parts = [
    (r"^layers", "model.layers"), (r"^embedding", "model.embed_tokens"), (r"^norm", "model.norm"), (r"^head", "lm_head"),
    (r"attention_norm", "input_layernorm"), (r"mlp_norm", "post_attention_layernorm"),
    (r"attention\.(q|k|v|o)\w+", r"self_attn.\1_proj"), (r"mlp\.(gate|up|down)", r"mlp.\1_proj"),
]  # fmt: skip
T5_PARTS: Parts = [
    (r"^embedding", "shared"),
    (r"^(\w+)\.bias\.table", r"\1.block.0.layer.0.SelfAttention.relative_attention_bias"),
    (r"^(\w+)\.norm", r"\1.final_layer_norm"),
    (r"^decoder\.layers\.(\d+)\.mlp", r"decoder.block.\1.layer.2.DenseReluDense"),
    (r"^encoder\.layers\.(\d+)\.mlp", r"encoder.block.\1.layer.1.DenseReluDense"),
    (r"layers\.(\d+)\.attention", r"block.\1.layer.0.SelfAttention"),
    (r"layers\.(\d+)\.cross", r"block.\1.layer.1.EncDecAttention"),
    (r"\w+\.norm", "layer_norm"), (r"\.up", ".wi"), (r"\.down", ".wo"), (r"Attention\.(q|k|v|o)\w+", r"Attention.\1"),
]  # fmt: skip


def share(module: nn.Module, published: nn.Module, parts: Parts) -> None:
    """Gives the published module the parameters of ours, drawn at random; every one of its parameters must be among them.

    `parts` are patterns of our names and what stands for them there, one after another; `qkv` is three parameters there.
    """
    given: dict[str, Tensor] = {}
    for name, parameter in module.named_parameters():
        nn.init.normal_(parameter, std=0.5)
        for pattern, replacement in parts:
            name = re.sub(pattern, replacement, name)
        if "qkv" in name:
            given |= {name.replace("qkv", f"{letter}_proj"): part for letter, part in zip("qkv", parameter.chunk(3), strict=True)}
        else:
            given[name] = parameter
    expected = dict(published.named_parameters())
    assert given.keys() == expected.keys()
    for name, parameter in expected.items():
        parameter.data.copy_(given[name].reshape(parameter.shape))
