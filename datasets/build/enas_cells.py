"""Convolutional networks of the ENAS micro search space, on CIFAR-10 (Pham et al. 2018, section 2.4).

A cell has seven nodes: the outputs of the two cells before it, and five that each add up two operations on earlier nodes. An operation is
the identity, a separable convolution of 3 x 3 or 5 x 5 (twice, each after a ReLU and before a batch norm) or a pool of 3 x 3. The nodes
that no other takes are the cell's output. A network repeats one normal cell, with a reduction cell of another draw after each third:
there the operations on the two inputs have stride 2, and there are twice as many filters from there on.

A child network as the authors' search trains it: six normal cells, 20 filters, batches of 160. No auxiliary head, no path dropout.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

OPERATIONS = ("identity", "conv3", "conv5", "avg", "max")
INPUTS, NODES = 2, 5
CELLS, FILTERS, CLASSES = 6, 20, 10


class Node(NamedTuple):
    """Adds up two operations, each on an earlier node: 0 is the cell before the last one, 1 the last one."""

    sources: tuple[int, int]
    operations: tuple[str, str]


def sampled(generator: np.random.Generator) -> tuple[Node, ...]:
    """A cell, each choice as likely as any other."""
    return tuple(
        Node(
            (int(generator.integers(node)), int(generator.integers(node))),
            (str(generator.choice(OPERATIONS)), str(generator.choice(OPERATIONS))),
        )
        for node in range(INPUTS, INPUTS + NODES)
    )  # fmt: skip


def loose_ends(nodes: tuple[Node, ...]) -> tuple[int, ...]:
    """The computed nodes that no other takes."""
    taken = {source for node in nodes for source in node.sources}
    return tuple(node for node in range(INPUTS, INPUTS + len(nodes)) if node not in taken)


class Network(nn.Module):
    """Images `[batch 3 32 32]` to classes: a 3 x 3 convolution of three times the filters, the cells, a mean and a product."""

    def __init__(self, normal: tuple[Node, ...], reduction: tuple[Node, ...], cells: int = CELLS, filters: int = FILTERS) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 3 * filters, 3, padding=1, bias=False), nn.BatchNorm2d(3 * filters))
        before = last = 3 * filters
        reduced = False
        self.cells = nn.ModuleList()
        for index in range(cells + 2):
            reduces = index in (cells // 3, 2 * (cells // 3) + 1)
            filters *= 1 + reduces
            cell = Cell(reduction if reduces else normal, (before, last), filters, reduces, reduced)
            self.cells.append(cell)
            before, last, reduced = last, cell.outputs, reduces
        self.head = nn.Linear(last, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        before = last = self.stem(images)
        for cell in self.cells:
            before, last = last, cell(before, last)
        return self.head(functional.relu(last).mean(dim=(2, 3)))


class Cell(nn.Module):
    """The outputs of the two cells before to this one's; `reduced`: the last one is half as high and wide as the one before it."""

    def __init__(self, nodes: tuple[Node, ...], inputs: tuple[int, int], filters: int, reduces: bool, reduced: bool) -> None:
        super().__init__()
        fits = Halved(inputs[0], filters) if reduced else projection(inputs[0], filters)
        self.fits = nn.ModuleList((fits, projection(inputs[1], filters)))
        self.sources = [source for node in nodes for source in node.sources]
        strides = [2 if reduces and source < INPUTS else 1 for source in self.sources]
        kinds = [kind for node in nodes for kind in node.operations]
        self.operations = nn.ModuleList(operation(kind, filters, stride) for kind, stride in zip(kinds, strides, strict=True))
        self.ends = loose_ends(nodes)
        self.outputs = filters * len(self.ends)

    def forward(self, before: Tensor, last: Tensor) -> Tensor:
        nodes = [fit(x) for fit, x in zip(self.fits, (before, last), strict=True)]
        terms: list[Tensor] = []
        for source, operation in zip(self.sources, self.operations, strict=True):
            terms.append(operation(nodes[source]))
            if len(terms) == 2:
                nodes.append(terms[0] + terms[1])
                terms = []
        return torch.cat([nodes[end] for end in self.ends], dim=1)


def operation(kind: str, filters: int, stride: int) -> nn.Module:
    """One of OPERATIONS; an identity of stride 2 halves without losing positions."""
    match kind:
        case "identity":
            return nn.Identity() if stride == 1 else Halved(filters, filters)
        case "avg":
            return nn.AvgPool2d(3, stride, padding=1, count_include_pad=False)
        case "max":
            return nn.MaxPool2d(3, stride, padding=1)
    window = int(kind.removeprefix("conv"))
    return nn.Sequential(*separable(filters, window, stride), *separable(filters, window, 1))


def separable(filters: int, window: int, stride: int) -> tuple[nn.Module, ...]:
    """ReLU, a convolution of each channel, one across channels, batch norm."""
    depthwise = nn.Conv2d(filters, filters, window, stride, padding=window // 2, groups=filters, bias=False)
    return nn.ReLU(), depthwise, nn.Conv2d(filters, filters, 1, bias=False), nn.BatchNorm2d(filters)


def projection(inputs: int, filters: int) -> nn.Module:
    """To the filters of a cell."""
    return nn.Sequential(nn.ReLU(), nn.Conv2d(inputs, filters, 1, bias=False), nn.BatchNorm2d(filters))


class Halved(nn.Module):
    """Every other position, and every other one shifted by one, each projected to half of the filters."""

    def __init__(self, inputs: int, filters: int) -> None:
        super().__init__()
        self.even, self.odd = (nn.Conv2d(inputs, filters // 2, 1, stride=2, bias=False) for _ in range(2))
        self.norm = nn.BatchNorm2d(filters)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(x)
        shifted = functional.pad(x, (0, 1, 0, 1))[:, :, 1:, 1:]
        return self.norm(torch.cat([self.even(x), self.odd(shifted)], dim=1))
