"""Example inputs of a module or a loss: positional or named, in nested containers; the tensors in them are arguments of a trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from gnnplace.frontends.torch.refusals import check_strided

Inputs = Sequence[Any] | Mapping[str, Any]


class ExampleInputs:
    """Inputs as `call` takes them: a sequence of positional arguments or a mapping of named ones. `tensors` are those in them, in order.

    Raises ValueError for a sparse tensor.

    >>> ExampleInputs({"x": torch.zeros(2), "scale": 3}).call([torch.ones(2)])
    ((), {'x': tensor([1., 1.]), 'scale': 3})
    """

    def __init__(self, inputs: Inputs) -> None:
        leaves, self._structure = pytree.tree_flatten(dict(inputs) if isinstance(inputs, Mapping) else tuple(inputs))
        self._leaves = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        self._places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        self.tensors: tuple[Tensor, ...] = tuple(leaves[place] for place in self._places)
        for number, tensor in enumerate(self.tensors):
            check_strided(f"inputs: {number}", tensor)

    def call(self, tensors: Sequence[Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and the named arguments, with these tensors in place of the examples."""
        leaves = list(self._leaves)
        for place, tensor in zip(self._places, tensors, strict=True):
            leaves[place] = tensor
        inputs = pytree.tree_unflatten(leaves, self._structure)
        return ((), inputs) if isinstance(inputs, dict) else (inputs, {})


@contextmanager
def uncompiled() -> Iterator[None]:
    """Within, what `torch.compile` made runs as it was written, so that it can be traced."""
    import torch._dynamo  # here: it takes a second, and a trace has imported it

    with torch._dynamo.config.patch(error_on_nested_fx_trace=False), torch.compiler.set_stance("force_eager"):
        yield


def as_written(path: str) -> str:
    """The path of a module, parameter or buffer without what `torch.compile` put between.

    >>> as_written("layers.0._orig_mod.weight")
    'layers.0.weight'
    """
    return ".".join(part for part in path.split(".") if part != "_orig_mod")
