"""The tensors in what a module returns, which may nest sequences, mappings and dataclasses; and the same with other tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor


def tensors_in(value: object) -> Iterator[Tensor]:
    """The tensors in a module's output, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from tensors_in(tuple(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)
    elif is_dataclass(value):
        yield from tensors_in([getattr(value, field.name) for field in fields(value)])


def with_tensors(value: Any, tensors: Iterator[Tensor]) -> Any:
    """A copy of an output in which the next of other tensors stands for each of its own.

    >>> import torch
    >>> with_tensors({"logits": torch.zeros(1), "rest": [None]}, iter([torch.ones(1)]))
    {'logits': tensor([1.]), 'rest': [None]}
    """
    if isinstance(value, Tensor):
        return next(tensors)
    if isinstance(value, Mapping):
        items = {key: with_tensors(item, tensors) for key, item in value.items()}
        return type(value)(**items) if is_dataclass(value) else type(value)(items)  # type: ignore[call-arg]
    if isinstance(value, list | tuple):
        parts = [with_tensors(item, tensors) for item in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if is_dataclass(value) and not isinstance(value, type):
        made = copy(value)
        for field in fields(value):
            object.__setattr__(made, field.name, with_tensors(getattr(value, field.name), tensors))
        return made
    return value
