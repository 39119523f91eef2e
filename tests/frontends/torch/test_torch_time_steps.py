"""Time steps that a PyTorch module marks: on its ops and their gradients, but on nothing that all steps share."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.training_steps import training_step
from torch import Tensor, nn

from gnnplace.frontends.torch.scopes import time_step
from gnnplace.graph import NONE, ComputationGraph

STEPS, BATCH, UNITS = 3, 5, 4


class Unrolled(nn.Module):
    """`h <- tanh(x_t + U h)`, read out at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(UNITS, UNITS)
        self.head = nn.Linear(UNITS, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        state = torch.ones_like(inputs[0])
        for number, x in enumerate(inputs.unbind()):
            with time_step(number):
                state = torch.tanh(x + self.hidden(state))
        return self.head(state)


@pytest.fixture(scope="module")
def graph() -> ComputationGraph:
    return training_step(Unrolled(), lambda module, x: module(x).sum(), (torch.zeros(STEPS, BATCH, UNITS),), name="unrolled").graph


def steps(graph: ComputationGraph, kind: str, layer: str, phase: str) -> list[int]:
    chosen = graph.kind.among([kind]) & graph.layer.among([layer]) & graph.phase.among([phase])
    return sorted(graph.time_step[chosen].tolist())


def test_forward_ops_have_the_time_step_of_their_loop(graph: ComputationGraph) -> None:
    every = list(range(STEPS))
    assert steps(graph, "aten.addmm", "hidden", "forward") == every
    assert steps(graph, "aten.tanh", "module", "forward") == every  # outside the submodule too
    assert steps(graph, "aten.addmm", "head", "forward") == [NONE]


def test_gradients_have_that_of_their_forward_op(graph: ComputationGraph) -> None:
    every = list(range(STEPS))
    assert steps(graph, "aten.tanh_backward", "module", "backward_data") == every
    assert steps(graph, "aten.mm", "hidden", "backward_weight") == every
    assert steps(graph, "aten.mm", "hidden", "backward_data") == every[1:]  # the first state needs no gradient
    assert steps(graph, "aten.mm", "head", "backward_weight") == [NONE]


def test_what_all_steps_share_has_none(graph: ComputationGraph) -> None:
    sums = steps(graph, "aten.add", "hidden", "backward_weight")
    assert sums == [NONE] * (2 * (STEPS - 1))  # of the weight's gradients and of the bias's
    assert steps(graph, "aten.t", "hidden", "forward") == [NONE]  # the transpose of the weight, made once
    shared = graph.phase.among(["update", "other"]) | graph.kind.among(["parameter", "read", "input"])
    assert (graph.time_step[shared] == NONE).all() and np.count_nonzero(shared) > 4


def test_marking_changes_nothing_outside_a_trace() -> None:
    torch.manual_seed(0)
    module, inputs = Unrolled(), torch.randn(STEPS, BATCH, UNITS)
    state = torch.ones(BATCH, UNITS)
    for x in inputs:
        state = torch.tanh(x + module.hidden(state))
    assert torch.equal(module(inputs), module.head(state))
