"""The optimisers of a training step, and the update rule of each parameter.

A user gives a name ("adamw"), a class or function of parameters, or an optimiser of the module's parameters with its
own groups and settings. A list of optimisers has each of them update parameters of its own, as Muon for matrices and
AdamW for the rest. PyTorch's implementation (`fused`, `foreach`, `capturable`) does not matter: the update of a
parameter is one op with the cost of an ideal kernel, which reads parameter, gradient and state once and writes
parameter and state once. Learning-rate schedulers change a number on the host between two steps, so no step has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from gnnplace.formats.strict_json import unknown
from gnnplace.frontends.torch.optimizer_parts import Group, copied, parts
from gnnplace.frontends.torch.updates import FUSED, Rule, single_tensor

OneOptimizer = str | torch.optim.Optimizer | Callable[..., torch.optim.Optimizer]
Optimizer = OneOptimizer | list[torch.optim.Optimizer] | tuple[torch.optim.Optimizer, ...]
SGD_RATE = 0.1  # the learning rate of the optimiser named "sgd"
WHOLE_STEPS = {
    "LBFGS": "evaluates the loss several times in a step",
    "SparseAdam": "updates nothing but sparse gradients",
}


def built(optimizer: Optimizer, module: nn.Module) -> tuple[torch.optim.Optimizer, ...]:
    """The optimisers of a module's parameters: the given ones, or a new one for all that require a gradient.

    Raises ValueError for an unknown name, an optimiser of other parameters, one that does not update each parameter by
    itself, and for two that update the same parameter.

        >>> [type(each).__name__ for each in built("adamw", nn.Linear(2, 2))]
        ['AdamW']
    """
    instances = _listed(optimizer) if isinstance(optimizer, list | tuple) else (_instance(optimizer, module),)
    name_of = {id(parameter): name for name, parameter in module.named_parameters()}
    owner: dict[int, torch.optim.Optimizer] = {}
    for instance in instances:
        _check(instance, set(name_of))
        for number in {id(each) for part in parts(instance).values() for each in _updated(part)}:
            if (other := owner.setdefault(number, instance)) is not instance:
                raise ValueError(
                    f"optimizer: {type(other).__name__} and {type(instance).__name__} both update "
                    f"{name_of[number]}; give each parameter to one of them"
                )
    return instances


def _updated(part: torch.optim.Optimizer) -> list[Tensor]:
    """The parameters in the groups of an optimiser, without those of its parts."""
    return [parameter for group in part.param_groups for parameter in group["params"]]


def _check(instance: torch.optim.Optimizer, parameters: set[int]) -> None:
    """Raises ValueError for an optimiser that updates other parameters than these, or does more than update each."""
    for part in parts(instance).values():
        name = type(part).__name__
        if name in WHOLE_STEPS:
            raise ValueError(
                f"optimizer: {name} {WHOLE_STEPS[name]}, so its step is no update of each parameter; give another, "
                "such as 'adamw'"
            )
        if not all(id(parameter) in parameters for parameter in _updated(part)):
            raise ValueError(
                f"optimizer: {name} updates a parameter that the module has not; build it of module.parameters()"
            )


def rules(optimizers: Sequence[torch.optim.Optimizer], module: nn.Module) -> Mapping[str, Rule]:
    """The update rule of each trained parameter by name, in the module's order; one without a group is not trained."""
    rule_of = {name: rule for optimizer in optimizers for name, rule in _rules(optimizer, module).items()}
    return {name: rule_of[name] for name, _ in module.named_parameters() if name in rule_of}


def _rules(optimizer: torch.optim.Optimizer, module: nn.Module) -> dict[str, Rule]:
    """The rules of one optimiser."""
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


def _listed(optimizers: Sequence[object]) -> tuple[torch.optim.Optimizer, ...]:
    """Several optimisers. Raises ValueError if one is none, or if there is none."""
    listed = tuple(each for each in optimizers if isinstance(each, torch.optim.Optimizer))
    if not listed or len(listed) < len(optimizers):
        kinds = ", ".join(type(each).__name__ for each in optimizers)
        raise ValueError(
            f"optimizer: a list holds optimisers, each built of the parameters that it updates, not [{kinds}]"
        )
    return listed


def _instance(optimizer: OneOptimizer, module: nn.Module) -> torch.optim.Optimizer:
    """The optimiser, or a new one of the module's trained parameters, by its name or made by a function."""
    if isinstance(optimizer, torch.optim.Optimizer):
        return optimizer
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
