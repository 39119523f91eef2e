"""Rebuilds the PyTorch graphs of the corpus: `python -m datasets.build_torch [NAME ...]`, all of them without a name.

The same versions of torch and transformers give the same graph, checksum included.
"""

from __future__ import annotations

import sys

from datasets.build.torch_models import WORKLOADS, traced
from datasets.build.torch_models import workload as workload
from gnnplace.corpus import manifest

FAMILIES = {"bert-base": "bert", "gpt2": "gpt", "moe-8e": "moe"}  # where it is not the name
LINEAGES = {
    "bert": "transformer", "gpt": "transformer", "moe": "transformer", "two-tower": "recommender",
    "dlrm": "recommender", "gru-lm": "recurrent", "deepfm": "recommender", "deepspeech2": "recurrent", "gcn": "graph",
    "unet": "convolutional",
}  # fmt: skip
SOURCES = {
    "bert-base": "transformers BertForMaskedLM, default configuration, eager attention; batch 32, length 128; Adam",
    "gpt2": "datasets/build/gpt2.py, 124 M parameters; batch 4, length 1024; Adam",
    "moe-8e": "datasets/build/mixture_of_experts.py, 6 layers of 8 experts; batch 8, length 512; Adam",
    "two-tower": "datasets/build/two_tower.py; batch 4096; Adam",
    "dlrm": "datasets/build/dlrm.py, 26 tables of width 64 with the rows of Criteo Kaggle; batch 2048; SGD, sparse for the tables",
    "gru-lm": "datasets/build/gru.py, 3 layers of 1024, 35 steps, vocabulary 10000, full softmax at each step; batch 64; Adam",
    "deepfm": "datasets/build/deepfm.py, 39 fields of width 16, deep 400-400-400; batch 4096; Adam, dense for the tables",
    "deepspeech2": "datasets/build/deepspeech2.py, 5 bidirectional GRU layers of 800, 50 steps, cross entropy of frames; batch 32; Adam",
    "gcn": "datasets/build/gcn.py, 3 layers of 256 on 100,000 nodes, 1,000,000 edges and self-loops; Adam",
    "unet": "datasets/build/unet.py, channels 128-256-512, 64 x 64 images; batch 16; Adam",
}
HELD_OUT = frozenset(("two-tower", "dlrm", "gru-lm", "deepfm", "deepspeech2", "gcn", "unet"))


def main(names: list[str]) -> None:
    """Builds and registers the workloads of these names."""
    for name in names or list(WORKLOADS):
        step, family = traced(name), FAMILIES.get(name, name)
        entry = manifest.add(
            step.graph, family=family, lineage=LINEAGES[family], split="test" if name in HELD_OUT else "train", mode="training",
            source=SOURCES[name], licence="Apache-2.0", builder=f"python -m datasets.build_torch {name}",
        )  # fmt: skip
        uncounted = f"; costed by bytes alone: {dict(step.uncounted)}" if step.uncounted else ""
        print(f"{name}: {entry.ops} ops, {entry.edges} edges, sha256 {entry.sha256}{uncounted}")


if __name__ == "__main__":
    main(sys.argv[1:])
