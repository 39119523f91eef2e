"""Configurations of transformers made small: fewer layers and words, at the first levels fewer channels and experts, too.

At level `narrow` heads have 16 channels; at `two heads` 64, which some networks take for granted.
"""

from __future__ import annotations

import re
from typing import Any

from transformers import PretrainedConfig

LEVELS = ("narrow", "two heads", "shallow", "as published")
LAYERS, WORDS = 2, 1024
_LAYERS = re.compile(r"(num_hidden_layers|n_layers?|(\w+_)?layers|num_blocks|num_(\w+_)?layers|(\w+_)?depth|num_\w+_blocks)$")
_NO_LAYERS = re.compile(r"(num_feat_extract_layers|num_conv\w*layers|\w*conv\w*|.*adapter.*|num_feature_levels)$")
_WORDS = re.compile(r"(\w+_)?vocab_size(_\w+)?$")
_SIZES = {
    r"(hidden_size|d_model|n_embd|(\w+_)?dim|embed_dim|hidden_dim|(\w+_)?hidden_size|(\w+_)?hidden_dim|d_embed|"
    r"embedding_size|(\w+_)?embed_dim|(\w+_)?projection_dim|output_dim|encoder_output_dim|decoder_hidden_size)$": (64, 128),
    r"(\w+_)?(intermediate_size|ffn_dim|mlp_dim|n_inner|d_ff|ffn_hidden_size|intermediate_dim|d_inner|feedforward_dim|"
    r"dim_feedforward|inner_dim)$": (128, 256),
    r"(num_attention_heads|n_head|num_heads|(\w+_)?attention_heads|n_heads|(\w+_)?num_attention_heads)$": (4, 2),
    r"(num_key_value_heads|(\w+_)?num_key_value_heads|num_kv_heads|n_head_kv)$": (2, 1),
    r"(head_dim|d_kv|attention_head_dim|global_head_dim|attention_head_size|v_head_dim|qk_nope_head_dim)$": (16, 64),
    r"(qk_rope_head_dim)$": (8, 32),
    r"(num_experts|n_routed_experts|num_local_experts|moe_num_experts)$": (4, 4),
    r"(num_experts_per_tok|moe_topk|num_selected_experts|top_k_experts)$": (2, 2),
    r"(n_group|topk_group)$": (1, 1),
    r"(rotary_dim)$": (8, 32),
    r"(kv_lora_rank)$": (16, 16),
    r"(q_lora_rank)$": (32, 32),
}
_THREE_POSITIONS = re.compile(r"(qwen.*(vl|omni|5)|glm.*(v|ocr|image)|paddleocr|video_llama|keye|ernie.*vl)")
_NARROWED = ("qk_rope_head_dim", "rotary_dim")
_KEEP = re.compile(r"(.*rotary.*|.*conv.*|.*feat.*|.*patch.*|.*rope.*|.*time_step.*|num_mel_bins|.*max_.*|.*codebook.*)$")


def shrunk(config: PretrainedConfig, level: str) -> PretrainedConfig:
    """The configuration itself, with the configurations in it, made small."""
    for value in [*vars(config).values()]:
        if isinstance(value, PretrainedConfig):
            shrunk(value, level)
    if level != "as published":
        _fewer_layers(config)
        _fewer_words(config)
    if level in LEVELS[:2]:
        if level == "narrow":
            _fewer_frequencies(config)
        shares = _shares(config)
        for name, value in _integers(config):
            for pattern, sizes in _SIZES.items():
                size = sizes[LEVELS.index(level)]
                if re.match(pattern, name) and value > size and (not _KEEP.match(name) or name in _NARROWED):
                    _set(config, name, size)
                    break
        if not shares and hasattr(config, "num_key_value_heads"):
            _set(config, "num_key_value_heads", config.num_attention_heads)
        if getattr(config, "qk_rope_head_dim", None) and getattr(config, "head_dim", None):
            _set(config, "head_dim", config.qk_rope_head_dim)  # positions are encoded in this part of a head alone
    return config


def _fewer_frequencies(config: PretrainedConfig) -> None:
    """Frequencies of time, height and width that fill a head of 16 channels; some networks assume more without a field."""
    for field in ("rope_parameters", "rope_scaling"):
        scaling = getattr(config, field, None)
        if isinstance(scaling, dict) and ("mrope_section" in scaling or _THREE_POSITIONS.match(config.model_type)):
            scaling["mrope_section"] = [2, 3, 3]


def _shares(config: PretrainedConfig) -> bool:
    """Whether queries share heads of keys and values. A configuration may leave their number open."""
    heads, shared = (getattr(config, name, 0) for name in ("num_attention_heads", "num_key_value_heads"))
    return type(heads) is not int or not heads or (type(shared) is int and shared < heads)


def _fewer_layers(config: PretrainedConfig) -> None:
    """Keeps `LAYERS` layers, one of each kind if there are kinds."""
    for name, value in _integers(config):
        if _LAYERS.match(name) and not _NO_LAYERS.match(name) and value > LAYERS:
            kinds = getattr(config, "layer_types", None)
            kept = [0, 1]
            if isinstance(kinds, list) and len(kinds) == value:
                kept = [0, next((i for i, kind in enumerate(kinds) if kind != kinds[0]), 1)]
            for field, listed in [*vars(config).items()]:
                if isinstance(listed, list | tuple) and len(listed) == value and value > 4:
                    _set(config, field, type(listed)(listed[i] for i in kept))
            _set(config, name, LAYERS)


def _fewer_words(config: PretrainedConfig) -> None:
    """Keeps `WORDS` words; special tokens beyond them get the last numbers."""
    few = False
    for name, value in _integers(config):
        if _WORDS.match(name) and value > WORDS:
            _set(config, name, WORDS)
            few = True
    last = WORDS
    for name, value in _integers(config):
        if re.search(r"token_(id|index)$|_token$|image_token_index$", name) and value >= WORDS and (few or value > 10 * WORDS):
            last -= 1
            _set(config, name, last)


def _integers(config: PretrainedConfig) -> list[tuple[str, int]]:
    return [(name, value) for name, value in vars(config).items() if type(value) is int and not name.startswith("_")]


def _set(config: PretrainedConfig, name: str, value: Any) -> None:
    """Sets a field, unless the configuration computes it."""
    try:
        setattr(config, name, value)
    except Exception:  # a read-only property, or a field whose validation needs others first
        vars(config)[name] = value
