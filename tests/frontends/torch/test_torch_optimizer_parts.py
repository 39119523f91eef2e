"""Optimisers that hold others: their state and work count whole, or the step is refused in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gnnplace.frontends.torch.optimizer_parts import copied, parts, set_states, states
from gnnplace.frontends.torch.step import TorchStep
from gnnplace.graph import ComputationGraph


class Both(torch.optim.Optimizer):
    """Muon for matrices, AdamW for the rest."""

    def __init__(self, parameters: Any) -> None:
        parameters = list(parameters)
        super().__init__(parameters, {})
        self.matrices = torch.optim.Muon([each for each in parameters if each.dim() == 2])
        self.others = torch.optim.AdamW([each for each in parameters if each.dim() != 2], lr=torch.tensor(0.01))

    def step(self, closure: Any = None) -> None:
        self.matrices.step()
        self.others.step()


class Each(torch.optim.Optimizer):
    """An optimiser for each parameter, in a list."""

    def __init__(self, parameters: Any) -> None:
        parameters = list(parameters)
        super().__init__(parameters, {})
        self.optimizers = [torch.optim.Adam([each]) for each in parameters]

    def step(self, closure: Any = None) -> None:
        for optimizer in self.optimizers:
            optimizer.step()


class Wrapper(torch.optim.Optimizer):
    """Shows the groups and the state of the optimiser in it as its own."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer, self.defaults = optimizer, optimizer.defaults

    @property
    def param_groups(self) -> Any:
        return self.optimizer.param_groups

    @property
    def state(self) -> Any:
        return self.optimizer.state

    def step(self, closure: Any = None) -> None:
        self.optimizer.step()


class Outside(torch.optim.Optimizer):
    """Keeps its moments in a dictionary of its own."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})
        self.moments: dict[Tensor, Tensor] = {}

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for parameter in self.param_groups[0]["params"]:
            if parameter.grad is not None:
                moment = self.moments.setdefault(parameter, torch.zeros_like(parameter))
                parameter.sub_(moment.lerp_(parameter.grad, 0.1))


class Nothing(torch.optim.Optimizer):
    """Updates the parameters that it was built with, which its groups do not tell."""

    def __init__(self, parameters: Any) -> None:
        self.own = [*parameters]
        super().__init__(self.own, {})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for parameter in self.own:
            if parameter.grad is not None:
                parameter.sub_(parameter.grad)


class Copying(torch.optim.Optimizer):
    """Computes an update where nobody counts."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for parameter in self.param_groups[0]["params"]:
            parameter.copy_(parameter.grad)


def graph(optimizer: Any, module: nn.Module | None = None) -> ComputationGraph:
    module = nn.Linear(6, 4) if module is None else module
    return TorchStep(module, lambda module, x: module(x).sum(), (torch.zeros(3, 6),), optimizer).computation_graph("n")


def state_bytes(graph: ComputationGraph) -> int:
    return int(graph.persistent_bytes.sum()) - 4 * (24 + 4)


def updates(graph: ComputationGraph) -> list[int]:
    flops: list[int] = graph.flops[graph.phase.among(["update"])].tolist()
    return flops


def test_the_state_and_the_work_of_parts_count() -> None:
    graph_of_both = graph(Both)
    muon = graph(torch.optim.Muon, nn.Linear(6, 4, bias=False))
    assert state_bytes(graph_of_both) == 4 * (24 + 2 * 4 + 1)
    weight, bias = updates(graph_of_both)
    assert [weight] == updates(muon) and bias > 10 * 4
    assert state_bytes(graph(Each)) == state_bytes(graph("adam")) and min(updates(graph(Each))) > 10 * 4
    assert state_bytes(graph(lambda each: Wrapper(Both(each)))) == state_bytes(graph_of_both)


def test_a_wrapper_counts_as_what_it_wraps() -> None:
    wrapped = graph(lambda parameters: Wrapper(torch.optim.RMSprop(parameters)))
    plain = graph("rmsprop")
    assert state_bytes(wrapped) == state_bytes(plain) and updates(wrapped) == updates(plain)


@pytest.mark.parametrize(
    ("optimizer", "words"),
    [
        (Outside, r"Outside: keeps a tensor of shape \[4, 6\] outside of its `state`; keep it in `state\[parameter\]`"),
        (Nothing, "Nothing: its step does not change a parameter that has a gradient; give the optimiser that does"),
        (Copying, "Copying: its step runs only ops whose flops are not known"),
        (lambda parameters: Wrapper(torch.optim.LBFGS(parameters)), "LBFGS evaluates the loss several times in a step"),
    ],
)
def test_what_would_count_as_nothing_is_refused(optimizer: Callable[..., Any], words: str) -> None:
    with pytest.raises(ValueError, match=f"^optimizer: {words}") as error:
        graph(optimizer)
    assert "\n" not in str(error.value)


def test_a_part_of_other_parameters_is_refused() -> None:
    module, other = nn.Linear(6, 4), nn.Linear(6, 4)
    optimizer = Wrapper(torch.optim.Adam(other.parameters()))
    with pytest.raises(ValueError, match="optimizer: Wrapper updates a parameter that the module has not"):
        graph(optimizer, module)


def test_an_optimiser_of_lists_of_tensors_counts_as_one_of_tensors() -> None:
    class Lists(torch.optim.Optimizer):
        def __init__(self, parameters: Any) -> None:
            super().__init__(parameters, {})

        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            updated = [each for each in self.param_groups[0]["params"] if each.grad is not None]
            gradients = [each.grad for each in updated]
            torch._foreach_mul_(updated, 0.9)
            torch._foreach_add_(updated, gradients, alpha=-0.1)

    assert updates(graph(Lists)) == [3 * 24, 3 * 4]


def test_states_go_back_to_the_parts_that_keep_them() -> None:
    module = nn.Linear(6, 4)
    both = Both(module.parameters())
    module(torch.ones(1, 6)).sum().backward()
    both.step()
    again = copied(both, lambda _, group: dict(group))
    assert list(parts(again)) == ["", "matrices", "others"] and not states(again, module.weight)
    for parameter in module.parameters():
        set_states(again, parameter, states(both, parameter))
        assert states(again, parameter) == states(both, parameter) != {}
    assert list(states(again, module.weight)) == ["matrices.momentum_buffer"]
    assert set(states(again, module.bias)) == {"others.step", "others.exp_avg", "others.exp_avg_sq"}
