"""The framework of a graph is known by its ops, and names mean what they mean there."""

from __future__ import annotations

import torch
from torch import nn

import gnnplace as gp
from gnnplace.units.modules import of_pytorch


class Slashed(nn.ModuleDict):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self["last"](self["de/low"](self["other"](self["de"](x))))


def test_a_slash_in_a_name_of_pytorch_is_no_scope() -> None:
    net = Slashed({"de": nn.Linear(4, 4), "other": nn.Linear(4, 4), "de/low": nn.ReLU(), "last": nn.Linear(4, 4)})
    graph = gp.problem(gp.TorchInference(net, (torch.zeros(2, 4),)), cluster="k40-2").graph
    found = gp.modules(graph)
    assert of_pytorch(graph) and found.names == ("de", "other", "last")
    relu = graph.kind.values.index("aten.relu")
    assert [found.names[at] for at in found.module[graph.kind.index == relu]] == ["other"]


def test_ops_of_a_graph_of_ones_own_are_of_no_framework() -> None:
    graph = gp.ComputationGraph.from_ops("own", [gp.Op("x", "MatMul", (gp.Output(4),), flops=1, layer="a")], [])
    assert not of_pytorch(graph)
    assert not of_pytorch(gp.ComputationGraph.from_ops("inputs", [gp.Op("x", "input", (gp.Output(4),), kernel=False)], []))
