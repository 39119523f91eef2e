"""PyTorch workloads that turn speech into text: training steps with cross entropy of tokens or of frames."""

from __future__ import annotations

from functools import partial

import torch

from datasets.build import conformer, wav2vec2, whisper
from datasets.build.losses import token_loss
from datasets.build.torch_workload import Workload
from gnnplace.frontends.torch.step import TorchStep


def whisper_step(sizes: whisper.Sizes, batch: int = 16) -> TorchStep:
    """Whisper writes down segments of 30 s."""
    tokens, labels = torch.randint(sizes.vocabulary, (2, batch, sizes.length)).unbind()
    return TorchStep(whisper.Whisper(sizes), token_loss, (torch.rand(batch, whisper.MELS, 2 * sizes.positions), tokens, labels))


def wav2vec2_step(batch: int = 5, samples: int = 250_000) -> TorchStep:
    """wav2vec 2.0 names the letter of each frame of crops of 15.6 s, some of them hidden; a GPU's part of the batch of pre-training."""
    frames = wav2vec2.frames(samples)
    inputs = (torch.rand(batch, samples), torch.rand(batch, frames) < 0.5, torch.randint(wav2vec2.BASE.classes, (batch, frames)))
    return TorchStep(wav2vec2.Wav2Vec2(), token_loss, inputs)


def conformer_step(sizes: conformer.Sizes, batch: int = 16, steps: int = 1500) -> TorchStep:
    """A Conformer names the word piece of each frame; recordings of 15 s, 100 steps a second."""
    labels = torch.randint(conformer.CLASSES, (batch, conformer.frames(steps)))
    return TorchStep(conformer.Conformer(sizes), token_loss, (torch.rand(batch, conformer.MELS, steps), labels))


WORKLOADS: dict[str, Workload] = {
    "whisper-base": Workload(
        partial(whisper_step, whisper.BASE), "whisper", "transformer",
        "datasets/build/whisper.py, 6 + 6 layers, 72 M parameters, 30 s and 448 tokens; batch 16; Adam",
    ),
    "whisper-small": Workload(
        partial(whisper_step, whisper.SMALL), "whisper", "transformer",
        "datasets/build/whisper.py, 12 + 12 layers, 241 M parameters, 30 s and 448 tokens; batch 16; Adam",
    ),
    "wav2vec2-base": Workload(
        wav2vec2_step, "wav2vec2", "transformer",
        "datasets/build/wav2vec2.py, 12 layers, 94.4 M parameters, 15.6 s, cross entropy of frames; batch 5; Adam",
    ),
    "conformer-m": Workload(
        partial(conformer_step, conformer.MEDIUM), "conformer", "transformer",
        "datasets/build/conformer.py, 16 layers of 256, 27.5 M parameters, 15 s, cross entropy of frames; batch 16; Adam",
    ),
    "conformer-l": Workload(
        partial(conformer_step, conformer.LARGE), "conformer", "transformer",
        "datasets/build/conformer.py, 17 layers of 512, 115.3 M parameters, 15 s, cross entropy of frames; batch 16; Adam",
    ),
}  # fmt: skip
