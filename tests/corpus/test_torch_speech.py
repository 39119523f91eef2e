"""Speech networks of the corpus: the modules are the published ones, the graphs have their parameters and torch's count of products."""

from __future__ import annotations

import pytest
import torch
import transformers
from support.published_modules import Parts, share
from support.torch_checks import PRODUCTS, counted_products, module_parameters, parameter_bytes
from transformers.models.wav2vec2_conformer.modeling_wav2vec2_conformer import Wav2Vec2ConformerEncoderLayer

from datasets.build import conformer, wav2vec2, whisper
from datasets.build.torch_speech import WORKLOADS
from gnnplace.corpus import manifest


def conformer_parameters(width: int, layers: int) -> int:
    """By hand, part by part."""
    feed_forward, attention = 2 * width + 8 * width**2 + 5 * width, 2 * width + 5 * width**2 + 4 * width + 2 * width
    convolution = 2 * width + 3 * width**2 + 32 * width + 2 * width
    subsampling = 10 * width + 9 * width**2 + width + 19 * width**2 + width
    return subsampling + layers * (2 * feed_forward + attention + convolution + 2 * width) + 1024 * (width + 1)


PARAMETERS = {
    "whisper-base": 72_593_920 - 1500 * 512, "whisper-small": 241_734_912 - 1500 * 768, "wav2vec2-base": 94_371_712 + 32 * (768 + 1),
    "conformer-m": conformer_parameters(256, 16), "conformer-l": conformer_parameters(512, 17),
}  # fmt: skip
"""As transformers has them (without Whisper's fixed sinusoids, which it counts), or by hand."""

ROWS = {"whisper-base": 12, "whisper-small": 24, "wav2vec2-base": 19, "conformer-m": 16, "conformer-l": 17}


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_parameters_and_products_forwards(name: str) -> None:
    assert module_parameters(name) * 12 == parameter_bytes(name) == 12 * PARAMETERS[name]
    graph = manifest.graph(name)
    forward = graph.phase.among(["forward"])
    found = graph.flops[forward & graph.canonical_kind.among([*PRODUCTS, "attention"])].sum()
    assert found == counted_products(name, backwards=False)


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_products_backwards_are_twice_those_forwards_but_for_the_inputs(name: str) -> None:
    """Torch's own count of a grouped convolution's backward is too large by the number of its groups."""
    graph = manifest.graph(name)
    forward, products = graph.phase.among(["forward"]), graph.canonical_kind.among(PRODUCTS)
    once, twice = (int(graph.flops[products & rows].sum()) for rows in (forward, ~forward))
    first = {"whisper": "encoder.conv_1", "wav2vec2": "features.0.conv", "conformer": "subsampling.conv_1"}[name.split("-")[0]]
    untrained = int(graph.flops[products & forward & graph.layer.among([first])].sum())
    distances = int(graph.flops[products & forward & graph.layer.among([f"layers.{i}.attention.distance" for i in range(17)])].sum())
    assert twice == 2 * once - untrained - distances  # nor do the distances of a Conformer need a gradient


@pytest.mark.parametrize(("name", "rows"), ROWS.items())
def test_every_layer_is_a_block_in_the_row(name: str, rows: int) -> None:
    graph = manifest.graph(name)
    assert set(graph.block[graph.block >= 0].tolist()) == set(range(rows))
    levels = [graph.level[(graph.block == row) & graph.phase.among(["forward"])].max() for row in range(rows)]
    assert levels == sorted(levels)


def test_whisper_is_the_published_one() -> None:
    torch.manual_seed(0)
    sizes = whisper.Sizes(width=16, heads=2, layers=2, vocabulary=11, positions=6, length=9)
    config = transformers.WhisperConfig(
        vocab_size=11, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=64, decoder_ffn_dim=64, max_source_positions=6, max_target_positions=9, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    ours, published = whisper.Whisper(sizes), transformers.WhisperForConditionalGeneration(config).eval()
    positions = published.model.encoder.embed_positions.weight
    torch.testing.assert_close(ours.encoder.position, positions)
    ours.encoder.position = torch.nn.Parameter(ours.encoder.position)  # so that it is shared, too
    parts: Parts = [
        (r"^decoder\.layers\.2", "decoder.layers.0"), (r"^decoder\.layers\.3", "decoder.layers.1"), (r"^(en|de)coder", r"model.\1coder"),
        (r"coder\.norm", "coder.layer_norm"), (r"coder\.conv_", "coder.conv"), (r"position$", "embed_positions.weight"),
        (r"embedding", "embed_tokens"), (r"attention\.norm", "self_attn_layer_norm"), (r"cross\.norm", "encoder_attn_layer_norm"),
        (r"(\d)\.norm", r"\1.final_layer_norm"), (r"\.up\.", ".fc1."), (r"\.down\.", ".fc2."), (r"attention\.", "self_attn."),
        (r"cross\.", "encoder_attn."), (r"attn\.out", "attn.out_proj"), (r"attn\.(q|k|v)\w+", r"attn.\1_proj"),
    ]  # fmt: skip
    share(ours, published, parts)
    spectrogram, tokens = torch.randn(3, 80, 12), torch.randint(11, (3, 7))
    expected = published(input_features=spectrogram, decoder_input_ids=tokens).logits
    torch.testing.assert_close(ours(spectrogram, tokens), expected, rtol=1e-4, atol=1e-4)


def test_wav2vec2_is_the_published_one() -> None:
    torch.manual_seed(0)
    sizes = wav2vec2.Sizes(width=32, heads=2, inner=24, layers=2, classes=5)
    config = transformers.Wav2Vec2Config(vocab_size=5, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24)
    ours, published = wav2vec2.Wav2Vec2(sizes).eval(), transformers.Wav2Vec2ForCTC(config).eval()
    positions = "encoder.pos_conv_embed.conv"
    parts: Parts = [
        (r"^head", "lm_head"), (r"^hidden_frame", "masked_spec_embed"), (r"^positions\.bias", f"{positions}.bias"),
        (r"^positions\.length", f"{positions}.parametrizations.weight.original0"),
        (r"^positions\.direction", f"{positions}.parametrizations.weight.original1"), (r"^norm\.", "encoder.layer_norm."),
        (r"^features\.0\.norm", "features.0.layer_norm"), (r"^features", "feature_extractor.conv_layers"),
        (r"^norm_before", "feature_projection.layer_norm"), (r"^projection", "feature_projection.projection"),
        (r"^layers\.7", "encoder.layers.0"), (r"^layers\.8", "encoder.layers.1"), (r"attention\.out", "attention.out_proj"),
        (r"norm_1", "layer_norm"), (r"norm_2", "final_layer_norm"), (r"\.up\.", ".feed_forward.intermediate_dense."),
        (r"\.down\.", ".feed_forward.output_dense."), (r"^(?!lm_head)", "wav2vec2."),
    ]  # fmt: skip
    share(ours, published, parts)
    audio = torch.randn(2, 5000)
    hides = torch.rand(2, wav2vec2.frames(5000)) < 0.3
    features = published.wav2vec2.feature_projection(published.wav2vec2.feature_extractor(audio).transpose(1, 2))[0]
    hidden = torch.where(hides[:, :, None], published.wav2vec2.masked_spec_embed, features)
    expected = published.lm_head(published.wav2vec2.encoder(hidden)[0])
    torch.testing.assert_close(ours(audio, hides), expected, rtol=1e-4, atol=1e-4)


def test_a_conformers_block_is_the_published_one() -> None:
    """The published one knows odd windows only."""
    torch.manual_seed(0)
    config = transformers.Wav2Vec2ConformerConfig(
        hidden_size=12, num_attention_heads=3, intermediate_size=48, hidden_act="swish", conv_depthwise_kernel_size=5,
        position_embeddings_type="relative",
    )  # fmt: skip
    ours, published = conformer.Block(conformer.Sizes(12, 3, 1, window=5)).eval(), Wav2Vec2ConformerEncoderLayer(config).eval()
    parts: Parts = [
        (r"^before\.norm", "ffn1_layer_norm"), (r"^after\.norm", "ffn2_layer_norm"), (r"^before", "ffn1"), (r"^after", "ffn2"),
        (r"\.up\.", ".intermediate_dense."), (r"\.down\.", ".output_dense."), (r"^norm", "final_layer_norm"),
        (r"^attention\.norm", "self_attn_layer_norm"), (r"^attention\.content_bias", "self_attn.pos_bias_u"),
        (r"^attention\.distance_bias", "self_attn.pos_bias_v"), (r"^attention\.distance\.", "self_attn.linear_pos."),
        (r"^attention\.out", "self_attn.linear_out"), (r"^attention\.(q|k|v)\w+", r"self_attn.linear_\1"),
        (r"^convolution\.norm", "conv_module.layer_norm"), (r"^convolution\.widen", "conv_module.pointwise_conv1"),
        (r"^convolution\.narrow", "conv_module.pointwise_conv2"), (r"^convolution\.depthwise", "conv_module.depthwise_conv"),
        (r"^convolution\.batch_norm", "conv_module.batch_norm"),
    ]  # fmt: skip
    share(ours, published, parts)
    hidden, waves = torch.randn(2, 7, 12), conformer.distances(7, 12)
    expected = published(hidden, relative_position_embeddings=waves[None])
    torch.testing.assert_close(ours(hidden, waves), expected, rtol=1e-4, atol=1e-4)


def test_a_conformer_rectifies_its_two_convolutions_and_runs_its_layers_in_a_row() -> None:
    torch.manual_seed(0)
    model, hidden = conformer.Conformer(conformer.Sizes(8, 2, 3, window=5)).eval(), torch.randn(2, 1, 80, 23)
    spectrogram, subsampling = hidden[:, 0], model.subsampling
    for convolution in (subsampling.conv_1, subsampling.conv_2):
        hidden = convolution(hidden).clamp(min=0)
    hidden = torch.stack([subsampling.linear(hidden[:, :, :, frame].flatten(1)) for frame in range(conformer.frames(23))], dim=1)
    for layer in model.layers:
        hidden = layer(hidden, conformer.distances(5, 8))
    torch.testing.assert_close(model(spectrogram), model.head(hidden))


def test_distances_run_from_the_farthest_before_to_the_farthest_after() -> None:
    waves = conformer.distances(4, 6)
    frequencies = 10_000.0 ** (-torch.arange(3) / 3)
    for row, distance in enumerate(range(3, -4, -1)):
        torch.testing.assert_close(waves[row], torch.cat([(distance * frequencies).sin(), (distance * frequencies).cos()]))


def test_an_even_window_of_a_conformer_keeps_the_frames() -> None:
    convolution = conformer.Convolution(4, 32).eval()
    assert convolution(torch.randn(2, 9, 4)).shape == (2, 9, 4)
    assert conformer.frames(1500) == 374 and wav2vec2.frames(250_000) == 781
