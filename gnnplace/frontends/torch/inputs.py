"""Example inputs of a module or a loss, positional or named, in nested containers.

The tensors in them are arguments of a trace. A placed step is called with others that are
alike in structure, shapes and types (`Given`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from gnnplace.frontends.torch.refusals import check_strided

Inputs = Sequence[Any] | Mapping[str, Any]


class ExampleInputs:
    """Inputs as `call` takes them: a sequence of positional arguments or a mapping of named ones. `tensors` are those
    in them, in order.

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


class Given:
    """Reads the tensors out of a call's arguments, in the order of the trace.

    `example` is a sequence of positional ones, or a mapping.
    """

    def __init__(self, example: Sequence[Any] | Mapping[str, Any]) -> None:
        self._keys = tuple(example) if isinstance(example, Mapping) else None
        self._leaves, self._structure = pytree.tree_flatten_with_path(
            dict(example) if isinstance(example, Mapping) else tuple(example)
        )

    def tensors(self, positional: tuple[Any, ...], named: Mapping[str, Any]) -> list[Tensor]:
        """The tensors of a call. Raises ValueError for what the trace isn't of."""
        leaves, structure = pytree.tree_flatten(self._arguments(positional, named))
        if structure != self._structure:
            raise ValueError(f"inputs: are {_words(structure)}, and the step was placed with {_words(self._structure)}")
        for (path, example), leaf in zip(self._leaves, leaves, strict=True):
            if reason := _difference(example, leaf):
                raise ValueError(f"inputs{pytree.keystr(path)}: {reason}")
        return [leaf for leaf in leaves if isinstance(leaf, Tensor)]

    def _arguments(self, positional: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        if self._keys is None:
            if named:
                raise ValueError(
                    f"inputs: {', '.join(named)} by name; the step was placed with {len(self._leaves)} inputs by "
                    "position"
                )
            return positional
        if positional or set(named) != set(self._keys):
            raise ValueError(
                f"inputs: {len(positional)} by position, {', '.join(named) or 'none'} by name; give "
                f"{', '.join(self._keys)}"
            )
        return {key: named[key] for key in self._keys}


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


def _difference(example: Any, leaf: Any) -> str | None:
    """Why a leaf can't stand for the example's, or None."""
    if not isinstance(example, Tensor):
        same = type(leaf) is type(example) and leaf == example
        return (
            None if same else f"is {leaf!r}, and the step was placed with {example!r}; such values are part of the step"
        )
    if not isinstance(leaf, Tensor):
        return f"a {type(leaf).__name__} is no tensor"
    if leaf.shape != example.shape or leaf.dtype != example.dtype:
        whole = (
            "; a placed step has fixed shapes (of a data loader: drop_last=True)" if leaf.shape != example.shape else ""
        )
        return f"is {_type(leaf)}, and the step was placed with {_type(example)}{whole}"
    if leaf.requires_grad and torch.is_grad_enabled():
        return "requires a gradient, and a placed step has gradients of parameters alone; detach it"
    return None


def _type(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _words(structure: pytree.TreeSpec) -> str:
    return str(pytree.tree_unflatten(["*"] * structure.num_leaves, structure)).replace("'*'", "*")
