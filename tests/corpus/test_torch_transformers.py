"""The transformers behind the PyTorch graphs compute what published code, torch's own layer or the formula of the paper does."""

from __future__ import annotations

import pytest
import torch
import transformers
from support.published_modules import LLAMA_PARTS, T5_PARTS, share
from torch import nn

from datasets.build import clip, llama, t5, transformer_xl
from datasets.build.attention import Block

CLIP_PARTS = [
    (r"^log_scale$", "logit_scale"),
    (r"^image\.patches\.projection", "vision_model.embeddings.patch_embedding"),
    (r"^image\.patches\.class_token", "vision_model.embeddings.class_embedding"),
    (r"^image\.patches\.position", "vision_model.embeddings.position_embedding.weight"),
    (r"^image\.norm_before", "vision_model.pre_layrnorm"),
    (r"^image\.norm_after", "vision_model.post_layernorm"),
    (r"^image\.projection", "visual_projection"),
    (r"^text\.tokens\.embedding", "text_model.embeddings.token_embedding"),
    (r"^text\.tokens\.position", "text_model.embeddings.position_embedding.weight"),
    (r"^text\.norm", "text_model.final_layer_norm"),
    (r"^text\.projection", "text_projection"),
    (r"^image\.layers", "vision_model.encoder.layers"),
    (r"^text\.layers", "text_model.encoder.layers"),
    (r"norm_(\d)", r"layer_norm\1"), (r"\.up\.", ".mlp.fc1."), (r"\.down\.", ".mlp.fc2."), (r"attention\.out", "self_attn.out_proj"),
    (r"attention\.qkv", "self_attn.qkv"),
]  # fmt: skip


@pytest.mark.parametrize("key_heads", [4, 2])
def test_llama_is_the_published_one(key_heads: int) -> None:
    torch.manual_seed(0)
    sizes = llama.Sizes(vocabulary=11, max_length=9, width=16, heads=4, key_heads=key_heads, layers=2, inner=24)
    config = transformers.LlamaConfig(
        vocab_size=11, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=key_heads,
        max_position_embeddings=9, rms_norm_eps=llama.EPSILON, attn_implementation="eager",
    )  # fmt: skip
    ours, published = llama.Llama(sizes), transformers.LlamaForCausalLM(config)
    share(ours, published, LLAMA_PARTS)
    tokens = torch.randint(11, (3, 7))
    torch.testing.assert_close(ours(tokens), published(tokens).logits, rtol=1e-4, atol=1e-4)


def test_t5_is_the_published_one() -> None:
    torch.manual_seed(0)
    sizes = t5.Sizes(vocabulary=11, width=16, heads=4, inner=24, layers=2)
    config = transformers.T5Config(vocab_size=11, d_model=16, d_kv=4, d_ff=24, num_layers=2, num_heads=4, pad_token_id=0)
    ours, published = t5.T5(sizes).eval(), transformers.T5ForConditionalGeneration(config).eval()
    share(ours, published, [(r"decoder\.layers\.2", "decoder.layers.0"), (r"decoder\.layers\.3", "decoder.layers.1"), *T5_PARTS])
    source, target = torch.randint(11, (3, 200)), torch.randint(11, (3, 150))
    expected = published(input_ids=source, decoder_input_ids=target).logits
    torch.testing.assert_close(ours(source, target), expected, rtol=1e-4, atol=1e-4)


def test_clips_features_and_loss_are_the_published_ones() -> None:
    torch.manual_seed(0)
    sizes = clip.Sizes(image=8, patch=4, image_width=16, image_heads=2, image_layers=2, vocabulary=11, length=5, text_width=8, text_heads=2,
                       text_layers=2, shared_width=6)  # fmt: skip
    common = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_act": "quick_gelu"}
    text = {
        "vocab_size": 11,
        "hidden_size": 8,
        "intermediate_size": 32,
        "max_position_embeddings": 5,
        "bos_token_id": 0,
        "eos_token_id": 10,
    }
    vision = {"image_size": 8, "patch_size": 4, "hidden_size": 16, "intermediate_size": 64}
    config = transformers.CLIPConfig(text_config=text | common, vision_config=vision | common, projection_dim=6)
    ours, published = clip.CLIP(sizes), transformers.CLIPModel(config)
    share(ours, published, CLIP_PARTS)
    for scale in (ours.log_scale, published.logit_scale):
        scale.data.fill_(5.0)  # the features of random encoders are alike, so a small scale would give the same loss to all
    images, tokens = torch.rand(4, 3, 8, 8), torch.randint(10, (4, 5))
    tokens[torch.arange(4), torch.tensor([4, 1, 3, 2])] = 10
    expected = published(input_ids=tokens, pixel_values=images, return_loss=True)
    torch.testing.assert_close(ours.image(images), expected.image_embeds)
    torch.testing.assert_close(ours.text(tokens), expected.text_embeds)
    torch.testing.assert_close(ours(images, tokens), expected.loss, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("causal", [False, True])
def test_the_shared_block_is_torchs_encoder_layer(causal: bool) -> None:
    torch.manual_seed(0)
    block = Block(8, 2, nn.GELU(), causal=causal)
    expected = nn.TransformerEncoderLayer(8, 2, 32, 0.0, "gelu", batch_first=True, norm_first=True)
    names = {"qkv.": "in_proj_", "attention.": "self_attn.", "out.": "out_proj.", "up": "linear1", "down": "linear2", "norm_": "norm"}
    state = {}
    for name, tensor in block.state_dict().items():
        for ours, theirs in names.items():
            name = name.replace(ours, theirs)
        state[name] = tensor
    expected.load_state_dict(state)
    hidden = torch.randn(3, 5, 8)
    mask = nn.Transformer.generate_square_subsequent_mask(5) if causal else None
    torch.testing.assert_close(block(hidden), expected(hidden, src_mask=mask, is_causal=causal))


def test_relative_attention_sees_the_memory_and_no_future() -> None:
    """Appendix B without its shift: each pair of positions by itself."""
    torch.manual_seed(0)
    queries, remembered, heads, width = 4, 3, 2, 6
    keys = queries + remembered
    attention, waves = transformer_xl.Attention(heads * width, heads), transformer_xl.waves(keys, heads * width)
    hidden, memory, biases = torch.randn(1, queries, 12), torch.randn(1, remembered, 12), torch.randn(2, heads, 1, width)
    query = attention.query(hidden)[0].view(queries, heads, width)
    both = attention.key_value(torch.cat([memory, hidden], dim=1))[0].view(keys, 2, heads, width)
    mixed = torch.zeros(queries, heads, width)
    for i in range(queries):
        seen = range(remembered + i + 1)
        for head in range(heads):
            by_content, by_distance = query[i, head] + biases[0, head, 0], query[i, head] + biases[1, head, 0]
            far = [attention.distance(waves[keys - 1 - (remembered + i - j)]).view(heads, width)[head] for j in seen]
            scores = torch.stack([by_content @ both[j, 0, head] + by_distance @ far[j] for j in seen])
            mixed[i, head] = (scores * width**-0.5).softmax(0) @ torch.stack([both[j, 1, head] for j in seen])
    hides = torch.ones(queries, keys, dtype=torch.bool).triu(1 + remembered)
    found = attention(hidden, memory, waves, biases, hides)
    torch.testing.assert_close(found[0], attention.out(mixed.flatten(1)))


def test_the_waves_are_of_the_distances() -> None:
    angles = torch.arange(6, -1, -1)[:, None] * 10_000.0 ** -torch.tensor([0, 1 / 2])
    torch.testing.assert_close(transformer_xl.waves(7, 4), torch.cat([angles.sin(), angles.cos()], dim=1))
