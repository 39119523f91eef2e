"""SchNet (Schuett et al. 2018, "SchNet - A deep learning architecture for molecules and materials", section II): energies of molecules.

Each pair of atoms is a continuous filter, made of 50 Gaussians of their distance by two layers; in each of six interactions an atom sums
the features of the others times these filters. 128 features, distances up to 10 angstrom, faded out by a cosine: 455,809 parameters, as in
the public implementations for QM9. A batch of 128 molecules of 18 atoms, QM9's average, all pairs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

CUTOFF, ELEMENTS = 10.0, 100


@dataclass(frozen=True)
class Sizes:
    """Of the model and of a batch of molecules."""

    molecules: int = 128
    atoms: int = 18
    width: int = 128
    gaussians: int = 50
    interactions: int = 6


FULL = Sizes()


class ShiftedSoftplus(nn.Module):
    """Softplus that is 0 at 0."""

    def forward(self, hidden: Tensor) -> Tensor:
        return functional.softplus(hidden) - math.log(2)


class Gaussians(nn.Module):
    """Distances `[pairs]` to Gaussians around evenly spread ones `[pairs gaussians]`."""

    def __init__(self, gaussians: int) -> None:
        super().__init__()
        self.register_buffer("centres", torch.linspace(0, CUTOFF, gaussians))
        self.slope = -0.5 * ((gaussians - 1) / CUTOFF) ** 2

    def forward(self, distance: Tensor) -> Tensor:
        return torch.exp(self.slope * (distance[:, None] - self.centres).square())


class Interaction(nn.Module):
    """What the other atoms tell each atom `[atoms width]`, added to it."""

    def __init__(self, width: int, gaussians: int) -> None:
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(gaussians, width), ShiftedSoftplus(), nn.Linear(width, width))
        self.inward = nn.Linear(width, width, bias=False)
        self.outward = nn.Sequential(nn.Linear(width, width), ShiftedSoftplus(), nn.Linear(width, width))

    def forward(self, atoms: Tensor, source: Tensor, target: Tensor, gaussians: Tensor, fading: Tensor) -> Tensor:
        messages = self.inward(atoms).index_select(0, source) * (self.filter(gaussians) * fading[:, None])
        return atoms + self.outward(torch.zeros_like(atoms).index_add(0, target, messages))


class SchNet(nn.Module):
    """Atomic numbers `[atoms]`, positions in angstrom `[atoms 3]`, pairs and the molecule of each atom to energies `[molecules]`."""

    def __init__(self, sizes: Sizes = FULL) -> None:
        super().__init__()
        width, self.molecules = sizes.width, sizes.molecules
        self.embedding, self.gaussians = nn.Embedding(ELEMENTS, width), Gaussians(sizes.gaussians)
        self.interactions = nn.ModuleList(Interaction(width, sizes.gaussians) for _ in range(sizes.interactions))
        self.out = nn.Sequential(nn.Linear(width, width // 2), ShiftedSoftplus(), nn.Linear(width // 2, 1))

    def forward(self, numbers: Tensor, positions: Tensor, source: Tensor, target: Tensor, molecule: Tensor) -> Tensor:
        apart = positions.index_select(0, source) - positions.index_select(0, target)
        distance = apart.square().sum(dim=1).sqrt()
        gaussians, fading = self.gaussians(distance), 0.5 * (torch.cos(distance * (math.pi / CUTOFF)) + 1)
        atoms = self.embedding(numbers)
        for interaction in self.interactions:
            atoms = interaction(atoms, source, target, gaussians, fading)
        energies = self.out(atoms).squeeze(1)
        return energies.new_zeros(self.molecules).index_add(0, molecule, energies)
