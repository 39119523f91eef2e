"""Fake tensors that carry values where these are known, so that sizes which depend on values can be traced.

A tensor is known if it is computed from Python numbers or from tensors that the module holds beside its parameters and
buffers. With `sizes="example"` example inputs and buffers are known, too, and what is unknown counts as finite: a trace
does not enter `if not x.isfinite().all()`. With `sizes="run"` parameters and random numbers are known as well, so that
the whole step is computed while it is traced.

Ops on known tensors run twice, on the fake tensors and on their values. An op that needs a value (`item`, `nonzero`, a
mask as an index) gets the known one. If that depends on inputs or buffers, it becomes part of the step:
`ValueDependentSizes` recomputes it for other inputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, no_type_check

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakIdKeyDictionary

from gnnplace.frontends.torch.buffers import storage_of
from gnnplace.frontends.torch.calls import Call
from gnnplace.frontends.torch.fakes import dispatched
from gnnplace.frontends.torch.finite_numbers import FiniteNumbers
from gnnplace.frontends.torch.flat_step import Argument
from gnnplace.frontends.torch.refusals import NEEDS_VALUES, place_of_caller
from gnnplace.frontends.torch.value_sizes import Recorded, Slot, ValueDependentSizes, called

Sizes = Literal["example", "run"] | None
SEED = 0  # of the random numbers of a run
MOST_ELEMENTS = 2**16  # of a known tensor that depends on no input
_aten = torch.ops.aten


@dataclass(eq=False)
class _Memory:
    """The memory of known tensors. It is lost if an op writes unknown values to it."""

    number: int
    of_inputs: bool
    is_lost: bool = False


@dataclass(frozen=True, eq=False)
class _Twin:
    value: Tensor
    slot: Slot
    memory: _Memory


@dataclass(frozen=True, eq=False)
class _TwinCall:
    """A call of an op, with what is known of each of its tensors."""

    func: torch._ops.OpOverload
    leaves: tuple[Any, ...]
    twins: tuple[_Twin | None, ...]
    structure: pytree.TreeSpec

    @property
    def is_known(self) -> bool:
        pairs = zip(self.leaves, self.twins, strict=True)
        return all(twin is not None for leaf, twin in pairs if isinstance(leaf, Tensor))

    @property
    def is_determined(self) -> bool:
        """Whether the op's result depends on nothing but its arguments."""
        return torch.Tag.nondeterministic_seeded not in self.func.tags

    @property
    def memories(self) -> list[_Memory]:
        return [twin.memory for twin in self.twins if twin is not None]

    @property
    def of_inputs(self) -> bool:
        return any(memory.of_inputs for memory in self.memories)

    def memory_of(self, value: Tensor) -> _Memory | None:
        """The memory of an argument that a value shares."""
        shared = (each.memory for each in self.twins if each and storage_of(each.value) == storage_of(value))
        return next(shared, None)

    def run(self) -> Any:
        """The op's result on the values, on this host."""
        pairs = zip(self.leaves, self.twins, strict=True)
        leaves = [leaf if twin is None else twin.value for leaf, twin in pairs]
        return called(self.func, leaves, self.structure)

    def with_slots(self) -> tuple[Any, ...]:
        """The leaves of the arguments, with slots for tensors."""
        pairs = zip(self.leaves, self.twins, strict=True)
        return tuple(leaf if twin is None else twin.slot for leaf, twin in pairs)


class KnownValues:
    """A mode of fake tensors, some of which are known. `sizes` tells whether values of inputs and buffers are.

    Tensors may be on any device; values are on this host. `fallbacks`: an op that has no fake form is computed, on
    zeros. The mode has one of PyTorch's and is none by inheritance, since PyTorch finds the rules of higher-order
    operators by the mode's exact type.
    """

    def __init__(self, sizes: Sizes = None, fallbacks: bool = True) -> None:
        self._mode = FakeTensorMode(allow_non_fake_inputs=True, allow_fallback_kernels=fallbacks)
        self._fake_result = partial(dispatched, self._mode, self._mode.dispatch)
        self._mode.dispatch = self.dispatch  # type: ignore[method-assign]
        self._is_example, self._is_run = sizes is not None, sizes == "run"
        self._twins: Any = WeakIdKeyDictionary()
        self._outside: dict[int, tuple[Tensor, _Twin]] = {}  # tensors that are not fake, by id
        self._arguments: dict[int, Slot] = {}
        self._random_states: list[Tensor] = []  # those of PyTorch at each entry; the first comes back
        self._finite, self._assumed = FiniteNumbers(), dict[Slot, Tensor]()
        self._records: list[Recorded] = []
        self._count = 0
        self._is_part = False

    def __enter__(self) -> KnownValues:
        if self._is_run:
            self._random_states.append(torch.get_rng_state())
            if len(self._random_states) == 1:
                torch.manual_seed(SEED)
        self._mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._mode.__exit__(*error)
        if self._is_run:
            state = self._random_states.pop()
            if not self._random_states:
                torch.set_rng_state(state)

    def hold(self, tensors: Sequence[Tensor], values: Sequence[Tensor], arguments: Sequence[Argument]) -> None:
        """Notes the values of the fake tensors that are the arguments of a trace and have a known role."""
        for number, (tensor, value, argument) in enumerate(zip(tensors, values, arguments, strict=True)):
            self._twins.pop(tensor, None)
            has_values = not value.is_meta and not isinstance(value, FakeTensor)
            if has_values and argument.role in self._roles:
                with unset_fake_temporarily():
                    copy = value.detach().to("cpu", copy=True)
                memory = _Memory(self._number(), of_inputs=True)
                twin = self._twins[tensor] = _Twin(copy, Slot(self._number()), memory)
                self._arguments[number] = twin.slot

    @property
    def _roles(self) -> Sequence[str]:
        """The roles of the arguments whose values are known."""
        return ("input", "buffer", "parameter") if self._is_run else ("input", "buffer") if self._is_example else ()

    def sizes(self) -> ValueDependentSizes | None:
        """What the trace took from the values of its arguments; None if nothing."""
        outside = {twin.slot: value for value, twin in self._outside.values()}
        return ValueDependentSizes.of(self._records, self._arguments, outside | self._assumed, self._is_run)

    @no_type_check
    def dispatch(self, func, types, args=(), kwargs=None):
        """Runs an op on fake tensors and, if all of its tensors are known, on their values."""
        if not isinstance(func, torch._ops.OpOverload):
            return self._fake_result(func, types, args, kwargs or {})
        is_part, self._is_part = self._is_part, True
        try:
            return self._run(func, types, args, kwargs or {}, is_part)
        finally:
            self._is_part = is_part

    def _run(self, func: torch._ops.OpOverload, types: Any, args: Any, kwargs: Any, is_part: bool) -> Any:
        """The result of an op; one that is part of another op is not recorded, unless it needs values."""
        call = self._call(func, args, kwargs)
        try:
            result = self._fake_result(func, types, args, kwargs)
        except NEEDS_VALUES:
            if call.is_known:
                return self._needed(call)
            if func in (_aten.masked_select.default, _aten._ctc_loss.default):
                return self._of_size(func, args)
            if not any(self._is_outside(leaf) for leaf in call.leaves):
                raise
            # torch makes a fake tensor of one outside within the op, where its value is not known
            args, kwargs = pytree.tree_map_only(self._is_outside, self._inside, (args, kwargs))
            result = self._fake_result(func, types, args, kwargs)
        if is_part:
            return result
        if self._is_example and not self._is_run and not call.is_known and self._assume(call, args, result):
            return result
        is_determined = self._is_run or call.is_determined
        if not (call.is_known and is_determined and self._is_kept(call, result) and self._follow(call, result)):
            self._lose(func, args, kwargs)
        return result

    def _follow(self, call: _TwinCall, result: Any) -> bool:
        """Runs an op on values and notes those of its result. False if the op fails on them, as on another device."""
        try:
            values = call.run()
        except Exception:  # a kernel may raise anything
            return False
        self._note(call, result, values, is_needed=False)
        return True

    def _assume(self, call: _TwinCall, args: Sequence[Any], result: Any) -> bool:
        """Notes the values of a result that asks whether unknown numbers are finite. False if it does not ask that."""
        values = [leaf if twin is None else twin.value for leaf, twin in zip(call.leaves, call.twins, strict=True)]
        if (answer := self._finite.answer(call.func, args, values, result)) is None:
            return False
        with unset_fake_temporarily():
            value = torch.tensor(answer).expand(result.shape)
        twin = self._twins[result] = _Twin(value, Slot(self._number()), _Memory(self._number(), of_inputs=False))
        self._assumed[twin.slot] = value
        return True

    def _call(self, func: torch._ops.OpOverload, args: Any, kwargs: Any) -> _TwinCall:
        leaves, structure = pytree.tree_flatten((args, kwargs))
        twins = tuple(self._of(leaf) if isinstance(leaf, Tensor) else None for leaf in leaves)
        return _TwinCall(func, tuple(leaves), twins, structure)

    def _needed(self, call: _TwinCall) -> Any:
        """The result of an op that needs values, all of which are known. Raises RuntimeError for several devices."""
        values, fakes = call.run(), [leaf for leaf in call.leaves if isinstance(leaf, FakeTensor)]
        device = FakeTensor._find_common_device(call.func, fakes)[0] if fakes else None
        result = pytree.tree_map_only(Tensor, lambda value: self._fake(value, device), values)
        self._note(call, result, values, is_needed=call.of_inputs)
        return result

    def _note(self, call: _TwinCall, result: Any, values: Any, is_needed: bool) -> None:
        """Notes the values of an op's result; records the op if values of inputs may lead to it."""
        if call.func._schema.is_mutable:
            for memory in call.memories:
                memory.of_inputs |= call.of_inputs
        pairs = list(zip(pytree.tree_leaves(result), pytree.tree_leaves(values), strict=True))
        twins = [self._result(call, fake, value) if isinstance(value, Tensor) else None for fake, value in pairs]
        if self._is_example:
            slots = tuple(None if twin is None else twin.slot for twin in twins)
            memories = (*call.memories, *(twin.memory for twin in twins if twin is not None))
            expected = tuple(tuple(value.shape) if isinstance(value, Tensor) else value for _, value in pairs)
            touched, place = frozenset(memory.number for memory in memories), place_of_caller() if is_needed else None
            self._records.append(
                Recorded(call.func, call.with_slots(), call.structure, slots, touched, expected, place)
            )

    def _result(self, call: _TwinCall, fake: Tensor, value: Tensor) -> _Twin:
        before = self._twins.get(fake)
        if before is None or before.value is not value:
            memory = call.memory_of(value) or _Memory(self._number(), call.of_inputs)
            self._twins[fake] = before = _Twin(value, Slot(self._number()), memory)
        return before

    def _lose(self, func: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Notes that an op has written what is unknown."""
        names = [argument.name for argument in func._schema.arguments]
        for tensor in Call(func, dict(zip(names, args, strict=False)) | dict(kwargs), ()).written:
            if (twin := self._of(tensor)) is not None:
                twin.memory.is_lost = True

    def _of(self, tensor: Tensor) -> _Twin | None:
        """What is known of a tensor; None if its values are unknown."""
        if isinstance(tensor, FakeTensor):
            twin = self._twins.get(tensor)
            return None if twin is None or twin.memory.is_lost else twin
        if tensor.device.type != "cpu" or type(tensor) not in (Tensor, torch.nn.Parameter):
            return None
        if id(tensor) not in self._outside:
            memory = _Memory(self._number(), of_inputs=False)
            self._outside[id(tensor)] = tensor, _Twin(tensor.detach(), Slot(self._number()), memory)
        return self._outside[id(tensor)][1]

    def _of_size(self, func: torch._ops.OpOverload, args: Sequence[Any]) -> Any:
        """The result of an op on unknown tensors whose size a known mask or Python numbers tell."""
        if func is _aten._ctc_loss.default:
            steps, batch, _ = args[0].shape
            sizes = [(batch,), (batch, steps, 2 * max(args[3], default=0) + 1)]
        else:
            chosen = self.dispatch(_aten.nonzero.default, (Tensor,), (args[1],))
            times = math.prod(torch.broadcast_shapes(args[0].shape, args[1].shape)) // max(args[1].numel(), 1)
            sizes = [(chosen.shape[0] * times,)]
        with self:
            results = tuple(args[0].new_empty(size) for size in sizes)
        return results if len(results) > 1 else results[0]

    def _is_outside(self, leaf: Any) -> bool:
        return isinstance(leaf, Tensor) and id(leaf) in self._outside

    def _inside(self, tensor: Tensor) -> Tensor:
        """A fake tensor in place of one outside."""
        fake, twin = self._fake(tensor), self._of(tensor)
        self._twins[fake] = twin
        return fake

    def _is_kept(self, call: _TwinCall, result: Any) -> bool:
        """Whether the values of a result are kept: those of inputs, and small ones."""
        sizes = [leaf.numel() for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]
        return self._is_example or call.of_inputs or max(sizes, default=0) <= MOST_ELEMENTS

    def _fake(self, value: Tensor, device: torch.device | None = None) -> Tensor:
        with self:
            return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=device)

    def _number(self) -> int:
        self._count += 1
        return self._count
