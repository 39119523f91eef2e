"""PyTorch workloads of the corpus that only run forward: the networks of the training steps, as they answer requests.

Family and lineage are those of the network's training step, so that no split parts the two.
"""

from __future__ import annotations

from collections.abc import Callable

from datasets.build import torch_models
from datasets.build.torch_workload import Workload
from gnnplace.frontends.torch_step import TorchInference


def bert_base(batch: int = 8, length: int = 128) -> TorchInference:
    """BERT base with its masked-language head; Devlin et al. 2019."""
    step = torch_models.bert_base(batch, length)
    return TorchInference(step.module, {"input_ids": step.inputs[0]})


def gpt2(batch: int = 1, length: int = 1024) -> TorchInference:
    """GPT-2 reads a prompt of full length: the logits of every position."""
    step = torch_models.gpt2(batch, length)
    return TorchInference(step.module, step.inputs[:1])


def moe_8e(batch: int = 1, length: int = 512) -> TorchInference:
    """The mixture of experts reads a prompt."""
    step = torch_models.moe_8e(batch, length)
    return TorchInference(step.module, step.inputs[:1])


def dlrm(batch: int = 128) -> TorchInference:
    """DLRM ranks the candidates of a request."""
    step = torch_models.dlrm(batch)
    return TorchInference(step.module, step.inputs[:-1])


def gru_lm(batch: int = 16, steps: int = 35) -> TorchInference:
    """The GRU language model scores given text: the mean cross entropy of what follows."""
    step = torch_models.gru_lm(batch, steps)
    return TorchInference(step.module, step.inputs)


def unet(batch: int = 2, size: int = 64) -> TorchInference:
    """One step of denoising, with and without guidance."""
    step = torch_models.unet(batch, size)
    return TorchInference(step.module, step.inputs[:-1])


def _inference(training: str, build: Callable[[], TorchInference], source: str) -> Workload:
    """The inference of the network that this training step trains."""
    trained = torch_models.WORKLOADS[training]
    return Workload(build, trained.family, trained.lineage, source, "inference")


WORKLOADS: dict[str, Workload] = {
    "bert-base-inference": _inference(
        "bert-base", bert_base, "transformers BertForMaskedLM, default configuration, eager attention; batch 8, length 128; forward"
    ),
    "gpt2-inference": _inference("gpt2", gpt2, "datasets/build/gpt2.py, 124 M parameters; batch 1, length 1024; forward"),
    "moe-8e-inference": _inference(
        "moe-8e", moe_8e, "datasets/build/mixture_of_experts.py, 6 layers of 8 experts; batch 1, length 512; forward"
    ),
    "dlrm-inference": _inference("dlrm", dlrm, "datasets/build/dlrm.py, 26 tables of width 64; batch 128; forward"),
    "gru-lm-inference": _inference(
        "gru-lm",
        gru_lm,
        "datasets/build/gru.py, 3 layers of 1024, 35 steps, vocabulary 10000, full softmax at each step; batch 16; forward",
    ),
    "unet-inference": _inference("unet", unet, "datasets/build/unet.py, channels 128-256-512, 64 x 64 images; batch 2; forward"),
}
