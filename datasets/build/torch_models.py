"""The PyTorch workloads of the corpus: what is trained, at which size, on inputs of which shape.

Modules are built on the `meta` device, so that a workload of billions of parameters takes no memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import BertConfig, BertForMaskedLM

from datasets.build import deepfm, deepspeech2, gcn
from datasets.build.dlrm import DLRM, NUM_DENSE, ROWS
from datasets.build.gpt2 import GPT2
from datasets.build.gru import LanguageModel
from datasets.build.mixture_of_experts import MixtureOfExperts
from datasets.build.two_tower import NUM_ITEM_FEATURES, NUM_USER_FEATURES, TwoTower
from datasets.build.unet import CHANNELS, UNet
from gnnplace.frontends.torch import TracedStep, training_step
from gnnplace.frontends.torch_trace import Optimizer


@dataclass(frozen=True)
class Workload:
    """A module, the scalar loss of `loss(module, *inputs)`, example inputs, and the optimiser that trains it."""

    module: nn.Module
    loss: Callable[..., Tensor]
    inputs: tuple[Tensor, ...]
    optimizer: Optimizer = "adam"


def traced(name: str) -> TracedStep:
    """The training step of the workload of that name. Raises ValueError for an unknown one."""
    if name not in WORKLOADS:
        raise ValueError(f"workload: {name!r} is none of {', '.join(WORKLOADS)}")
    with torch.device("meta"):
        workload = WORKLOADS[name]()
    return training_step(workload.module, workload.loss, workload.inputs, optimizer=workload.optimizer, name=name)


def bert_base(batch: int = 32, length: int = 128) -> Workload:
    """BERT base (12 layers, width 768, 110 M parameters) as a masked language model, dropout 0.1; Devlin et al. 2019."""
    module = BertForMaskedLM(BertConfig(attn_implementation="eager"))
    return Workload(module.train(), _masked_loss, (_tokens(batch, length), _tokens(batch, length)))


def gpt2(batch: int = 4, length: int = 1024) -> Workload:
    """GPT-2 (12 layers, width 768, 124 M parameters) predicting the next token, dropout 0.1."""
    return Workload(GPT2(), _next_token_loss, (_tokens(batch, length), _tokens(batch, length)))


def moe_8e(batch: int = 8, length: int = 512) -> Workload:
    """Six transformer layers of width 1024 with eight experts each (430 M parameters), predicting the next token."""
    return Workload(MixtureOfExperts(), _next_token_loss, (_tokens(batch, length), _tokens(batch, length)))


def two_tower(batch: int = 4096) -> Workload:
    """A retrieval recommender: user and item towers, softmax over the items of the batch."""
    inputs = (_tokens(batch, NUM_USER_FEATURES), _tokens(batch, NUM_ITEM_FEATURES))
    return Workload(TwoTower(), _in_batch_loss, inputs)


def dlrm(batch: int = 2048) -> Workload:
    """DLRM on Criteo Kaggle (26 tables of width 64): will this advertisement be clicked? Plain SGD, sparse for the tables."""
    inputs = (torch.zeros(batch, NUM_DENSE), _tokens(batch, len(ROWS)), torch.zeros(batch))
    return Workload(DLRM(), _click_loss, inputs, "sgd")


def gru_lm(batch: int = 64, steps: int = 35) -> Workload:
    """A language model of three GRU layers of 1,024 (39 M parameters), unrolled cell by cell."""
    return Workload(LanguageModel(), _own_loss, (_tokens(steps, batch), _tokens(steps, batch)))


def deep_fm(batch: int = 4096) -> Workload:
    """DeepFM on Criteo (39 fields of width 16): will this advertisement be clicked?"""
    return Workload(deepfm.DeepFM(), _click_loss, (_tokens(batch, len(deepfm.ROWS)), torch.zeros(batch)))


def deep_speech_2(batch: int = 32, steps: int = 50) -> Workload:
    """Deep Speech 2 (5 bidirectional GRU layers of 800), a letter a frame; a recording of two seconds."""
    spectrogram = torch.zeros(batch, 1, deepspeech2.FREQUENCIES, 2 * steps)
    return Workload(deepspeech2.DeepSpeech2(), deepspeech2.framewise_loss, (spectrogram, _tokens(steps, batch)))


def graph_convolutions(nodes: int = gcn.NODES, edges: int = gcn.NODES + gcn.EDGES) -> Workload:
    """Three graph convolutions over all nodes at once: the class of every node."""
    inputs = (torch.zeros(nodes, gcn.FEATURES), _tokens(edges), _tokens(edges), torch.zeros(edges), _tokens(nodes))
    return Workload(gcn.GCN(), _class_loss, inputs)


def unet(batch: int = 16, size: int = 64) -> Workload:
    """The U-Net of a diffusion model: the noise in an image."""
    image = torch.zeros(batch, 3, size, size)
    return Workload(UNet(), _noise_loss, (image, torch.zeros(batch, CHANNELS[0]), image))


WORKLOADS: dict[str, Callable[[], Workload]] = {
    "bert-base": bert_base,
    "gpt2": gpt2,
    "moe-8e": moe_8e,
    "two-tower": two_tower,
    "dlrm": dlrm,
    "gru-lm": gru_lm,
    "deepfm": deep_fm,
    "deepspeech2": deep_speech_2,
    "gcn": graph_convolutions,
    "unet": unet,
}


def _tokens(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.int64)


def _masked_loss(module: nn.Module, tokens: Tensor, labels: Tensor) -> Tensor:
    loss: Tensor = module(input_ids=tokens, labels=labels).loss
    return loss


def _next_token_loss(module: nn.Module, tokens: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(module(tokens).flatten(0, 1), labels.flatten())


def _in_batch_loss(module: nn.Module, user: Tensor, item: Tensor) -> Tensor:
    """Each user's own item is the class; the other items of the batch are its negatives (Yi et al. 2019)."""
    scores = module(user, item)
    return functional.cross_entropy(scores, torch.arange(scores.shape[0]))


def _click_loss(module: nn.Module, *inputs: Tensor) -> Tensor:
    *features, clicked = inputs
    return functional.binary_cross_entropy_with_logits(module(*features), clicked)


def _own_loss(module: nn.Module, *inputs: Tensor) -> Tensor:
    """The module returns its loss itself."""
    loss: Tensor = module(*inputs)
    return loss


def _class_loss(module: nn.Module, *inputs: Tensor) -> Tensor:
    *features, classes = inputs
    return functional.cross_entropy(module(*features), classes)


def _noise_loss(module: nn.Module, *inputs: Tensor) -> Tensor:
    *noisy, noise = inputs
    return functional.mse_loss(module(*noisy), noise)
