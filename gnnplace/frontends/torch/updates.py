"""The update of one parameter as one op: what it reads and writes, its arithmetic, and how it is run.

Adam, AdamW and SGD are ATen's own fused kernels, but for complex parameters. Every other update is one op
`gnnplace::update_`, which a device runs by the optimiser's own code, kernel after kernel; its cost is that of an ideal
fused kernel all the same. Its state and its arithmetic are found by two steps of that code under fake tensors (the
first may differ), so an optimiser of somebody else's is known, too. What its code asks of the values of tensors, such
as the number of the step, is answered as late in a training (`LATE`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import signature
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from gnnplace.frontends.torch.calls import Call
from gnnplace.frontends.torch.flops import flops

FUSED = (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD)  # no subclasses of somebody else's
LATE = 1000.0
_PER_ELEMENT = {"lerp": 3, "addcmul": 3, "addcdiv": 2}  # the factor of a quotient folds into what it divides
PLAIN = ("foreach", "fused", "capturable", "differentiable")  # how torch runs an optimiser, not what it computes
_RULES: list[Rule] = []


@dataclass(frozen=True, eq=False)
class Rule:
    """How an optimiser updates a parameter of one of its groups. `number` is what ops of this process know it by."""

    optimizer: type[torch.optim.Optimizer]
    attributes: Mapping[str, Any]
    settings: Mapping[str, Any]
    number: int

    @staticmethod
    def of(optimizer: torch.optim.Optimizer, group: Mapping[str, Any]) -> Rule:
        """The rule of a group of an optimiser; it holds none of its parameters."""
        own = ("param_groups", "state", "step")  # `step` is a scheduler's counter, if it is there
        attributes = {name: value for name, value in vars(optimizer).items() if name not in own}
        settings = {name: value for name, value in group.items() if name not in ("params", *PLAIN, "param_names")}
        rule = Rule(type(optimizer), attributes, settings, len(_RULES))
        _RULES.append(rule)
        return rule

    @property
    def name(self) -> str:
        """The optimiser's."""
        return self.optimizer.__name__

    @property
    def rate(self) -> float:
        """The learning rate."""
        return float(self.settings["lr"])

    @property
    def is_plain_sgd(self) -> bool:
        """Whether it does nothing but subtract the gradient times the rate."""
        return self.optimizer is torch.optim.SGD and not any(
            self.settings[name] for name in ("momentum", "weight_decay", "maximize")
        )

    def found(self, parameter: Tensor) -> UpdateCost:
        """The state that it keeps of such a parameter, and the arithmetic of an update."""
        return _found(self, tuple(parameter.shape), parameter.dtype)

    def update(self, parameter: Tensor, gradient: Tensor, state: Mapping[str, Tensor]) -> None:
        """Calls the op that updates a parameter and its state in place."""
        if self.optimizer not in FUSED or parameter.is_complex():  # no fused kernel takes complex numbers
            torch.ops.gnnplace.update_(
                parameter,
                gradient,
                list(state.values()),
                list(state),
                self.name,
                self.found(parameter).flops,
                self.number,
            )
        elif self.optimizer is torch.optim.SGD:
            self._fused_sgd(parameter, gradient, [*state.values()])
        else:
            self._fused_adam(parameter, gradient, state)

    def run(self, parameter: Tensor, gradient: Tensor, state: dict[str, Any]) -> dict[str, Any]:
        """Runs the optimiser's own step for a parameter; returns its state,
        which is `state` as far as it changed that in place.
        """
        single = self._single(parameter)
        single.state[parameter].update(state)
        parameter.grad = gradient
        try:
            single.step()
        finally:
            parameter.grad = None
        return single.state[parameter]

    def initial(self, parameter: Tensor) -> dict[str, Tensor]:
        """The state before the first step: what the optimiser makes at its start; zeros for what its first step makes.

        Raises ValueError for an optimiser whose start is not known.
        """
        like = parameter.detach()
        single = self._single(like)
        if not hasattr(single, "_init_group"):
            raise ValueError(
                f"optimizer: {self.name}: what it starts from is not known, so it can't be run; torch.optim's own can"
            )
        if self.settings.get("dampening") and self.settings["momentum"]:
            raise ValueError(
                "optimizer: SGD's first step is not dampened, unlike all others, so it can't be run; leave "
                "dampening out"
            )
        like.grad = torch.zeros_like(like)
        single._init_group(single.param_groups[0], *([] for _ in list(signature(single._init_group).parameters)[1:]))
        made, state = single.state[like], self.found(like).state
        if numbers := [name for name, value in made.items() if not isinstance(value, Tensor | None)]:
            raise ValueError(f"optimizer: {self.name}: keeps {numbers[0]!r}, which is no tensor, so it can't be run")
        return {
            name: made[name] if made.get(name) is not None else torch.zeros(shape, dtype=dtype)
            for name, (shape, dtype) in state.items()
        }

    def _single(self, parameter: Tensor) -> torch.optim.Optimizer:
        """An optimiser of this parameter alone, without state."""
        single = object.__new__(self.optimizer)
        plain = {name: False for name in PLAIN if name in self.attributes["defaults"]}
        group = {**self.settings, **plain, "params": [parameter]}
        vars(single).update(self.attributes, param_groups=[group], state=defaultdict(dict))
        return single

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
    """The shape and dtype of each tensor of an optimiser's state of a parameter, and the flops of an update."""

    state: Mapping[str, tuple[tuple[int, ...], torch.dtype]]
    flops: int


@cache
def _found(rule: Rule, shape: tuple[int, ...], dtype: torch.dtype) -> UpdateCost:
    """Raises ValueError where the optimiser's code needs more than fake tensors."""
    with torch.no_grad(), FakeTensorMode(), Counting() as counting:
        parameter, gradient = (torch.empty(shape, dtype=dtype, device="cpu") for _ in range(2))
        try:
            state = dict(rule.run(parameter, gradient, {}))
            counting.flops = 0
            rule.run(parameter, gradient, state)
        except Exception as error:  # of anybody's code
            raise ValueError(
                f"optimizer: {rule.name}: makes no update of a parameter by itself: {' '.join(str(error).split())}"
            ) from error
    kept = {name: (tuple(value.shape), value.dtype) for name, value in state.items() if isinstance(value, Tensor)}
    return UpdateCost(kept, counting.flops)


class Counting(TorchDispatchMode):
    """Within, sums the flops of all ops, and answers `LATE` where code asks for the value of a tensor, such as the
    number of the step.

    >>> with torch.device("meta"), Counting() as counting:
    ...     _ = torch.zeros(4).add_(torch.zeros(4), alpha=0.1)
    >>> counting.flops
    8
    """

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            return LATE
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            names = [argument.name for argument in func._schema.arguments]
            self.flops += _fused_flops(Call(func, dict(zip(names, args, strict=False)) | (kwargs or {}), (result,)))
        return result


def _fused_flops(call: Call) -> int:
    each = 2 if call.base == "add" and call.arguments.get("alpha", 1) != 1 else _PER_ELEMENT.get(call.base)
    return flops(call) if each is None else each * call.outputs[0].numel()  # type: ignore[union-attr]


def _update(
    parameter: Tensor,
    gradient: Tensor,
    state: Sequence[Tensor],
    names: Sequence[str],
    optimizer: str,
    flops: int,
    rule: int,
) -> None:
    """One update of a parameter and its state, in place, by an optimiser's own
    code; its name and `flops` are for who reads the call.
    """
    given = dict(zip(names, state, strict=True))
    with torch.no_grad():
        for name, value in _RULES[rule].run(parameter, gradient, dict(given)).items():
            if value is not given[name]:
                given[name].copy_(value)


def _update_fake(*_: object) -> None:
    """Makes nothing."""


_OP = "gnnplace::update_"
_SCHEMA = (
    "(Tensor(a!) parameter, Tensor gradient, Tensor(b!)[] state, str[] names, str optimizer, int flops, int rule) -> ()"
)
torch.library.define(_OP, _SCHEMA)
torch.library.impl(_OP, ("CPU", "CUDA"), _update)
torch.library.register_fake(_OP, _update_fake)
