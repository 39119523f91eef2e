"""Every convolution of PyTorch Geometric, on a small random graph."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import conv

from experiments.first_try.cases import Inputs, Kind, NotRunnableError, TorchCase
from experiments.first_try.sources.calls import trainable

KINDS = ("inference", "training")
NODES, EDGES, CHANNELS, KINDS_OF_EDGES = 12, 40, 8, 3
METADATA = (["a", "b"], [("a", "to", "b"), ("b", "to", "a")])


def names() -> list[str]:
    """All convolutions, without the class they inherit from."""
    return [name for name in sorted(conv.__all__) if name != "MessagePassing"]


def case(name: str, kind: Kind) -> TorchCase:
    """A convolution whose arguments are given by their names. Raises NotRunnableError for one without an example."""
    torch.manual_seed(0)
    cls = getattr(conv, name)
    given = _SETTINGS[name]() if name in _SETTINGS else {}
    module = cls(**_examples(cls.__init__, _ARGUMENTS, given), **given)
    inputs: Inputs = _INPUTS[name]() if name in _INPUTS else _examples(cls.forward, _VALUES, {})
    return TorchCase(trainable(module) if kind == "training" else module, inputs)


def _examples(function: Callable[..., Any], examples: Mapping[str, Callable[[], Any]], given: Mapping[str, Any]) -> dict[str, Any]:
    """An example for each parameter without a default that is not given, and for those of `_ALWAYS`."""
    parameters = [*inspect.signature(function).parameters.values()][1:]
    plain = [parameter for parameter in parameters if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)]
    wanted = [p.name for p in plain if p.name not in given and (p.default is p.empty or p.name in _ALWAYS)]
    unknown = [name for name in wanted if name not in examples]
    if unknown:
        raise NotRunnableError(f"needs {', '.join(unknown)}, of which the sweep has no example")
    return {name: examples[name]() for name in wanted}


def _network(inputs: int = CHANNELS, outputs: int = CHANNELS) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 16), nn.ReLU(), nn.Linear(16, outputs))


def _edges() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(NODES, (2, EDGES), generator=generator)


def _nodes(channels: int = CHANNELS) -> Tensor:
    return torch.randn(NODES, channels, generator=torch.Generator().manual_seed(1))


def _of_edges(channels: int) -> Tensor:
    return torch.rand(EDGES, channels, generator=torch.Generator().manual_seed(2))


def _types() -> Tensor:
    return torch.arange(EDGES) % KINDS_OF_EDGES


def _of_kinds() -> dict[str, Any]:
    return {
        "x_dict": {"a": _nodes(), "b": _nodes()},
        "edge_index_dict": {kind: _edges() for kind in METADATA[1]},
    }


_ALWAYS = ("edge_type",)
_ARGUMENTS: dict[str, Callable[[], Any]] = {
    "in_channels": lambda: CHANNELS,
    "out_channels": lambda: CHANNELS,
    "channels": lambda: CHANNELS,
    "hidden_channels": lambda: CHANNELS,
    "K": lambda: 2,
    "k": lambda: 3,
    "alpha": lambda: 0.1,
    "dim": lambda: 2,
    "kernel_size": lambda: 3,
    "num_layers": lambda: 2,
    "num_relations": lambda: KINDS_OF_EDGES,
    "num_node_types": lambda: 2,
    "num_edge_types": lambda: KINDS_OF_EDGES,
    "edge_dim": lambda: 4,
    "edge_type_emb_dim": lambda: 4,
    "edge_attr_emb_dim": lambda: 4,
    "filter_size": lambda: 2,
    "space_dimensions": lambda: 3,
    "propagate_dimensions": lambda: 4,
    "first_aggr": lambda: True,
    "metadata": lambda: METADATA,
    "nn": _network,
    "mlp_h": lambda: _network(CHANNELS, 3),
    "mlp_f": lambda: _network(CHANNELS + 3, CHANNELS),
    "mlp_g": _network,
    "aggregators": lambda: ["mean", "max", "std"],
    "scalers": lambda: ["identity", "amplification"],
    "deg": lambda: torch.bincount(torch.bincount(_edges()[1], minlength=NODES)),
    "conv": lambda: conv.SAGEConv(CHANNELS, CHANNELS),
    "convs": lambda: {kind: conv.SAGEConv((CHANNELS, CHANNELS), CHANNELS) for kind in METADATA[1]},
}
_VALUES: dict[str, Callable[[], Any]] = {
    "x": _nodes,
    "x_0": _nodes,
    "edge_index": _edges,
    "pos_edge_index": _edges,
    "neg_edge_index": lambda: _edges().flip(1),
    "hyperedge_index": _edges,
    "pos": lambda: _nodes(3),
    "normal": lambda: nn.functional.normalize(_nodes(3), dim=-1),
    "edge_type": _types,
    "node_type": lambda: torch.arange(NODES) % 2,
    "x_dict": lambda: _of_kinds()["x_dict"],
    "edge_index_dict": lambda: _of_kinds()["edge_index_dict"],
}
_SETTINGS: dict[str, Callable[[], dict[str, Any]]] = {
    "DynamicEdgeConv": lambda: {"nn": _network(2 * CHANNELS)},
    "EdgeConv": lambda: {"nn": _network(2 * CHANNELS)},
    "GCN2Conv": lambda: {"theta": 0.5, "layer": 1},
    "NNConv": lambda: {"nn": _network(4, CHANNELS * CHANNELS)},
    "XConv": lambda: {"dim": 3, "hidden_channels": 4},
}
_INPUTS: dict[str, Callable[[], Inputs]] = {
    "CGConv": lambda: (_nodes(), _edges()),
    "DNAConv": lambda: {"x": torch.stack([_nodes(), _nodes()], dim=1), "edge_index": _edges()},
    "GINEConv": lambda: {"x": _nodes(), "edge_index": _edges(), "edge_attr": _of_edges(CHANNELS)},
    "GMMConv": lambda: {"x": _nodes(), "edge_index": _edges(), "edge_attr": _of_edges(2)},
    "HEATConv": lambda: {
        "x": _nodes(), "edge_index": _edges(), "node_type": torch.arange(NODES) % 2, "edge_type": _types(), "edge_attr": _of_edges(4),
    },
    "HeteroConv": lambda: tuple(_of_kinds().values()),
    "MeshCNNConv": lambda: {"x": _nodes(), "edge_index": torch.randint(NODES, (2, 4 * NODES))},
    "NNConv": lambda: {"x": _nodes(), "edge_index": _edges(), "edge_attr": _of_edges(4)},
    "PDNConv": lambda: {"x": _nodes(), "edge_index": _edges(), "edge_attr": _of_edges(4)},
    "PointNetConv": lambda: {"x": _nodes(), "pos": _nodes(3), "edge_index": _edges()},
    "SplineConv": lambda: {"x": _nodes(), "edge_index": _edges(), "edge_attr": _of_edges(2)},
    "WLConv": lambda: {"x": torch.arange(NODES), "edge_index": _edges()},
}  # fmt: skip
