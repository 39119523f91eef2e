"""Networks drawn at random of what is hard to place: views, writes in place through them, lazy conjugates, reads before and after."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

import torch
from torch import Tensor, nn

from experiments.placed_operators.nets import Net

LENGTH = 14
ROWS, COLUMNS = 4, 6
View = Callable[[Tensor, Random], Tensor]


class Composition(nn.Module):
    """A walk of `LENGTH` steps over tensors of one dtype: two buffers, whose values last, and what is computed of a parameter."""

    def __init__(self, seed: int, dtype: torch.dtype) -> None:
        super().__init__()
        made = torch.Generator().manual_seed(seed)
        self._seed = seed
        self.weight = nn.Parameter(torch.randn(ROWS, COLUMNS, dtype=dtype, generator=made))
        self.register_buffer("state", torch.randn(ROWS, COLUMNS, dtype=dtype, generator=made))
        self.register_buffer("other", torch.randn(ROWS, COLUMNS, dtype=dtype, generator=made))

    def forward(self, x: Tensor) -> list[Tensor]:
        """Everything that was read, then all tensors as they are at the end."""
        draw, read = Random(self._seed), list[Tensor]()
        tensors = [self.state, self.other, self.weight * x, self.weight + x]
        for _ in range(LENGTH):
            tensor = draw.choice(tensors)
            match draw.choice(("view", "view", "view", "write", "write", "write", "read", "compute", "replace")):
                case "view":
                    tensors.append(draw.choice(VIEWS)(tensor, draw))
                case "write":
                    self._write(tensor, draw.choice(tensors), draw)
                case "read":
                    read.append(tensor * draw.uniform(0.5, 2))
                case "compute":
                    tensors.append(tensor + draw.choice(tensors).mean())
                case "replace":
                    self.other = self.other.detach() * 0.5 + self.state.detach().sum()
        return [*read, *tensors]

    def _write(self, tensor: Tensor, value: Tensor, draw: Random) -> None:
        """In place; what holds no gradient gets none."""
        if tensor.requires_grad:
            draw.choice(WRITES)(tensor, value.mean())
        else:
            with torch.no_grad():
                draw.choice(WRITES)(tensor, value.detach().mean())


def _real(tensor: Tensor, draw: Random) -> Tensor:
    return tensor.real if tensor.is_complex() else tensor[..., draw.randrange(tensor.shape[-1])]


def _imaginary(tensor: Tensor, draw: Random) -> Tensor:
    return tensor.imag if tensor.is_complex() else tensor.detach()


def _parts(tensor: Tensor, _: Random) -> Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() and not tensor.is_conj() else tensor.view_as(tensor)


def _half(tensor: Tensor, draw: Random) -> Tensor:
    return draw.choice(tensor.chunk(2, draw.randrange(tensor.dim()))) if tensor.dim() else tensor


def _row(tensor: Tensor, draw: Random) -> Tensor:
    return tensor.select(0, draw.randrange(tensor.shape[0])) if tensor.dim() else tensor[None]


def _steps(tensor: Tensor, draw: Random) -> Tensor:
    return tensor[draw.randrange(2) :: 2] if tensor.dim() and tensor.shape[0] > 1 else tensor.unsqueeze(0)


VIEWS: Sequence[View] = (
    _real, _imaginary, _parts, _half, _row, _steps,
    lambda tensor, _: tensor.conj(), lambda tensor, _: tensor.mH if tensor.dim() == 2 else tensor.conj(),
    lambda tensor, _: tensor.transpose(0, -1) if tensor.dim() else tensor[None],
    lambda tensor, _: tensor.diagonal() if tensor.dim() > 1 else tensor.unsqueeze(-1),
    lambda tensor, draw: draw.choice(tensor.unbind(0)) if tensor.dim() else tensor.detach(),
    lambda tensor, _: tensor.reshape(-1), lambda tensor, _: tensor.detach(), lambda tensor, _: torch._neg_view(tensor),
)  # fmt: skip
WRITES: Sequence[Callable[[Tensor, Tensor], object]] = (
    lambda tensor, value: tensor.add_(value if tensor.is_complex() else value.real),
    lambda tensor, value: tensor.copy_((value if tensor.is_complex() else value.real).expand(tensor.shape)),
    lambda tensor, value: tensor.mul_(0.5),
    lambda tensor, value: tensor.zero_(),
    lambda tensor, value: tensor.neg_(),
    lambda tensor, value: tensor.conj_physical_(),
)  # fmt: skip


def compositions() -> Iterator[Net]:
    """Without end; PyTorch itself refuses some."""
    seed = 0
    while True:
        for dtype in (torch.float32, torch.complex64):
            yield Net("compositions", f"{seed} {str(dtype).removeprefix('torch.')}", _made(seed, dtype))
        seed += 1


def _made(seed: int, dtype: torch.dtype) -> Callable[[], nn.Module]:
    return lambda: Composition(seed, dtype)
