"""The first PyTorch workloads of the corpus: what is trained, at which size, on inputs of which shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from datasets.build import deepfm, deepspeech2, gcn, gru, mixture_of_experts
from datasets.build import dlrm as dlrm_model
from datasets.build import gpt2 as gpt2_model
from datasets.build import two_tower as two_tower_model
from datasets.build import unet as unet_model
from datasets.build.losses import binary_loss, class_loss, own_loss, squared_loss, token_loss
from datasets.build.torch_workload import Workload
from gnnplace.frontends.torch.step import TorchStep

if TYPE_CHECKING:
    from transformers import BertConfig


def bert_base(batch: int = 32, length: int = 128, settings: BertConfig | None = None) -> TorchStep:
    """BERT base (12 layers, width 768, 110 M parameters) as a masked language model, dropout 0.1; Devlin et al. 2019."""
    from transformers import BertConfig, BertForMaskedLM

    settings = settings or BertConfig(attn_implementation="eager")
    return TorchStep(BertForMaskedLM(settings).train(), _masked_loss, _pair(settings.vocab_size, batch, length))


def gpt2(batch: int = 4, length: int = 1024, sizes: gpt2_model.Sizes = gpt2_model.FULL) -> TorchStep:
    """GPT-2 (12 layers, width 768, 124 M parameters) predicting the next token, dropout 0.1."""
    return TorchStep(gpt2_model.GPT2(sizes), token_loss, _pair(sizes.vocabulary, batch, length))


def moe_8e(batch: int = 8, length: int = 512, sizes: mixture_of_experts.Sizes = mixture_of_experts.FULL) -> TorchStep:
    """Six transformer layers of width 1024 with eight experts each (462 M parameters), predicting the next token."""
    return TorchStep(mixture_of_experts.MixtureOfExperts(sizes), token_loss, _pair(sizes.vocabulary, batch, length))


def two_tower(batch: int = 4096, sizes: two_tower_model.Sizes = two_tower_model.FULL) -> TorchStep:
    """A retrieval recommender: user and item towers, softmax over the items of the batch."""
    user, item = (_ids(sizes.rows, batch, features) for features in sizes.num_features)
    return TorchStep(two_tower_model.TwoTower(sizes), _in_batch_loss, (user, item))


def dlrm(batch: int = 2048, sizes: dlrm_model.Sizes = dlrm_model.FULL) -> TorchStep:
    """DLRM on Criteo Kaggle (26 tables of width 64): will this advertisement be clicked? Plain SGD, sparse for the tables."""
    inputs = (torch.rand(batch, dlrm_model.NUM_DENSE), columns(sizes.rows, batch), clicks(batch))
    return TorchStep(dlrm_model.DLRM(sizes), binary_loss, inputs, "sgd")


def gru_lm(batch: int = 64, steps: int = 35, sizes: gru.Sizes = gru.FULL) -> TorchStep:
    """A language model of three GRU layers of 1,024 (39 M parameters), unrolled cell by cell."""
    return TorchStep(gru.LanguageModel(sizes), own_loss, _pair(sizes.vocabulary, steps, batch))


def deep_fm(batch: int = 4096) -> TorchStep:
    """DeepFM on Criteo (39 fields of width 16): will this advertisement be clicked?"""
    return TorchStep(deepfm.DeepFM(), binary_loss, (columns(deepfm.ROWS, batch), clicks(batch)))


def deep_speech_2(batch: int = 32, steps: int = 50, sizes: deepspeech2.Sizes = deepspeech2.FULL) -> TorchStep:
    """Deep Speech 2 (5 bidirectional GRU layers of 800), a letter a frame; a recording of two seconds."""
    spectrogram = torch.rand(batch, 1, sizes.frequencies, 2 * steps)
    labels = _ids(deepspeech2.CLASSES, steps, batch)
    return TorchStep(deepspeech2.DeepSpeech2(sizes), deepspeech2.framewise_loss, (spectrogram, labels))


def graph_convolutions(sizes: gcn.Sizes = gcn.FULL) -> TorchStep:
    """Three graph convolutions over all nodes at once: the class of every node."""
    edges, features = sizes.nodes + sizes.edges, torch.rand(sizes.nodes, sizes.features)
    inputs = (features, *_pair(sizes.nodes, edges), torch.rand(edges) / 10, _ids(sizes.classes, sizes.nodes))
    return TorchStep(gcn.GCN(sizes), class_loss, inputs)


def unet(batch: int = 16, size: int = 64, sizes: unet_model.Sizes = unet_model.FULL) -> TorchStep:
    """The U-Net of a diffusion model: the noise in an image."""
    image, noise = torch.rand(2, batch, 3, size, size).unbind()
    return TorchStep(unet_model.UNet(sizes), squared_loss, (image, torch.rand(batch, sizes.channels[0]), noise))


WORKLOADS: dict[str, Workload] = {
    "bert-base": Workload(
        bert_base, "bert", "transformer",
        "transformers BertForMaskedLM, default configuration, eager attention; batch 32, length 128; Adam",
    ),
    "gpt2": Workload(
        gpt2, "gpt", "transformer",
        "datasets/build/gpt2.py, 124 M parameters; batch 4, length 1024; Adam",
    ),
    "moe-8e": Workload(
        moe_8e, "moe", "transformer",
        "datasets/build/mixture_of_experts.py, 6 layers of 8 experts; batch 8, length 512; Adam",
    ),
    "two-tower": Workload(
        two_tower, "two-tower", "recommender",
        "datasets/build/two_tower.py; batch 4096; Adam",
    ),
    "dlrm": Workload(
        dlrm, "dlrm", "recommender",
        "datasets/build/dlrm.py, 26 tables of width 64 with the rows of Criteo Kaggle; batch 2048; SGD, sparse for the tables",
    ),
    "gru-lm": Workload(
        gru_lm, "gru-lm", "recurrent",
        "datasets/build/gru.py, 3 layers of 1024, 35 steps, vocabulary 10000, full softmax at each step; batch 64; Adam",
    ),
    "deepfm": Workload(
        deep_fm, "deepfm", "recommender",
        "datasets/build/deepfm.py, 39 fields of width 16, deep 400-400-400; batch 4096; Adam, dense for the tables",
    ),
    "deepspeech2": Workload(
        deep_speech_2, "deepspeech2", "recurrent",
        "datasets/build/deepspeech2.py, 5 bidirectional GRU layers of 800, 50 steps, cross entropy of frames; batch 32; Adam",
    ),
    "gcn": Workload(
        graph_convolutions, "gcn", "graph",
        "datasets/build/gcn.py, 3 layers of 256 on 100,000 nodes, 1,000,000 edges and self-loops; Adam",
    ),
    "unet": Workload(
        unet, "unet", "diffusion",
        "datasets/build/unet.py, channels 128-256-512, 64 x 64 images; batch 16; Adam",
    ),
}  # fmt: skip


def _ids(below: int, *shape: int) -> Tensor:
    return torch.randint(below, shape)


def _pair(below: int, *shape: int) -> tuple[Tensor, Tensor]:
    return _ids(below, *shape), _ids(below, *shape)


def clicks(batch: int) -> Tensor:
    return _ids(2, batch).float()


def columns(rows: Sequence[int], batch: int) -> Tensor:
    """Ids of several tables, `[batch tables]`."""
    return torch.stack([_ids(below, batch) for below in rows], dim=1)


def _masked_loss(module: nn.Module, tokens: Tensor, labels: Tensor) -> Tensor:
    loss: Tensor = module(input_ids=tokens, labels=labels).loss
    return loss


def _in_batch_loss(module: nn.Module, user: Tensor, item: Tensor) -> Tensor:
    """Each user's own item is the class; the other items of the batch are its negatives (Yi et al. 2019)."""
    scores = module(user, item)
    return functional.cross_entropy(scores, torch.arange(scores.shape[0]))
