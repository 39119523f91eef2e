"""The optimiser of a training step, and its update rule for each parameter.

A user gives a name ("adamw"), a class or function of parameters, or an optimiser of the module's parameters with its
own groups and settings. PyTorch's implementation (`fused`, `foreach`, `capturable`) does not matter: the update of a
parameter is one op with the cost of an ideal kernel, which reads parameter, gradient and state once and writes
parameter and state once. Learning-rate schedulers change a number on the host between two steps, so no step has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from gnnplace.formats.strict_json import unknown
from gnnplace.frontends.torch.optimizer_parts import Group, copied, parts
from gnnplace.frontends.torch.updates import FUSED, Rule, single_tensor

Optimizer = str | torch.optim.Optimizer | Callable[..., torch.optim.Optimizer]
SGD_RATE = 0.1  # the learning rate of the optimiser named "sgd"
WHOLE_STEPS = {
    "LBFGS": "evaluates the loss several times in a step",
    "SparseAdam": "updates nothing but sparse gradients",
}


def built(optimizer: Optimizer, module: nn.Module) -> torch.optim.Optimizer:
    """The optimiser of a module's parameters: the given one, or a new one for all that require a gradient.

    Raises ValueError for an unknown name, an optimiser of other parameters, and one that does not update each parameter
    by itself.

        >>> type(built("adamw", nn.Linear(2, 2))).__name__
        'AdamW'
    """
    instance = optimizer if isinstance(optimizer, torch.optim.Optimizer) else _instance(optimizer, module)
    parameters = {id(parameter) for parameter in module.parameters()}
    for part in parts(instance).values():
        name = type(part).__name__
        if name in WHOLE_STEPS:
            raise ValueError(
                f"optimizer: {name} {WHOLE_STEPS[name]}, so its step is no update of each parameter; give another, "
                "such as 'adamw'"
            )
        if not all(id(parameter) in parameters for group in part.param_groups for parameter in group["params"]):
            raise ValueError(
                f"optimizer: {name} updates a parameter that the module has not; build it of module.parameters()"
            )
    return instance


def rules(optimizer: torch.optim.Optimizer, module: nn.Module) -> Mapping[str, Rule]:
    """The update rule of each trained parameter by name, in the module's order; one without a group is not trained."""
    groups = [group for part in parts(optimizer).values() for group in part.param_groups]
    groups_of: dict[int, tuple[int, ...]] = {}  # the groups with each parameter
    for number, group in enumerate(groups):
        for parameter in group["params"]:
            groups_of[id(parameter)] = (*groups_of.get(id(parameter), ()), number)
    rule_of: dict[tuple[int, ...], Rule] = {}
    trained = [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]
    for _, parameter in trained:
        if (key := groups_of.get(id(parameter), ())) and key not in rule_of:
            rule_of[key] = Rule.of(optimizer, parameter)
    return {name: rule_of[groups_of[id(parameter)]] for name, parameter in trained if id(parameter) in groups_of}


def as_one_kernel(optimizer: torch.optim.Optimizer, twins: Mapping[int, Tensor]) -> torch.optim.Optimizer:
    """A copy of an optimiser without state that runs as a step's updates do: by ATen's fused kernels, else one by one.

    `twins` are its parameters by the ids of the original ones.
    """

    def regrouped(part: torch.optim.Optimizer, group: Group) -> Group:
        fused = part is optimizer and type(part) in FUSED and (type(part) is not torch.optim.SGD or group["momentum"])
        settings = single_tensor(part, group) | ({"fused": True} if fused else {})
        return {**settings, "params": [twins[id(parameter)] for parameter in group["params"]]}

    return copied(optimizer, regrouped)


def _instance(optimizer: str | Callable[..., torch.optim.Optimizer], module: nn.Module) -> torch.optim.Optimizer:
    """A new optimiser of the module's trained parameters, by its name or made by a function."""
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not trained:
        raise ValueError("module: has no parameter that requires a gradient, so there is no step to trace")
    if isinstance(optimizer, str):
        classes = _optimizers_by_name()
        if optimizer not in classes:
            raise ValueError(f"optimizer: {unknown('name', optimizer, sorted(classes))}")
        return classes[optimizer](trained)
    if not callable(optimizer):
        raise ValueError(
            f"optimizer: a {type(optimizer).__name__} is no name, optimiser, or function that returns one for "
            "parameters"
        )
    instance = optimizer(trained)
    if not isinstance(instance, torch.optim.Optimizer):
        raise ValueError(
            f"optimizer: returned a {type(instance).__name__} for the parameters, which is no torch.optim.Optimizer"
        )
    return instance


def _optimizers_by_name() -> dict[str, Callable[..., torch.optim.Optimizer]]:
    """The classes of `torch.optim` by their names in lower case; "sgd" has a learning rate."""
    values = vars(torch.optim).values()
    classes = [value for value in values if isinstance(value, type) and issubclass(value, torch.optim.Optimizer)]
    by_name: dict[str, Callable[..., torch.optim.Optimizer]] = {cls.__name__.lower(): cls for cls in classes}
    by_name.pop("optimizer")
    return by_name | {"sgd": _sgd}


def _sgd(parameters: list[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=SGD_RATE)
