"""Experts, state spaces and caches compute what published code does, or what the same network does without them."""

from __future__ import annotations

import re

import pytest
import torch
import transformers
from support.published_modules import LLAMA_PARTS, T5_PARTS, Parts, share
from support.torch_checks import PRODUCTS, counted_products, flops_of, parameter_bytes
from torch import Tensor, nn

from datasets.build import clip, llama, llama_decode, mamba, mixtral, switch, t5
from datasets.build.token_choice import ExpertLayer
from gnnplace.corpus import manifest
from gnnplace.frontends.torch.calls import Call
from gnnplace.frontends.torch.flops import bytes_accessed, flops
from gnnplace.frontends.torch.kinds import canonical_kind

MIXTRAL_PARTS: Parts = [*LLAMA_PARTS, (r"mlp\.router", "mlp.gate")]
MAMBA_PARTS: Parts = [
    (r"^embedding", "backbone.embeddings"), (r"^layers", "backbone.layers"), (r"^norm", "backbone.norm_f"), (r"inward", "in_proj"),
    (r"outward", "out_proj"), (r"convolution", "conv1d"), (r"step", "dt_bias"), (r"log_rate", "A_log"), (r"past", "D"),
]  # fmt: skip
SWITCH_PARTS: Parts = [
    (r"decoder\.layers\.2", "decoder.layers.0"), (r"decoder\.layers\.3", "decoder.layers.1"), *T5_PARTS,
    (r"DenseReluDense\.experts\.router", "mlp.router.classifier"), (r"DenseReluDense\.experts\.experts\.", "mlp.experts.expert_"),
    (r"DenseReluDense", "mlp"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "parameters", "slots"),
    [("switch-base-8", 619_339_008, 12), ("mamba2-130m", 128_989_632, 12), ("mixtral-8x7b-inference", 46_702_792_704, 4),
     ("llama-7b-inference", 6_738_415_616, 4), ("llama-1b-decode", 1_100_048_384, 4)],
)  # fmt: skip
def test_parameters_are_the_published_number(name: str, parameters: int, slots: int) -> None:
    assert parameter_bytes(name) == slots * parameters


@pytest.mark.parametrize("name", ["switch-base-8", "mixtral-8x7b-inference", "llama-1b-decode"])
def test_products_count_as_torch_counts_them(name: str) -> None:
    graph = manifest.graph(name)
    assert flops_of(graph, *PRODUCTS, "attention") == counted_products(name)


def test_the_products_of_mamba() -> None:
    """Torch counts a convolution's gradient as if it had one group, so that is counted by hand: a filter of 4 a channel, thrice."""
    graph = manifest.graph("mamba2-130m")
    assert flops_of(graph, "matmul", "batch_matmul") == counted_products("mamba2-130m", without="convolution")
    assert flops_of(graph, *PRODUCTS[2:]) == 3 * 24 * 2 * 4 * (2048 + 3) * (1536 + 2 * 128)


@pytest.mark.parametrize(
    ("name", "layers"), [("switch-base-8", 24), ("mamba2-130m", 24), ("mixtral-8x7b-inference", 32), ("llama-1b-decode", 22)]
)
def test_blocks_are_the_layers(name: str, layers: int) -> None:
    assert manifest.graph(name).block.max() == layers - 1


def test_mamba_is_the_published_one() -> None:
    torch.manual_seed(0)
    sizes = mamba.Sizes(vocabulary=11, width=16, layers=2, head_width=8, state=6, chunk=4)
    config = transformers.Mamba2Config(
        vocab_size=11, num_heads=4, head_dim=8, hidden_size=16, state_size=6, num_hidden_layers=2, expand=2, n_groups=1, chunk_size=4,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, tie_word_embeddings=True,
    )  # fmt: skip
    ours, published = mamba.Mamba(sizes), transformers.Mamba2ForCausalLM(config)
    share(ours, published, MAMBA_PARTS)
    tokens = torch.randint(11, (3, 12))
    torch.testing.assert_close(ours(tokens), published(tokens).logits, rtol=1e-4, atol=1e-4)


def test_the_scan_is_the_recurrence_token_by_token() -> None:
    torch.manual_seed(0)
    inputs, steps, keys, queries = (
        torch.randn(1, 2, 3, 4, 5),
        -torch.rand(1, 2, 3, 4),
        torch.randn(1, 1, 3, 4, 6),
        torch.randn(1, 1, 3, 4, 6),
    )
    found = mamba.scan(inputs, steps, keys, queries)[0].flatten(1, 2)
    flat = [part[0].flatten(1, 2) for part in (inputs, steps, keys, queries)]
    for head in range(2):
        state = torch.zeros(5, 6)
        for token in range(12):
            state = flat[1][head, token].exp() * state + torch.outer(flat[0][head, token], flat[2][0, token])
            torch.testing.assert_close(found[head, token], state @ flat[3][0, token])


def test_turning_a_sequence_round_moves_data() -> None:
    """As the gradient of a running sum does."""
    sequence = torch.rand(3, 5)
    call = Call(torch.ops.aten.flip.default, {"self": sequence, "dims": [1]}, (sequence.flip(1),))
    assert (canonical_kind(call), flops(call), bytes_accessed(call)) == ("reshape", 0, None)


class Doubled(nn.Module):
    """An expert that multiplies."""

    def __init__(self, factor: int) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, tokens: Tensor) -> Tensor:
        return self.factor * tokens


@pytest.mark.parametrize("among_chosen", [False, True])
def test_every_token_gets_its_best_experts_while_there_is_room(among_chosen: bool) -> None:
    torch.manual_seed(0)
    layer = ExpertLayer(6, [Doubled(expert) for expert in range(1, 5)], choices=2, factor=4.0, among_chosen=among_chosen)
    hidden = torch.randn(2, 5, 6)
    scores = layer.router(hidden)
    chosen = scores.topk(2, dim=2)
    shares = chosen.values.softmax(2) if among_chosen else scores.softmax(2).gather(2, chosen.indices)
    expected = ((chosen.indices + 1) * shares).sum(2, keepdim=True) * hidden
    torch.testing.assert_close(layer(hidden), expected)


def test_first_choices_come_before_second_ones_and_earlier_tokens_before_later_ones() -> None:
    layer = ExpertLayer(2, [Doubled(1), Doubled(1)], choices=2, factor=0.5, among_chosen=False)  # two of four places each
    weights, chosen = torch.tensor([[9.0, 1], [8, 2], [7, 3], [6, 4]]), torch.tensor([[0, 1], [0, 1], [0, 1], [1, 0]])
    rows, shares = layer._places(weights, chosen)
    assert rows.tolist() == [[0, 1], [3, 0]]
    assert shares.tolist() == [[9, 8], [6, 1]]
    layer = ExpertLayer(2, [Doubled(1), Doubled(1)], choices=1, factor=1.0, among_chosen=False)
    rows, shares = layer._places(weights[:, :1], torch.zeros(4, 1, dtype=torch.int64))
    assert shares.tolist() == [[9, 8], [0, 0]]  # nobody chose the second


def test_mixtral_is_the_published_one_where_there_is_room() -> None:
    torch.manual_seed(0)
    sizes = llama.Sizes(vocabulary=11, max_length=9, width=16, heads=4, key_heads=2, layers=2, inner=24)
    config = transformers.MixtralConfig(
        vocab_size=11, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=9, rms_norm_eps=llama.EPSILON, rope_theta=llama.ROTARY_BASE, attn_implementation="eager",
    )  # fmt: skip
    ours, published = mixtral.Mixtral(sizes), transformers.MixtralForCausalLM(config)
    for layer, other in zip(ours.layers, published.model.layers, strict=True):
        layer.mlp.factor = 4.0
        for number, expert in enumerate(layer.mlp.experts):
            other.mlp.experts.gate_up_proj.data[number] = torch.cat([expert.gate.weight, expert.up.weight])
            other.mlp.experts.down_proj.data[number] = expert.down.weight
    for name, parameter in ours.named_parameters():
        if "mlp.experts" not in name:
            for pattern, replacement in MIXTRAL_PARTS:
                name = re.sub(pattern, replacement, name)
            published.get_parameter(name).data.copy_(parameter)
    tokens = torch.randint(11, (3, 7))
    torch.testing.assert_close(ours(tokens), published(tokens).logits)


def test_switch_is_the_published_one_where_there_is_room() -> None:
    """Every other layer of each stack has experts, none of which is full."""
    torch.manual_seed(0)
    sizes = t5.Sizes(vocabulary=11, width=16, heads=4, inner=24, layers=2)
    config = transformers.SwitchTransformersConfig(
        vocab_size=11, d_model=16, d_kv=4, d_ff=24, num_layers=2, num_decoder_layers=2, num_heads=4, num_experts=switch.EXPERTS,
        num_sparse_encoder_layers=1, num_sparse_decoder_layers=1, pad_token_id=0,
    )  # fmt: skip
    ours, published = switch.Switch(sizes).eval(), transformers.SwitchTransformersForConditionalGeneration(config).eval()
    for layer in (ours.encoder.layers["1"], ours.decoder.layers["3"]):
        layer.mlp.experts.factor = float(switch.EXPERTS)
    share(ours, published, SWITCH_PARTS)
    source, target = torch.randint(11, (3, 9)), torch.randint(11, (3, 7))
    expected = published(input_ids=source, decoder_input_ids=target).logits
    torch.testing.assert_close(ours(source, target), expected, rtol=1e-4, atol=1e-4)


def test_decoding_with_a_cache_gives_the_last_of_all_logits() -> None:
    torch.manual_seed(0)
    sizes = llama.Sizes(vocabulary=11, max_length=9, width=16, heads=4, key_heads=2, layers=2, inner=24)
    model, decoder = llama.Llama(sizes), llama_decode.Decoder(sizes)
    decoder.load_state_dict(model.state_dict())
    tokens, written = torch.randint(11, (3, 9)), []
    for layer in model.layers:
        for part in (layer.attention.key, layer.attention.value):
            part.register_forward_hook(lambda _, __, output: written.append(output.unflatten(2, (2, -1)).transpose(1, 2)))
    expected = model(tokens)[:, -1]
    cosine, sine = model.rotary(9)
    caches = [part if i % 2 else llama.turned(part, cosine, sine) for i, part in enumerate(written)]
    wiped = [cache.detach().index_fill(2, torch.tensor([8]), torch.nan) for cache in caches]
    with torch.no_grad():
        torch.testing.assert_close(decoder(tokens[:, 8:], torch.tensor([8]), *wiped)[:, 0], expected)
    torch.testing.assert_close(wiped, [cache.detach() for cache in caches])


def test_caches_are_written_in_place() -> None:
    graph = manifest.graph("llama-1b-decode")
    writes = graph.kind.among(["aten.index_copy_"])
    assert writes.sum() == 2 * 22
    written = 8 * 4 * 64 * 4  # one token of 8 texts, not 2,048
    assert set(graph.effective_bytes_accessed[writes].tolist()) == {3 * written + 8}


def test_clip_matches_by_the_scores_of_its_loss() -> None:
    torch.manual_seed(0)
    sizes = clip.Sizes(image=8, patch=4, image_width=16, image_heads=2, image_layers=1, vocabulary=11, length=5, text_width=8, text_heads=2,
                       text_layers=1, shared_width=6)  # fmt: skip
    matcher, images, tokens = clip.Matcher(sizes), torch.rand(3, 3, 8, 8), torch.randint(11, (3, 5))
    own = nn.functional.cross_entropy
    scores = matcher(images, tokens)
    expected = (own(scores, torch.arange(3)) + own(scores.t(), torch.arange(3))) / 2
    torch.testing.assert_close(clip.CLIP.forward(matcher, images, tokens), expected)
