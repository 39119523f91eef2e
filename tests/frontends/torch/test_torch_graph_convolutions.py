"""Convolutions of PyTorch Geometric are captured with the sizes of their example, and compute what PyTorch computes."""

from __future__ import annotations

import pytest
import torch
from support import placed_steps
from torch import nn

import gnnplace as gp
from gnnplace.isolation.worker import usable_cores

pytest.importorskip("torch_geometric")
from support import convolved_graphs
from support.convolved_graphs import CONVOLUTIONS, EDGES, Net


@pytest.mark.skipif(len(usable_cores()) < 2, reason="two CPU devices need two cores")
@pytest.mark.slow
@pytest.mark.parametrize("convolution", CONVOLUTIONS)
@pytest.mark.parametrize("trains", [True, False])
def test_a_placed_convolution_computes_what_pytorch_computes(convolution: type[nn.Module], trains: bool) -> None:
    torch.manual_seed(0)
    net = Net(convolution)
    step = convolved_graphs.step(net, trains, EDGES)
    plan, call = placed_steps.split(step), convolved_graphs.loss if trains else Net.forward
    assert set(plan.device) == {0, 1}
    expected = call(net, *step.inputs)
    gradients = torch.autograd.grad(expected.sum(), list(net.parameters()))
    with gp.placed(step, plan) as model:
        found = model(*step.inputs)
        assert torch.equal(found, expected)
        other = torch.randn(4, 3)
        assert torch.equal(model(other, EDGES), call(net, other, EDGES))
        if trains:
            found.backward()
            assert all(torch.equal(each.grad, gradient) for each, gradient in zip(net.parameters(), gradients, strict=True))


@pytest.mark.parametrize("trains", [True, False])
@pytest.mark.parametrize("convolution", CONVOLUTIONS)
def test_the_self_loops_of_the_example_are_those_of_the_graph(convolution: type[nn.Module], trains: bool) -> None:
    """Both add a loop to every node, in place of the two in the example; SAGEConv adds none, so its sizes are those of any example."""
    graph = convolved_graphs.step(Net(convolution), trains, EDGES).computation_graph("net")
    adds_loops = convolution is not CONVOLUTIONS[2]
    assert graph.name == ("net, sizes of the example" if adds_loops else "net")
    messages = graph.kind.among(["aten.index_select"]) & graph.phase.among(["forward"])
    rows = {graph.shape(int(graph.output_ptr[op]))[0] for op in messages.nonzero()[0]}
    assert 6 - 2 + 4 in rows if adds_loops else 6 in rows


@pytest.mark.parametrize("trains", [True, False])
@pytest.mark.parametrize("convolution", CONVOLUTIONS[:2])
def test_without_the_option_a_convolution_with_self_loops_is_refused_by_its_name(convolution: type[nn.Module], trains: bool) -> None:
    step = convolved_graphs.step(Net(convolution), trains, EDGES, sizes=None)
    with pytest.raises(ValueError, match=r'^module: aten\.nonzero[^\n]* sizes="example" takes them from the example inputs$'):
        step.computation_graph("net")
