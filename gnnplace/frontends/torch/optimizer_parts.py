"""An optimiser and the optimisers within it, to which its step may delegate.

    class Both(torch.optim.Optimizer):  # parts: "", "matrices", "others"
        def __init__(self, matrices, others):
            super().__init__([*matrices, *others], {})
            self.matrices, self.others = torch.optim.Muon(matrices), torch.optim.AdamW(others)

A part lies in an attribute, also within lists, tuples and dicts. Its state belongs to the optimiser's state.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

Group = dict[str, Any]
PER_STEP = ("param_groups", "state", "step")  # `step` is the counter of a learning-rate scheduler


def parts(optimizer: torch.optim.Optimizer) -> dict[str, torch.optim.Optimizer]:
    """The optimiser itself, by the path "", and each optimiser in its attributes by its path, such as "others.0".

    An optimiser with two paths has the first.
    """
    by_path: dict[str, torch.optim.Optimizer] = {}
    _add_parts(optimizer, "", by_path)
    return by_path


def states(optimizer: torch.optim.Optimizer, parameter: Tensor) -> dict[str, Any]:
    """What the parts keep of a parameter, by the path of the part and the name of the value.

    >>> weight = torch.nn.Parameter(torch.ones(2))
    >>> momentum = torch.optim.SGD([weight], momentum=0.9)
    >>> weight.sum().backward()
    >>> momentum.step()
    >>> states(momentum, weight)
    {'momentum_buffer': tensor([1., 1.])}
    """
    values: dict[str, Any] = {}
    counted: set[int] = set()
    for path, part in parts(optimizer).items():
        state = part.state.get(parameter, {})
        if id(state) not in counted:  # a wrapper may show the state of its part as its own
            counted.add(id(state))
            values |= {f"{path}.{name}".removeprefix("."): value for name, value in state.items()}
    return values


def set_states(optimizer: torch.optim.Optimizer, parameter: Tensor, values: Mapping[str, Any]) -> None:
    """Gives each part its values, named as `states` names them."""
    by_path = parts(optimizer)
    for name, value in values.items():
        path = max((path for path in by_path if name.startswith(f"{path}." if path else "")), key=len)
        by_path[path].state[parameter][name[len(path) :].removeprefix(".")] = value


def copied(
    optimizer: torch.optim.Optimizer, regrouped: Callable[[torch.optim.Optimizer, Group], Group | None]
) -> torch.optim.Optimizer:
    """A copy of an optimiser and its parts, without state and without the counters of schedulers.

    `regrouped` gives the copy of each part's group; None leaves the group out. The copy bypasses the constructor, whose
    arguments are unknown for an optimiser of somebody else.
    """
    copies: dict[int, Any] = {}

    def copy(value: Any) -> Any:
        if id(value) in copies:
            return copies[id(value)]
        if isinstance(value, torch.optim.Optimizer):
            twin = copies[id(value)] = object.__new__(type(value))
            groups = copies.setdefault(id(value.param_groups), [])  # which a part may share with its owner
            groups[:] = groups or [
                group for each in value.param_groups if (group := regrouped(value, each)) is not None
            ]
            attributes = {name: copy(item) for name, item in vars(value).items() if name not in PER_STEP}
            vars(twin).update(attributes, param_groups=groups, state=defaultdict(dict))
            return twin
        if type(value) in (list, tuple):
            return type(value)(map(copy, value))
        return {key: copy(item) for key, item in value.items()} if type(value) is dict else value

    twin = copy(optimizer)
    assert isinstance(twin, torch.optim.Optimizer)
    return twin


def _add_parts(optimizer: torch.optim.Optimizer, path: str, by_path: dict[str, torch.optim.Optimizer]) -> None:
    if not any(part is optimizer for part in by_path.values()):
        by_path[path] = optimizer
        for name, value in vars(optimizer).items():
            if name not in PER_STEP:
                for place, part in _optimizers_in(value, name):
                    _add_parts(part, f"{path}.{place}".removeprefix("."), by_path)


def _optimizers_in(value: Any, path: str) -> Iterator[tuple[str, torch.optim.Optimizer]]:
    """The optimisers in a value of an attribute, with their paths."""
    if isinstance(value, torch.optim.Optimizer):
        yield path, value
    elif isinstance(value, list | tuple | dict):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _optimizers_in(item, f"{path}.{key}")
