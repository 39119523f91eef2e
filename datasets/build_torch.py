"""Rebuilds the PyTorch graphs of the corpus: `python -m datasets.build_torch [NAME ...]`, all of them without a name.

The same versions of torch and transformers give the same graph, checksum included.
"""

from __future__ import annotations

import sys

from datasets.build.torch_models import WORKLOADS, traced
from gnnplace.corpus import manifest

FAMILIES = {"bert-base": "bert", "gpt2": "gpt", "moe-8e": "moe", "two-tower": "two-tower"}
LINEAGES = {"bert": "transformer", "gpt": "transformer", "moe": "transformer", "two-tower": "recommender"}
SOURCES = {
    "bert-base": "transformers BertForMaskedLM, default configuration, eager attention; batch 32, length 128; Adam",
    "gpt2": "datasets/build/gpt2.py, 124 M parameters; batch 4, length 1024; Adam",
    "moe-8e": "datasets/build/mixture_of_experts.py, 6 layers of 8 experts; batch 8, length 512; Adam",
    "two-tower": "datasets/build/two_tower.py; batch 4096; Adam",
}
HELD_OUT = {"two-tower": "test"}


def main(names: list[str]) -> None:
    """Builds and registers the workloads of these names."""
    for name in names or list(WORKLOADS):
        step = traced(name)
        entry = manifest.add(
            step.graph, family=FAMILIES[name], lineage=LINEAGES[FAMILIES[name]], split=HELD_OUT.get(name, "train"), mode="training",
            source=SOURCES[name], licence="Apache-2.0", builder=f"python -m datasets.build_torch {name}",
        )  # fmt: skip
        uncounted = f"; costed by bytes alone: {dict(step.uncounted)}" if step.uncounted else ""
        print(f"{name}: {entry.ops} ops, {entry.edges} edges, sha256 {entry.sha256}{uncounted}")


if __name__ == "__main__":
    main(sys.argv[1:])
