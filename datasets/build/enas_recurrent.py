"""Language models of the ENAS recurrent search space, on the Penn Treebank (Pham et al. 2018, section 2.1).

A cell is a tree of twelve nodes: the first takes the word and the state, each other one earlier node, its source. A node is a highway
connection: of its source and an activation (tanh, ReLU, identity or sigmoid) of a product with it, as a gate says. The mean of the nodes
that no other takes is the next state. The embedding is also the output layer.

The width is that of the authors' search (720), with batches of 20; 10 of its 35 steps are unrolled. No dropout. Plain SGD.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gnnplace.frontends.torch.scopes import time_step

ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu, "identity": nn.Identity(), "sigmoid": torch.sigmoid}
NODES, UNITS, VOCABULARY, STEPS = 12, 720, 10_000, 10


class Node(NamedTuple):
    """An activation and the earlier node that it is for; of the first node the source is the state, -1."""

    source: int
    activation: str


def sampled(generator: np.random.Generator) -> tuple[Node, ...]:
    """A cell, each choice as likely as any other."""
    names = list(ACTIVATIONS)
    return tuple(Node(int(generator.integers(node)) if node else -1, names[generator.integers(len(names))]) for node in range(NODES))


def loose_ends(nodes: tuple[Node, ...]) -> tuple[int, ...]:
    """The nodes that no other takes."""
    taken = {node.source for node in nodes}
    return tuple(node for node in range(len(nodes)) if node not in taken)


class Highway(nn.Module):
    """A node: of its source, the activation of a product with what it has seen, as the gate says."""

    def __init__(self, activation: str, inputs: int, units: int) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.product = nn.Linear(inputs, 2 * units, bias=False)

    def forward(self, source: Tensor, seen: Tensor) -> Tensor:
        candidate, gate = self.product(seen).chunk(2, dim=1)
        return source + torch.sigmoid(gate) * (self.activation(candidate) - source)


class Cell(nn.Module):
    """A word `[batch units]` and the state to the next state. Nodes have names, not numbers: they are one layer, not twelve."""

    def __init__(self, nodes: tuple[Node, ...], units: int) -> None:
        super().__init__()
        self.sources, self.ends = [node.source for node in nodes], loose_ends(nodes)
        named = {f"node_{chr(ord('a') + i)}": Highway(node.activation, units if i else 2 * units, units) for i, node in enumerate(nodes)}
        self.nodes = nn.ModuleDict(named)

    def forward(self, word: Tensor, state: Tensor) -> Tensor:
        values: list[Tensor] = []
        for source, node in zip(self.sources, self.nodes.values(), strict=True):
            values.append(node(values[source], values[source]) if values else node(state, torch.cat([word, state], dim=1)))
        ends = [values[end] for end in self.ends]
        return ends[0] if len(ends) == 1 else torch.stack(ends).mean(dim=0)


class LanguageModel(nn.Module):
    """Tokens and those that follow them, both `[steps batch]`, to the mean cross entropy."""

    def __init__(self, nodes: tuple[Node, ...], units: int = UNITS, vocabulary: int = VOCABULARY) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, units)
        self.cell = Cell(nodes, units)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        embedded = self.embedding(tokens)
        state = embedded.new_zeros(embedded.shape[1:])
        losses = []
        for time, (word, target) in enumerate(zip(embedded.unbind(), targets.unbind(), strict=True)):
            with time_step(time):
                state = self.cell(word, state)
                losses.append(functional.cross_entropy(functional.linear(state, self.embedding.weight), target))
        return torch.stack(losses).mean()
