"""More PyTorch graph networks of the corpus: whole graphs, knowledge graphs, molecules; and graph networks that answer requests."""

from __future__ import annotations

import torch

from datasets.build import gin, graphsage, rgcn, schnet, torch_others
from datasets.build.losses import binary_loss, class_loss, squared_loss
from datasets.build.torch_workload import Workload, without_labels
from gnnplace.frontends.torch.step import TorchStep


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
    return TorchStep(rgcn.RGCN(sizes), binary_loss, (*inputs, torch.randint(2, (scored,)).float()))


def molecules(sizes: schnet.Sizes = schnet.FULL) -> TorchStep:
    """The energies of a batch of molecules."""
    atoms = sizes.molecules * sizes.atoms
    source, target = torch.randint(atoms, (2, atoms * (sizes.atoms - 1))).unbind()
    molecule = torch.arange(sizes.molecules).repeat_interleave(sizes.atoms)
    inputs = (torch.randint(schnet.ELEMENTS, (atoms,)), torch.rand(atoms, 3), source, target, molecule)
    return TorchStep(schnet.SchNet(sizes), squared_loss, (*inputs, torch.rand(sizes.molecules)))


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
        lambda: without_labels(torch_others.graph_attention()),
        "datasets/build/gat.py, 3 layers of 4, 4 and 6 heads on 4,746 nodes, 136,454 edges and self-loops; forward",
    ),
    "graphsage-inference": torch_others.WORKLOADS["graphsage"].inference(
        lambda: without_labels(torch_others.graph_sage(graphsage.Sizes(batch=64))),
        "datasets/build/graphsage.py, mean aggregator, 25 and 10 neighbours, features of Reddit; batch 64; forward",
    ),
}  # fmt: skip
