"""Networks of PyTorch's own test databases: an operator's samples called one after the other, a module with its state.

Every network takes one input, a number that scales its loss, and holds what it computes on in parameters and buffers.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

FORMS = ("called", "in place", "in place through a view")
DTYPES = (torch.float32, torch.complex64)
MOST_ELEMENTS = 20_000
INPUT = torch.tensor(1.0)


class Net(NamedTuple):
    """A network to be placed, made anew by `make()`; `kind` is the row of the table, `name` unique."""

    kind: str
    name: str
    make: Callable[[], nn.Module]


@dataclass(frozen=True)
class Held:
    """In the place of a tensor that the module holds by this name."""

    name: str


class Calls(nn.Module):
    """Calls a function once for each sample (arguments, a tree of values), in one of `FORMS`; returns all that it makes.

    Floating tensors are parameters, others buffers.
    """

    def __init__(self, call: Callable[..., Any], samples: Sequence[tuple[tuple[Any, ...], dict[str, Any]]], form: str) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))  # the loss depends on a parameter, whatever the operator does
        self._call, self._form = call, form
        self._samples = [pytree.tree_map(self._hold, sample) for sample in samples]

    def forward(self, x: Tensor) -> list[Any]:
        made: list[Any] = [self.scale * x]
        for sample in self._samples:
            (first, *rest), named = pytree.tree_map(lambda leaf: getattr(self, leaf.name) if isinstance(leaf, Held) else leaf, sample)
            match self._form:
                case "called":
                    made.append(self._call(first, *rest, **named))
                case "in place":
                    own = first.clone()
                    self._call(own, *rest, **named)
                    made.append(own)
                case _:
                    both = torch.stack([first, first])
                    before = both.sum()
                    self._call(both[1], *rest, **named)
                    made += [both, before, both[0]]
        return made

    def _hold(self, leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        name = f"tensor_{len(self._parameters) + len(self._buffers)}"
        value = leaf.detach().clone()
        if leaf.requires_grad:
            self.register_parameter(name, nn.Parameter(value))
        else:
            self.register_buffer(name, value)
        return Held(name)


class Called(nn.Module):
    """A module called on the arguments of its sample."""

    def __init__(self, inner: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        super().__init__()
        self.inner, self.scale = inner, nn.Parameter(torch.ones(()))
        self._sample, self._tensors = pytree.tree_map(self._hold, (arguments, named)), None

    def forward(self, x: Tensor) -> list[Any]:
        arguments, named = pytree.tree_map(lambda leaf: getattr(self, leaf.name) if isinstance(leaf, Held) else leaf, self._sample)
        return [self.scale * x, self.inner(*arguments, **named)]

    _hold = Calls._hold


def loss(net: nn.Module, x: Tensor) -> Tensor:
    """A scalar to which every element that a net makes counts, each with a weight of its own."""
    total = torch.zeros(())
    for value in pytree.tree_leaves(net(x)):
        if isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex()):
            parts = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
            weights = torch.cos(torch.arange(parts.numel(), dtype=torch.float32)).reshape(parts.shape)
            total = total + (parts.to(torch.float32) * weights).sum()
    return total


def operators(most_samples: int) -> Iterator[Net]:
    """A net for each operator, dtype and form; of its samples `most_samples`, spread over the database's."""
    for number, entry in enumerate(_operators()):
        for dtype in DTYPES:
            if dtype not in entry.dtypes:
                continue
            forms = FORMS if entry.inplace_variant is not None else FORMS[:1]
            for form in forms:
                name = f"{entry.formatted_name} {str(dtype).removeprefix('torch.')} {form}"
                yield Net("operators", name, _Made(number, dtype, form, most_samples))


class _Made(NamedTuple):
    number: int
    dtype: torch.dtype
    form: str
    most_samples: int

    def __call__(self) -> nn.Module:
        entry = _operators()[self.number]
        torch.manual_seed(0)
        grad = entry.supports_autograd and (self.dtype.is_floating_point or self.dtype.is_complex)
        samples = [s for s in entry.sample_inputs("cpu", self.dtype, requires_grad=grad) if self._fits(s)]
        chosen = [samples[len(samples) * part // self.most_samples] for part in range(self.most_samples)] if samples else []
        call = entry.op if self.form == "called" else entry.inplace_variant
        return Calls(call, [((sample.input, *sample.args), sample.kwargs) for sample in _distinct(chosen)], self.form)

    def _fits(self, sample: Any) -> bool:
        tensors = [leaf for leaf in pytree.tree_leaves((sample.input, sample.args, sample.kwargs)) if isinstance(leaf, Tensor)]
        small = sum(tensor.numel() for tensor in tensors if tensor.layout is torch.strided) <= MOST_ELEMENTS
        return small and (self.form == "called" or not sample.broadcasts_input)


def modules(most_samples: int) -> Iterator[Net]:
    """A net for each module's samples, of which `most_samples`, spread over the database's."""
    for number, entry in enumerate(_modules()):
        count = len(_sampled(entry))
        for sample in dict.fromkeys(count * part // most_samples for part in range(most_samples)) if count else ():
            yield Net("modules", f"{entry.name} {sample}", _MadeModule(number, sample))


class _MadeModule(NamedTuple):
    number: int
    sample: int

    def __call__(self) -> nn.Module:
        entry = _modules()[self.number]
        torch.manual_seed(0)
        sample = _sampled(entry)[self.sample]
        inner = entry.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs)
        return Called(inner, sample.forward_input.args, sample.forward_input.kwargs)


def _sampled(entry: Any) -> list[Any]:
    torch.manual_seed(0)
    found = entry.module_inputs_func(entry, device="cpu", dtype=torch.float32, requires_grad=True, training=True)
    return [sample for sample in found if sample.forward_input is not None]


def _distinct(samples: Sequence[Any]) -> list[Any]:
    return list({id(sample): sample for sample in samples}.values())


@cache
def _operators() -> Sequence[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return op_db


@cache
def _modules() -> Sequence[Any]:
    from torch.testing._internal.common_modules import module_db

    return module_db


def drawn(nets: Sequence[Net], every: int) -> list[Net]:
    """One in `every` nets, the same ones whatever else there is."""
    return [net for net in nets if zlib.crc32(net.name.encode()) % every == 0]
