"""More PyTorch graph networks of the corpus: whole graphs, knowledge graphs, molecules; and graph networks that answer requests."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from datasets.build import gin, graphsage, rgcn, schnet, torch_others
from datasets.build.torch_models import click_loss
from datasets.build.torch_vision import class_loss
from datasets.build.torch_workload import Workload
from gnnplace.frontends.torch_step import TorchInference, TorchStep


def graph_isomorphism(sizes: gin.Sizes = gin.FULL) -> TorchStep:
    """The kinds of a batch of graphs."""
    source, target = torch.randint(sizes.nodes, (2, sizes.edges)).unbind()
    inputs = (torch.rand(sizes.nodes, sizes.features), source, target, torch.randint(sizes.graphs, (sizes.nodes,)))
    return TorchStep(gin.GIN(sizes), class_loss, (*inputs, torch.randint(sizes.classes, (sizes.graphs,))))


def knowledge_graph(sizes: rgcn.Sizes = rgcn.FULL) -> TorchStep:
    """Which triples are true: those of the graph, and as many made up?"""
    edges, scored = 2 * sizes.triples, 2 * sizes.triples
    source, target = torch.randint(sizes.entities, (2, edges)).unbind()
    subject, other = torch.randint(sizes.entities, (2, scored)).unbind()
    inputs = (source, target, torch.rand(edges), subject, torch.randint(sizes.relations, (scored,)), other)
    return TorchStep(rgcn.RGCN(sizes), click_loss, (*inputs, torch.randint(2, (scored,)).float()))


def molecules(sizes: schnet.Sizes = schnet.FULL) -> TorchStep:
    """The energies of a batch of molecules."""
    atoms = sizes.molecules * sizes.atoms
    source, target = torch.randint(atoms, (2, atoms * (sizes.atoms - 1))).unbind()
    molecule = torch.arange(sizes.molecules).repeat_interleave(sizes.atoms)
    inputs = (torch.randint(schnet.ELEMENTS, (atoms,)), torch.rand(atoms, 3), source, target, molecule)
    return TorchStep(schnet.SchNet(sizes), _energy_loss, (*inputs, torch.rand(sizes.molecules)))


def graph_attention_requests() -> TorchInference:
    """Which functions has each protein of two graphs?"""
    step = torch_others.graph_attention()
    return TorchInference(step.module, step.inputs[:-1])


def graph_sage_requests(batch: int = 64) -> TorchInference:
    """The classes of a few nodes, by sampled neighbours."""
    step = torch_others.graph_sage(graphsage.Sizes(batch=batch))
    return TorchInference(step.module, step.inputs[:-1])


WORKLOADS: dict[str, Workload] = {
    "gin": Workload(
        graph_isomorphism, "gin", "graph",
        "datasets/build/gin.py, 4 aggregations of 64 on 9,536 nodes and 629,198 edges of 128 graphs as COLLAB's; Adam",
    ),
    "r-gcn": Workload(
        knowledge_graph, "r-gcn", "graph",
        "datasets/build/rgcn.py, 2 layers of 500 in blocks of 5, 14,541 entities, 237 relations, 272,115 triples as FB15k-237's; Adam",
    ),
    "schnet": Workload(
        molecules, "schnet", "graph",
        "datasets/build/schnet.py, 6 interactions of 128, molecules of 18 atoms; batch 128; Adam",
    ),
    "gat-inference": torch_others.WORKLOADS["gat"].inference(
        graph_attention_requests,
        "datasets/build/gat.py, 3 layers of 4, 4 and 6 heads on 4,746 nodes, 136,454 edges and self-loops; forward",
    ),
    "graphsage-inference": torch_others.WORKLOADS["graphsage"].inference(
        graph_sage_requests, "datasets/build/graphsage.py, mean aggregator, 25 and 10 neighbours, features of Reddit; batch 64; forward"
    ),
}  # fmt: skip


def _energy_loss(module: nn.Module, *inputs: Tensor) -> Tensor:
    *molecules, energies = inputs
    return functional.mse_loss(module(*molecules), energies)
