"""A capture leaves the module as it was, also one that has two names."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import gnnplace as gp


@pytest.mark.parametrize("trains", [True, False])
def test_a_module_of_two_names_has_its_own_tensors_after_a_capture(trains: bool) -> None:
    linear, norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
    net = nn.Sequential(linear, norm, linear, norm)
    before = [id(tensor) for tensor in (*net.parameters(), *net.buffers())]
    x = (torch.zeros(3, 4),)
    step = gp.TorchStep(net, lambda net, x: net(x).sum(), x) if trains else gp.TorchInference(net, x)
    step.computation_graph("net")
    assert [id(tensor) for tensor in (*net.parameters(), *net.buffers())] == before
