"""What a placed step is called with: inputs of the structure, shapes and types of those that it was traced with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree


class Given:
    """Reads the tensors out of a call's arguments, in the order of the trace. `example` is a sequence of positional ones, or a mapping."""

    def __init__(self, example: Sequence[Any] | Mapping[str, Any]) -> None:
        self._keys = tuple(example) if isinstance(example, Mapping) else None
        self._leaves, self._structure = pytree.tree_flatten_with_path(dict(example) if isinstance(example, Mapping) else tuple(example))

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
                raise ValueError(f"inputs: {', '.join(named)} by name; the step was placed with {len(self._leaves)} inputs by position")
            return positional
        if positional or set(named) != set(self._keys):
            raise ValueError(f"inputs: {len(positional)} by position, {', '.join(named) or 'none'} by name; give {', '.join(self._keys)}")
        return {key: named[key] for key in self._keys}


def _difference(example: Any, leaf: Any) -> str | None:
    """Why a leaf can't stand for the example's, or None."""
    if not isinstance(example, Tensor):
        same = type(leaf) is type(example) and leaf == example
        return None if same else f"is {leaf!r}, and the step was placed with {example!r}; such values are part of the step"
    if not isinstance(leaf, Tensor):
        return f"a {type(leaf).__name__} is no tensor"
    if leaf.shape != example.shape or leaf.dtype != example.dtype:
        whole = "; a placed step has fixed shapes (of a data loader: drop_last=True)" if leaf.shape != example.shape else ""
        return f"is {_type(leaf)}, and the step was placed with {_type(example)}{whole}"
    if leaf.requires_grad and torch.is_grad_enabled():
        return "requires a gradient, and a placed step has gradients of parameters alone; detach it"
    return None


def _type(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _words(structure: pytree.TreeSpec) -> str:
    return str(pytree.tree_unflatten(["*"] * structure.num_leaves, structure)).replace("'*'", "*")
