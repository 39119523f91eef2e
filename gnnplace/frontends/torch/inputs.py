"""Example inputs of a module or a loss, positional or named, in nested containers.

Their tensors are arguments of a trace. A placed step is called with other tensors in the same structure, with the same
shapes and dtypes (`CallArguments`). The batch sizes of a packed sequence are numbers of the step, as all values are
that are no tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree as pytree

from gnnplace.frontends.torch.refusals import check_strided

Inputs = Sequence[Any] | Mapping[str, Any]


class _Packed(NamedTuple):
    """A packed sequence with numbers for its batch sizes."""

    data: Tensor
    batch_sizes: tuple[int, ...]
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class ExampleInputs:
    """Example inputs, a sequence of positional arguments or a mapping of named ones; `tensors` are the tensors in them.

    Raises ValueError for a sparse tensor.

    >>> ExampleInputs({"x": torch.zeros(2), "scale": 3}).call([torch.ones(2)])
    ((), {'x': tensor([1., 1.]), 'scale': 3})
    """

    def __init__(self, inputs: Inputs) -> None:
        leaves, self._structure = pytree.tree_flatten(_with_numbers(inputs))
        self._leaves = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        self._places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        self.tensors: tuple[Tensor, ...] = tuple(leaves[place] for place in self._places)
        for number, tensor in enumerate(self.tensors):
            check_strided(f"inputs: {number}", tensor)

    def call(self, tensors: Sequence[Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and the named arguments, with `tensors` in place of the example tensors."""
        leaves = list(self._leaves)
        for place, tensor in zip(self._places, tensors, strict=True):
            leaves[place] = tensor
        inputs = _with_sequences(pytree.tree_unflatten(leaves, self._structure))
        return ((), inputs) if isinstance(inputs, dict) else (inputs, {})


class CallArguments:
    """Extracts the tensors from the arguments of a call, in the order of the trace.

    `example` is a sequence of positional arguments or a mapping of named ones. If the step is `differentiable`, those
    that require a gradient in the example may require one.
    """

    def __init__(self, example: Sequence[Any] | Mapping[str, Any], differentiable: bool = False) -> None:
        self._differentiable = differentiable
        self._keys = tuple(example) if isinstance(example, Mapping) else None
        self._leaves, self._structure = pytree.tree_flatten_with_path(_with_numbers(example))

    def tensors(self, positional: tuple[Any, ...], named: Mapping[str, Any]) -> list[Tensor]:
        """The tensors of a call. Raises ValueError for arguments that differ from those of the trace."""
        leaves, structure = pytree.tree_flatten(_with_numbers(self._arguments(positional, named)))
        if structure != self._structure:
            raise ValueError(f"inputs: are {_words(structure)}, and the step was placed with {_words(self._structure)}")
        for (path, example), leaf in zip(self._leaves, leaves, strict=True):
            if reason := _difference(example, leaf, self._differentiable):
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


def _with_numbers(inputs: Inputs) -> Any:
    """The inputs as a tuple or a dict, with numbers for the batch sizes of packed sequences."""

    def plain(value: Any) -> Any:
        if not isinstance(value, PackedSequence):
            return value
        return _Packed(value.data, tuple(value.batch_sizes.tolist()), value.sorted_indices, value.unsorted_indices)

    plain_inputs = dict(inputs) if isinstance(inputs, Mapping) else tuple(inputs)
    return pytree.tree_map(plain, plain_inputs, is_leaf=lambda value: isinstance(value, PackedSequence))


def _with_sequences(inputs: Any) -> Any:
    """Inverts `_with_numbers`."""

    def sequence(value: Any) -> Any:
        if not isinstance(value, _Packed):
            return value
        return PackedSequence(value.data, torch.tensor(value.batch_sizes), value.sorted_indices, value.unsorted_indices)

    return pytree.tree_map(sequence, inputs, is_leaf=lambda value: isinstance(value, _Packed))


@contextmanager
def uncompiled() -> Iterator[None]:
    """A context in which compiled modules (`torch.compile`) run uncompiled, so that they can be traced."""
    import torch._dynamo  # imported late, since it takes a second; tracing imports it anyway

    with torch._dynamo.config.patch(error_on_nested_fx_trace=False), torch.compiler.set_stance("force_eager"):
        yield


def as_written(path: str) -> str:
    """The path of a module, parameter or buffer without the part that `torch.compile` inserts.

    >>> as_written("layers.0._orig_mod.weight")
    'layers.0.weight'
    """
    return ".".join(part for part in path.split(".") if part != "_orig_mod")


def _difference(example: Any, leaf: Any, differentiable: bool) -> str | None:
    """Why a leaf can't replace that of the example; None if it can."""
    if not isinstance(example, Tensor):
        if type(leaf) is type(example) and leaf == example:
            return None
        return f"is {leaf!r}, and the step was placed with {example!r}; such values are part of the step"
    if not isinstance(leaf, Tensor):
        return f"a {type(leaf).__name__} is no tensor"
    if leaf.shape != example.shape or leaf.dtype != example.dtype:
        advice = (
            "; a placed step has fixed shapes (of a data loader: drop_last=True)" if leaf.shape != example.shape else ""
        )
        return f"is {_type(leaf)}, and the step was placed with {_type(example)}{advice}"
    if leaf.requires_grad and torch.is_grad_enabled() and not (differentiable and example.requires_grad):
        advice = "; detach it, or place the step with an input that requires one" if differentiable else "; detach it"
        return f"requires a gradient, and the step was placed without{advice}"
    return None


def _type(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _words(structure: pytree.TreeSpec) -> str:
    return str(pytree.tree_unflatten(["*"] * structure.num_leaves, structure)).replace("'*'", "*")
