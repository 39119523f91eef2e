"""The optimiser of a training step: what a user gives, and the update that it makes of each parameter.

A step is given a name ("adamw"), a class or function of parameters, or an optimiser of the module's own parameters with
groups and settings of its own. What torch does with it (`fused`, `foreach`, `capturable`) does not matter: an update is
one op a parameter, as an ideal kernel has it, which reads parameter, gradient and state once and writes parameter and
state once. Learning-rate schedulers change a number on the host between two steps, so they are no part of one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from gnnplace.formats.strict_json import unknown
from gnnplace.frontends.torch.updates import FUSED, Rule

Optimizer = str | torch.optim.Optimizer | Callable[..., torch.optim.Optimizer]
SGD_RATE = 0.1  # of the optimiser that is called "sgd"
WHOLE_STEPS = {
    "LBFGS": "evaluates the loss several times in a step",
    "SparseAdam": "updates nothing but sparse gradients",
}


def built(optimizer: Optimizer, module: nn.Module) -> torch.optim.Optimizer:
    """The optimiser of a module's parameters: the given one, or a new one of all that require a gradient.

    Raises ValueError for an unknown name, an optimiser of other parameters, and those that make no update of a
    parameter by itself.

        >>> type(built("adamw", nn.Linear(2, 2))).__name__
        'AdamW'
    """
    made = optimizer if isinstance(optimizer, torch.optim.Optimizer) else _made(optimizer, module)
    name = type(made).__name__
    if name in WHOLE_STEPS:
        raise ValueError(
            f"optimizer: {name} {WHOLE_STEPS[name]}, so its step is no update of each parameter; give another, such "
            "as 'adamw'"
        )
    own = {id(parameter) for parameter in module.parameters()}
    if not all(id(parameter) in own for group in made.param_groups for parameter in group["params"]):
        raise ValueError(
            f"optimizer: {name} updates a parameter that the module has not; build it of module.parameters()"
        )
    return made


def rules(optimizer: torch.optim.Optimizer, module: nn.Module) -> Mapping[str, Rule]:
    """How each trained parameter is updated, by its name, in the
    module's order; one that no group holds is not trained.
    """
    groups = {id(parameter): group for group in optimizer.param_groups for parameter in group["params"]}
    found = {id(group): Rule.of(optimizer, group) for group in optimizer.param_groups}
    named = [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]
    return {name: found[id(groups[id(parameter)])] for name, parameter in named if id(parameter) in groups}


def as_one_kernel(optimizer: torch.optim.Optimizer) -> None:
    """Sets an optimiser to run as a step's updates do: by ATen's fused
    kernels where these are, else parameter by parameter.
    """
    for group in optimizer.param_groups:
        plain_sgd = isinstance(optimizer, torch.optim.SGD) and not group["momentum"]
        group.update(fused=type(optimizer) in FUSED and not plain_sgd, foreach=False)


def _made(optimizer: str | Callable[..., torch.optim.Optimizer], module: nn.Module) -> torch.optim.Optimizer:
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not trained:
        raise ValueError("module: has no parameter that requires a gradient, so there is no step to trace")
    if isinstance(optimizer, str):
        known = _named()
        if optimizer not in known:
            raise ValueError(f"optimizer: {unknown('name', optimizer, sorted(known))}")
        return known[optimizer](trained)
    if not callable(optimizer):
        raise ValueError(
            f"optimizer: a {type(optimizer).__name__} is no name, optimiser, or function that returns one for "
            "parameters"
        )
    made = optimizer(trained)
    if not isinstance(made, torch.optim.Optimizer):
        raise ValueError(
            f"optimizer: returned a {type(made).__name__} for the parameters, which is no torch.optim.Optimizer"
        )
    return made


def _named() -> dict[str, Callable[..., torch.optim.Optimizer]]:
    classes = [
        found
        for found in vars(torch.optim).values()
        if isinstance(found, type) and issubclass(found, torch.optim.Optimizer)
    ]
    known: dict[str, Callable[..., torch.optim.Optimizer]] = {found.__name__.lower(): found for found in classes}
    known.pop("optimizer")
    return known | {"sgd": _sgd}


def _sgd(parameters: list[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=SGD_RATE)
