"""What a traced step takes from the values of its inputs and buffers, and the check that other inputs give the same.

The ops that lead from inputs and buffers to a size or a number are recorded in the order of the trace, so that writes
in place keep their place among them. They are index arithmetic, small beside the step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree


@dataclass(frozen=True)
class Slot:
    """A tensor in a record, by its number."""

    number: int


@dataclass(frozen=True, eq=False)
class Recorded:
    """An op that ran on known values: its arguments with slots for tensors, and the slots of its outputs.

    `memories` are the numbers of all memories that it reads or writes; `expected` are the shapes of its outputs, or the
    numbers that it returned. `place` is the line of code that needed them; None if the step has taken nothing.
    """

    func: torch._ops.OpOverload
    leaves: tuple[Any, ...]
    structure: pytree.TreeSpec
    outputs: tuple[Slot | None, ...]
    memories: frozenset[int]
    expected: tuple[Any, ...]
    place: str | None


@dataclass(frozen=True, eq=False)
class ValueDependentSizes:
    """The records that lead to sizes and numbers; the slots of arguments, by the number of the trace's argument.

    Parameters and random numbers may lead to those `of_run`, too, so no other call is known to have them.
    """

    records: tuple[Recorded, ...]
    arguments: Mapping[int, Slot]
    constants: Mapping[Slot, Tensor]
    of_run: bool = False

    @classmethod
    def of(
        cls,
        records: Sequence[Recorded],
        arguments: Mapping[int, Slot],
        constants: Mapping[Slot, Tensor],
        of_run: bool = False,
    ) -> ValueDependentSizes | None:
        """The records that matter; None if the step takes nothing from values."""
        needed: set[int] = set()
        kept = []
        for record in reversed(records):
            if record.place is not None or needed & record.memories:
                needed |= record.memories
                kept.append(record)
        slots = {leaf for record in kept for leaf in record.leaves if isinstance(leaf, Slot)}
        return (
            cls(
                tuple(reversed(kept)),
                {number: slot for number, slot in arguments.items() if slot in slots},
                {slot: tensor for slot, tensor in constants.items() if slot in slots},
                of_run,
            )
            if kept
            else None
        )

    def check_repeatable(self) -> None:
        """Raises ValueError if other calls need not have these sizes."""
        if self.of_run:
            place = next(record.place for record in self.records if record.place is not None)
            raise ValueError(
                f'step: was captured with sizes="run", so another call may need other sizes{place}; it can be planned, '
                'not run as it is placed; sizes="example" allows that where inputs alone tell the sizes'
            )

    def check(self, arguments: Mapping[int, Tensor]) -> None:
        """Raises ValueError if the values of arguments give another size or number than the example's."""
        values = dict(self.constants)
        values |= {slot: arguments[number].detach().to("cpu", copy=True) for number, slot in self.arguments.items()}
        for record in self.records:
            leaves = [values[leaf] if isinstance(leaf, Slot) else leaf for leaf in record.leaves]
            results = pytree.tree_leaves(called(record.func, leaves, record.structure))
            if record.place is not None:
                _check(record, results)
            pairs = zip(record.outputs, results, strict=True)
            values.update({slot: result for slot, result in pairs if slot is not None})


def called(func: torch._ops.OpOverload, leaves: Sequence[Any], structure: pytree.TreeSpec) -> Any:
    """The result of an op on this host."""
    on_host = [torch.device("cpu") if isinstance(leaf, torch.device) else leaf for leaf in leaves]
    args, kwargs = pytree.tree_unflatten(on_host, structure)
    with torch.no_grad():
        return func(*args, **kwargs)


def _check(record: Recorded, results: Sequence[Any]) -> None:
    for result, expected in zip(results, record.expected, strict=True):
        value = tuple(result.shape) if isinstance(result, Tensor) else result
        if value != expected and not (value != value and expected != expected):
            words = [list(each) if isinstance(each, tuple) else each for each in (value, expected)]
            raise ValueError(
                f"inputs: give {words[0]} for {record.func._schema.name.removeprefix('aten::')}{record.place}, and the "
                f"step was placed with {words[1]}, as its example has it; place it anew with such inputs"
            )
