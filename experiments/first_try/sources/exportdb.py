"""ExportDB: what torch.export can and can't capture, as PyTorch documents it."""

from __future__ import annotations

from torch._export.db.examples import all_examples

from experiments.first_try.cases import Kind, TorchCase
from experiments.first_try.sources.calls import named

KINDS = ("inference",)


def names() -> list[str]:
    """All examples."""
    return sorted(all_examples())


def case(name: str, kind: Kind) -> TorchCase:
    """An example with its inputs."""
    example = all_examples()[name]
    return TorchCase(*named(example.model, example.example_args, example.example_kwargs))
