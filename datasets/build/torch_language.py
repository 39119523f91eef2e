"""More PyTorch language models of the corpus, of experts and of state spaces; and models of language and speech that answer requests.

A Mamba layer is no attention, though its chunks are multiplied like one: its lineage is its own.
"""

from __future__ import annotations

from functools import partial

import torch

from datasets.build import clip as clip_model
from datasets.build import llama, llama_decode, mamba, mixtral, t5, torch_models, torch_transformers
from datasets.build.losses import token_loss
from datasets.build.switch import Switch
from datasets.build.torch_workload import Workload, without_labels
from gnnplace.frontends.torch.step import TorchInference, TorchStep


def state_space(batch: int = 1, length: int = 2048, sizes: mamba.Sizes = mamba.SMALL) -> TorchStep:
    """Mamba-2 that predicts the next token."""
    tokens, labels = torch.randint(sizes.vocabulary, (2, batch, length)).unbind()
    return TorchStep(mamba.Mamba(sizes), token_loss, (tokens, labels))


def mixtral_prompt(batch: int = 1, length: int = 2048, sizes: llama.Sizes = mixtral.SIZES) -> TorchInference:
    """Mixtral reads a prompt."""
    return TorchInference(mixtral.Mixtral(sizes), (torch.randint(sizes.vocabulary, (batch, length)),))


def llama_next(batch: int = 8, sizes: llama.Sizes = llama.ONE) -> TorchInference:
    """Llama says the next token of several texts, with what it has read in its cache."""
    inputs = (torch.randint(sizes.vocabulary, (batch, 1)), torch.full((1,), sizes.max_length - 1))
    return TorchInference(llama_decode.Decoder(sizes), (*inputs, *llama_decode.caches(sizes, batch)))


def clip_match(batch: int = 32) -> TorchInference:
    """CLIP says which of several texts fits each of several images."""
    return TorchInference(clip_model.Matcher(clip_model.FULL), torch_transformers.clip(batch=batch).inputs)


TRAINED = {**torch_models.WORKLOADS, **torch_transformers.WORKLOADS}

WORKLOADS: dict[str, Workload] = {
    "switch-base-8": Workload(
        partial(torch_transformers.t5, t5.BASE, network=Switch), "switch", "transformer",
        "datasets/build/switch.py, 12 + 12 layers, 8 experts in every other, 619 M parameters; batch 8, length 512, target 128; Adam",
    ),
    "mamba2-130m": Workload(
        state_space, "mamba", "state-space",
        "datasets/build/mamba.py, 24 layers of 768, 129 M parameters, chunks of 256; batch 1, length 2048; Adam",
    ),
    "mixtral-8x7b-inference": Workload(
        mixtral_prompt, "moe", "transformer",
        "datasets/build/mixtral.py, 46.7 B parameters, 2 of 8 experts a token; batch 1, length 2048; forward", "inference",
    ),
    "llama-7b-inference": TRAINED["llama-7b"].inference(
        lambda: without_labels(torch_transformers.llama(llama.SEVEN, 1)),
        "datasets/build/llama.py, 6.7 B parameters; batch 1, length 2048; forward",
    ),
    "llama-1b-decode": TRAINED["llama-1b"].inference(
        llama_next, "datasets/build/llama_decode.py, TinyLlama's sizes; batch 8, one token after 2047 in a cache; forward"
    ),
    "t5-base-inference": TRAINED["t5-base"].inference(
        lambda: without_labels(torch_transformers.t5(t5.BASE, 1)),
        "datasets/build/t5.py, 12 + 12 layers, 223 M parameters; batch 1, length 512, target 128; forward",
    ),
    "clip-b32-inference": TRAINED["clip-b32"].inference(
        clip_match, "datasets/build/clip.py, ViT-B/32 and a text transformer, 151 M parameters; 32 images and 32 texts; forward"
    ),
    "deepspeech2-inference": TRAINED["deepspeech2"].inference(
        lambda: without_labels(torch_models.deep_speech_2(1)),
        "datasets/build/deepspeech2.py, 5 bidirectional GRU layers of 800, 50 steps; batch 1; forward",
    ),
}  # fmt: skip
