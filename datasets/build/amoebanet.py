"""AmoebaNet-A (Real et al. 2019, figure 5), as the authors' published programme wires its cells, for ImageNet.

A stem convolution, two reduction cells, then three times N normal cells with a reduction cell between them; each cell takes the outputs of
the two before it. The paper's sizes: N = 6 and F = 190 filters on 331 x 331 images, 86.7 M parameters and 23.1 billion multiply-adds (ours
86,718,039 and 23.2); N = 4 and F = 50 on 224 x 224 for mobile devices, 5.1 M and 555 M (ours 5,086,102 and 556). A normal cell puts out `p`
besides what the figure shows: without it a tenth of the parameters would be missing. A separable convolution is applied twice, each time
after a ReLU and before batch norm; the first cell projects `p` as all others do. No auxiliary head, no path dropout, no weight decay.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

STEM, DROPOUT = 32, 0.5

# A combination adds up two layers of the cell: "sep5 h" is a separable 5 x 5 convolution of h, "p" is p itself. h is what comes from the
# cell before (projected), p from the one before that, a number an earlier combination. What takes h or p halves in a reduction cell.
NORMAL = (("avg h", "max h"), ("sep3 p", "p"), ("h", "avg p"), ("sep3 h", "sep5 0"), ("avg 3", "sep3 h"))
NORMAL_OUTPUTS = ("p", "1", "2", "4")
REDUCTION = (("sep3 p", "avg h"), ("max h", "sep7 0"), ("max p", "max h"), ("sep3 2", "1x7 h"), ("avg p", "sep7 h"))
REDUCTION_OUTPUTS = ("0", "1", "2", "3", "4")


@dataclass(frozen=True)
class Sizes:
    """Normal cells of a stage, filters of the first stage."""

    repeated: int = 6
    filters: int = 190
    classes: int = 1000


FULL, MOBILE = Sizes(), Sizes(repeated=4, filters=50)


class Projection(nn.Sequential):
    """A ReLU, a convolution without bias and batch norm."""

    def __init__(self, before: int, after: int, window: tuple[int, int] = (1, 1), stride: tuple[int, int] = (1, 1)) -> None:
        padding = (window[0] // 2, window[1] // 2)
        super().__init__(nn.ReLU(), nn.Conv2d(before, after, window, stride, padding, bias=False), nn.BatchNorm2d(after))


class Separable(nn.Sequential):
    """A ReLU, a depthwise and a 1 x 1 convolution and batch norm."""

    def __init__(self, before: int, after: int, window: int, stride: int) -> None:
        depthwise = nn.Conv2d(before, before, window, stride, window // 2, groups=before, bias=False)
        super().__init__(nn.ReLU(), depthwise, nn.Conv2d(before, after, 1, bias=False), nn.BatchNorm2d(after))


class Halving(nn.Module):
    """Every other position, and every other one shifted by one, each projected to half of the filters."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.even = nn.Conv2d(before, after // 2, 1, bias=False)
        self.odd = nn.Conv2d(before, after - after // 2, 1, bias=False)
        self.norm = nn.BatchNorm2d(after)

    def forward(self, image: Tensor) -> Tensor:
        image = torch.relu(image)
        shifted = functional.pad(image, (0, 1, 0, 1))[:, :, 1:, 1:]
        halves = self.even(functional.avg_pool2d(image, 1, 2)), self.odd(functional.avg_pool2d(shifted, 1, 2))
        return self.norm(torch.cat(halves, dim=1))


class Cell(nn.Module):
    """The outputs before the last and of the last, `[batch channels height width]`, to the next one; `halved`: `p` is twice as large."""

    def __init__(self, p: int, h: int, filters: int, reduces: bool, halved: bool) -> None:
        super().__init__()
        self.combinations, self.outputs = (REDUCTION, REDUCTION_OUTPUTS) if reduces else (NORMAL, NORMAL_OUTPUTS)
        self.p = Halving(p, filters) if halved else nn.Identity() if p == filters else Projection(p, filters)
        self.h = Projection(h, filters)
        self.sides = nn.ModuleList(
            nn.ModuleList(_layer(side, filters, reduces) for side in combination) for combination in self.combinations
        )

    def forward(self, p: Tensor, h: Tensor) -> Tensor:
        parts: dict[str, Tensor] = {"p": self.p(p), "h": self.h(h)}
        for i, (sides, layers) in enumerate(zip(self.combinations, self.sides, strict=True)):
            left, right = (layer(parts[side.split()[-1]]) for side, layer in zip(sides, layers, strict=True))
            parts[str(i)] = left + right
        return torch.cat([parts[name] for name in self.outputs], dim=1)


class AmoebaNet(nn.Module):
    """Images `[batch 3 height width]` to logits `[batch classes]`."""

    def __init__(self, sizes: Sizes = FULL) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, STEM, 3, stride=2, bias=False), nn.BatchNorm2d(STEM))
        self.cells, p, h, halved = nn.ModuleList(), STEM, STEM, False
        for filters, reduces in _cells(sizes):
            self.cells.append(Cell(p, h, filters, reduces, halved))
            p, h, halved = h, filters * len(REDUCTION_OUTPUTS if reduces else NORMAL_OUTPUTS), reduces
        self.dropout, self.out = nn.Dropout(DROPOUT), nn.Linear(h, sizes.classes)

    def forward(self, image: Tensor) -> Tensor:
        p = h = self.stem(image)
        for cell in self.cells:
            p, h = h, cell(p, h)
        return self.out(self.dropout(torch.relu(h).mean(dim=(2, 3))))


def _cells(sizes: Sizes) -> list[tuple[int, bool]]:
    """Filters, and whether it halves the resolution, of each cell."""
    cells = [(sizes.filters // 4, True), (sizes.filters // 2, True)]
    for stage in range(3):
        filters = sizes.filters * 2**stage
        cells += [(filters, True)] * (stage > 0) + [(filters, False)] * sizes.repeated
    return cells


def _layer(side: str, filters: int, reduces: bool) -> nn.Module:
    *kinds, name = side.split()
    stride = 2 if reduces and name in ("p", "h") else 1
    match kinds:
        case []:
            return nn.Identity()
        case ["avg"]:
            return nn.AvgPool2d(3, stride, 1, count_include_pad=False)
        case ["max"]:
            return nn.MaxPool2d(3, stride, 1)
        case ["1x7"]:
            return _seven(filters, stride)
    window = int(kinds[0].removeprefix("sep"))
    return nn.Sequential(Separable(filters, filters, window, stride), Separable(filters, filters, window, 1))


def _seven(filters: int, stride: int) -> nn.Module:
    """A 1 x 7 and a 7 x 1 convolution of a quarter of the filters, between two 1 x 1 convolutions."""
    narrow = filters // 4
    rows, columns = Projection(narrow, narrow, (1, 7), (1, stride)), Projection(narrow, narrow, (7, 1), (stride, 1))
    return nn.Sequential(Projection(filters, narrow), rows, columns, Projection(narrow, filters))
