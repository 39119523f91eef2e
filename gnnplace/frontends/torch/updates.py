"""The update of one parameter as one op: its inputs and outputs, its flops, and how to run it.

Adam, AdamW and SGD are ATen's own fused kernels, except for complex parameters. Every other update is one op
`gnnplace::update_`. A device runs it by the optimiser's own code, kernel after kernel; its cost is that of an ideal
fused kernel nevertheless. The optimiser's state and flops are determined by two steps of that code under fake tensors
(the first may differ from later ones), so any optimiser can be used. If the code asks for the value of a tensor, such
as the number of the step, it gets a value from late in a training (`LATE`).
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import signature
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from gnnplace.frontends.torch.buffers import storage_of
from gnnplace.frontends.torch.calls import Call, tensors
from gnnplace.frontends.torch.flops import flops
from gnnplace.frontends.torch.kinds import canonical_kind
from gnnplace.frontends.torch.optimizer_parts import Group, copied, parts, set_states, states

FUSED = (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD)  # these classes alone; subclasses may differ
LATE = 1000.0
_PER_ELEMENT = {"lerp": 3, "addcmul": 3, "addcdiv": 2}  # the factor of addcdiv is folded into its numerator
IMPLEMENTATION = ("foreach", "fused", "capturable", "differentiable")  # settings that don't change an update's result
_RULES: list[Rule] = []  # by number


@dataclass(frozen=True, eq=False)
class Rule:
    """The update rule of an optimiser for the parameters of one of its groups, or of one group of each of its parts.

    `number` identifies it in ops `gnnplace::update_` of this process.
    """

    template: torch.optim.Optimizer  # without parameters and state
    number: int

    @staticmethod
    def of(optimizer: torch.optim.Optimizer, parameter: Tensor) -> Rule:
        """The rule of an optimiser for one of its parameters, and for all others in the same groups."""

        def emptied(part: torch.optim.Optimizer, group: Group) -> Group | None:
            updated = any(other is parameter for other in group["params"])
            return {**single_tensor(part, group), "params": []} if updated else None

        rule = Rule(copied(optimizer, emptied), len(_RULES))
        _RULES.append(rule)
        return rule

    @property
    def optimizer(self) -> type[torch.optim.Optimizer]:
        """The optimiser's class."""
        return type(self.template)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of the group; none for an optimiser whose parts alone have groups."""
        return next(iter(self.template.param_groups), {})

    @property
    def name(self) -> str:
        """The name of the optimiser's class."""
        return self.optimizer.__name__

    @property
    def rate(self) -> float:
        """The learning rate."""
        return float(self.settings["lr"])

    @property
    def is_plain_sgd(self) -> bool:
        """Whether an update only subtracts the gradient times the learning rate."""
        return self.optimizer is torch.optim.SGD and not any(
            self.settings[name] for name in ("momentum", "weight_decay", "maximize")
        )

    def cost(self, parameter: Tensor) -> UpdateCost:
        """The optimiser's state for such a parameter, and the flops of an update."""
        return _cost(self, tuple(parameter.shape), parameter.dtype)

    def update(self, parameter: Tensor, gradient: Tensor, state: Mapping[str, Tensor]) -> None:
        """Calls the op that updates a parameter and its state in place."""
        if self.optimizer not in FUSED or parameter.is_complex():  # fused kernels do not support complex numbers
            flops = self.cost(parameter).flops
            torch.ops.gnnplace.update_(
                parameter, gradient, list(state.values()), list(state), self.name, flops, self.number
            )
        elif self.optimizer is torch.optim.SGD:
            self._fused_sgd(parameter, gradient, [*state.values()])
        else:
            self._fused_adam(parameter, gradient, state)

    def run(self, parameter: Tensor, gradient: Tensor, state: dict[str, Any]) -> dict[str, Any]:
        """Runs the optimiser's own step for a parameter.

        Returns the new state, whose tensors are those of `state` if the optimiser has changed them in place.
        """
        optimizer = self.optimizer_of(parameter)
        set_states(optimizer, parameter, state)
        _step(optimizer, parameter, gradient)
        return states(optimizer, parameter)

    def initial(self, parameter: Tensor) -> dict[str, Tensor]:
        """The state before the first step; tensors that only the first step creates are zeros.

        Raises ValueError for an optimiser whose initial state is unknown.
        """
        like = parameter.detach()
        optimizer, state = self.optimizer_of(like), self.cost(like).state
        like.grad = torch.zeros_like(like)
        for part in parts(optimizer).values():
            self._start(part)
        initial = states(optimizer, like)
        if numbers := [name for name, value in initial.items() if not isinstance(value, Tensor | None)]:
            raise ValueError(f"optimizer: {self.name}: keeps {numbers[0]!r}, which is no tensor, so it can't be run")
        return {
            name: initial[name] if initial.get(name) is not None else torch.zeros(shape, dtype=dtype)
            for name, (shape, dtype) in state.items()
        }

    def optimizer_of(self, parameter: Tensor) -> torch.optim.Optimizer:
        """An optimiser with this rule for one parameter, without state."""
        return copied(self.template, lambda _, group: {**group, "params": [parameter]})

    def _start(self, part: torch.optim.Optimizer) -> None:
        """Gives a part of the optimiser its initial state. Raises ValueError if it is not known."""
        if hasattr(part, "_init_group"):
            for group in part.param_groups:
                if group.get("dampening") and group["momentum"]:
                    raise ValueError(
                        "optimizer: SGD's first step is not dampened, unlike all others, so it can't be run; leave "
                        "dampening out"
                    )
                # besides the group, `_init_group` takes lists to which it appends parameters, gradients and states
                num_lists = len(signature(part._init_group).parameters) - 1
                part._init_group(group, *([] for _ in range(num_lists)))
        elif part.param_groups and len(parts(part)) == 1:
            raise ValueError(
                f"optimizer: {type(part).__name__}: what it starts from is not known, so it can't be run; "
                "torch.optim's own can"
            )

    def _fused_sgd(self, parameter: Tensor, gradient: Tensor, buffers: list[Tensor]) -> None:
        names = ("weight_decay", "momentum", "dampening", "nesterov", "maximize")
        settings = {name: self.settings[name] for name in names}
        torch._fused_sgd_([parameter], [gradient], buffers, **settings, lr=self.rate, is_first_step=False)

    def _fused_adam(self, parameter: Tensor, gradient: Tensor, state: Mapping[str, Tensor]) -> None:
        largest = [state["max_exp_avg_sq"]] if "max_exp_avg_sq" in state else []
        settings = {name: self.settings[name] for name in ("weight_decay", "eps", "amsgrad", "maximize")}
        settings |= dict(zip(("beta1", "beta2"), map(float, self.settings["betas"]), strict=True)) | {"lr": self.rate}
        state["step"].add_(1)
        fused = torch._fused_adamw_ if self.settings["decoupled_weight_decay"] else torch._fused_adam_
        fused([parameter], [gradient], [state["exp_avg"]], [state["exp_avg_sq"]], largest, [state["step"]], **settings)


@dataclass(frozen=True, slots=True)
class UpdateCost:
    """The shape and dtype of each tensor of an optimiser's state for a parameter, and the flops of an update."""

    state: Mapping[str, tuple[tuple[int, ...], torch.dtype]]
    flops: int


def single_tensor(part: torch.optim.Optimizer, group: Group) -> Group:
    """The settings of a group for an update of one parameter after the other, with numbers for tensors."""
    settings = {name: _number(value) for name, value in group.items() if name not in ("params", "param_names")}
    return settings | {name: False for name in IMPLEMENTATION if name in part.defaults}


def _number(setting: Any) -> Any:
    """A setting of a group; a tensor with one element, such as a learning rate, becomes a number."""
    if isinstance(setting, Tensor) and setting.numel() == 1:
        if setting.is_meta:
            raise ValueError("optimizer: a setting lies on the meta device; give a number, or a tensor with a value")
        return setting.item()
    return type(setting)(map(_number, setting)) if type(setting) in (list, tuple) else setting


def _step(optimizer: torch.optim.Optimizer, parameter: Tensor, gradient: Tensor) -> None:
    parameter.grad = gradient
    try:
        optimizer.step()
    finally:
        parameter.grad = None


@cache
def _cost(rule: Rule, shape: tuple[int, ...], dtype: torch.dtype) -> UpdateCost:
    """The cost of a rule for parameters of one shape, from two steps of the optimiser under fake tensors.

    Raises ValueError if its code needs more than fake tensors, and for an update that would not be counted whole.
    """
    with torch.no_grad(), FakeTensorMode(), Counting() as counting:
        parameter, gradient = (torch.empty(shape, dtype=dtype, device="cpu") for _ in range(2))
        optimizer = rule.optimizer_of(parameter)
        try:
            _step(optimizer, parameter, gradient)
            counting.flops = 0
            _step(optimizer, parameter, gradient)
        except Exception as error:  # an optimiser of somebody else may raise anything
            raise ValueError(
                f"optimizer: {rule.name}: makes no update of a parameter by itself: {' '.join(str(error).split())}"
            ) from error
        state = {name: value for name, value in states(optimizer, parameter).items() if isinstance(value, Tensor)}
        if reason := counting.missing(parameter, (parameter, gradient, *state.values())):
            raise ValueError(f"optimizer: {rule.name}: {reason}")
    return UpdateCost({name: (tuple(value.shape), value.dtype) for name, value in state.items()}, counting.flops)


class Counting(TorchDispatchMode):
    """A mode that sums the flops of all ops. Code that asks for the value of a tensor gets `LATE`.

    >>> with torch.device("meta"), Counting() as counting:
    ...     _ = torch.zeros(4).add_(torch.zeros(4), alpha=0.1)
    >>> counting.flops
    8
    """

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0
        self._written: set[int] = set()  # storages
        self._results: list[weakref.ref[Tensor]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            return LATE
        result = func(*args, **(kwargs or {}))
        names = [argument.name for argument in func._schema.arguments]
        call = Call(func, dict(zip(names, args, strict=False)) | (kwargs or {}), tensors(result))
        self.flops += _fused_flops(call)
        self._written |= set(map(storage_of, call.written))
        self._results += map(weakref.ref, tensors(result))
        return result

    def missing(self, parameter: Tensor, counted: Sequence[Tensor]) -> str | None:
        """Why an update of the parameter is not counted whole, if it is not; `counted` are all tensors that stay."""
        storages = set(map(storage_of, counted))
        if self._kept(storages):
            gc.collect()  # which takes long, and frees what a cycle of references alone keeps
        if hidden := self._kept(storages):
            return (
                f"keeps a tensor of shape {list(hidden[0].shape)} outside of its `state`; keep it in `state[parameter]`"
            )
        if storage_of(parameter) not in self._written:
            return (
                "its step does not change a parameter that has a gradient; give the optimiser that does, or one that "
                "has it as an attribute"
            )
        if not self.flops and parameter.numel():
            return "its step runs only ops whose flops are not known; write it with PyTorch's own ops"
        return None

    def _kept(self, storages: set[int]) -> list[Tensor]:
        """The results of ops that still exist, without those in `storages`."""
        kept = [tensor for result in self._results if (tensor := result()) is not None]
        return [tensor for tensor in kept if storage_of(tensor) not in storages]


def _fused_flops(call: Call) -> int:
    """The flops of a call within a fused kernel, where its composite ops count each of their scalar operations.

    An op on lists of tensors (`_foreach_...`) counts as its op on each.
    """
    base = call.base.removeprefix("_foreach_")
    scaled_add = base in ("add", "sub") and call.arguments.get("alpha", 1) != 1
    per_element = 2 if scaled_add else _PER_ELEMENT.get(base)
    if base != call.base:
        each = sum(tensor.numel() for tensor in tensors(call.arguments["self"]))
        return 0 if base in ("copy", "zero") else each * (per_element or 1)
    output = next(iter(call.outputs), None)
    if output is None:
        return flops(call) if canonical_kind(call) == "update" else 0
    return flops(call) if per_element is None else per_element * output.numel()


def _update(
    parameter: Tensor,
    gradient: Tensor,
    state: Sequence[Tensor],
    names: Sequence[str],
    optimizer: str,
    flops: int,
    rule: int,
) -> None:
    """Updates a parameter and its state in place by the optimiser's own code.

    `optimizer` and `flops` only describe the op in a trace.
    """
    tensors = dict(zip(names, state, strict=True))
    with torch.no_grad():
        for name, value in _RULES[rule].run(parameter, gradient, dict(tensors)).items():
            if value is not tensors[name]:
                tensors[name].copy_(value)


def _update_fake(*_: object) -> None:
    """Under fake tensors there is nothing to compute."""


_OP = "gnnplace::update_"
_SCHEMA = (
    "(Tensor(a!) parameter, Tensor gradient, Tensor(b!)[] state, str[] names, str optimizer, int flops, int rule) -> ()"
)
torch.library.define(_OP, _SCHEMA)
torch.library.impl(_OP, ("CPU", "CUDA"), _update)
torch.library.register_fake(_OP, _update_fake)
