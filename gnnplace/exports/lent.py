"""A module lent for a trial: fake tensors replace its own, on the CPU or on devices that this machine need not have.

PyTorch built without CUDA refuses a few methods of fake tensors on `cuda`, which ask for their device first; and a node
of autograd for such a tensor ends the process. `pretended` runs these methods as if the tensors were on the CPU, and
records no gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partialmethod
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from gnnplace.frontends.torch.flat_step import Argument
from gnnplace.frontends.torch.inputs import ExampleInputs, uncompiled
from gnnplace.frontends.torch.known_values import KnownValues
from gnnplace.frontends.torch.refusals import silenced
from gnnplace.frontends.torch.step import TorchInference, TorchStep
from gnnplace.frontends.torch.trace import fake

ASKING = ("__getitem__", "__setitem__", "__invert__", "contiguous", "new_tensor")
NUMBERS = ("__int__", "__float__", "__complex__", "__index__")
HOSTED = ("gru", "lstm", "rnn_tanh", "rnn_relu", "nonzero")  # functions whose CUDA kernels have no fake form
CPU = torch.device("cpu")


@contextmanager
def lent(step: TorchStep | TorchInference, fallbacks: bool = True) -> Iterator[list[Tensor]]:
    """Within this context the parameters and buffers of the step's module are fake ones on the CPU.

    Gives a fake tensor for each of the step's inputs. Values are known as they are when the step is captured (see
    `KnownValues`). `fallbacks`: an op that has no fake form is computed, on zeros. Leaving the context restores the
    attributes of each module and the contents of the containers among them.
    """
    parts, inputs = list(step.module.modules()), ExampleInputs(step.batch.micro_batch).tensors
    before = [(part, dict(vars(part)), _contents(part)) for part in parts]
    try:
        with uncompiled(), KnownValues(step.sizes, fallbacks) as values, silenced():
            fakes: dict[int, Tensor] = {}
            for part in parts:
                for argument, tensor in _tensors(part):
                    if id(tensor) not in fakes:
                        fakes[id(tensor)] = _fake_like(tensor)
                        values.hold([fakes[id(tensor)]], [tensor], [argument])
                    setattr(part, argument.name, fakes[id(tensor)])
            given = list(map(fake, inputs))
            values.hold(given, inputs, [Argument("input", "")] * len(given))
            yield given
    finally:
        for part, attributes, contents in before:
            vars(part).clear()
            vars(part).update(attributes)
            for container, held in contents:
                container.clear()
                container.extend(held) if isinstance(container, list) else container.update(held)


def _tensors(part: nn.Module) -> list[tuple[Argument, Tensor]]:
    """The parameters and buffers of a module, without those of its children."""
    parameters = [(Argument("parameter", name), tensor) for name, tensor in part._parameters.items()]
    buffers = [(Argument("buffer", name), tensor) for name, tensor in part._buffers.items()]
    return [(argument, tensor) for argument, tensor in (*parameters, *buffers) if tensor is not None]


def _fake_like(tensor: Tensor) -> Tensor:
    """A fake tensor of the same layout, a parameter if the tensor is one."""
    like = fake(tensor)
    return nn.Parameter(like.detach(), requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else like


def _contents(part: nn.Module) -> list[tuple[Any, Any]]:
    """The containers among a module's attributes, each with a copy."""
    return [(value, value.copy()) for value in vars(part).values() if isinstance(value, dict | list | set)]


@contextmanager
def pretended() -> Iterator[None]:
    """Within this context fake tensors may be on any accelerator, and gradients are off."""
    methods = {name: partialmethod(_as_on_cpu, getattr(Tensor, name), (CPU,)) for name in (*ASKING, *NUMBERS)}
    methods["copy_"] = partialmethod(torch.ops.aten.copy_.default)
    with ExitStack() as held, torch.no_grad(), _Pretending():
        held.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
        torch.backends.mha.set_fastpath_enabled(False)  # its op, a whole layer, has no fake form
        for name, method in methods.items():
            setattr(FakeTensor, name, method)
            held.callback(delattr, FakeTensor, name)
        yield


class _Pretending(TorchFunctionMode):
    """Within this mode gradients stay off, and some functions run as if their tensors were on the CPU."""

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch._C._set_grad_enabled:
            return func(False)
        if getattr(func, "__name__", "") not in HOSTED:
            return func(*args, **(kwargs or {}))
        first, *others = args
        if len(args) > 3 and isinstance(args[3], list | tuple):  # a packed sequence, whose batch sizes are on the CPU
            batch_sizes, *others = others
            hosted = lambda data, *rest, **named: func(data, batch_sizes, *rest, **named)  # noqa: E731
        else:
            hosted = func
        return _as_on_cpu(first, hosted, (), *others, **(kwargs or {}))


def _as_on_cpu(
    first: Tensor, function: Callable[..., Any], beside: Sequence[torch.device], *arguments: Any, **named: Any
) -> Any:
    """The result of a function that runs as if its tensors were on the CPU, on the device of the first tensor.

    Raises RuntimeError, as CUDA would, for tensors that are neither on that device nor on one of those in `beside`.
    """
    given = [leaf for leaf in pytree.tree_leaves((first, arguments, named)) if isinstance(leaf, Tensor)]
    home, devices = first.device, {tensor.device for tensor in given}
    if strange := devices - {home, *(beside if home != CPU else ())}:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found two devices, {home} and {strange.pop()}"
        )
    if home.type in ("cpu", "meta"):  # meta: a kernel runs on the shapes of fake tensors
        return function(first, *arguments, **named)
    device = torch.device(named.pop("device", None) or home)
    away = [(tensor, tensor.fake_device) for tensor in given if isinstance(tensor, FakeTensor)]
    for tensor, _ in away:
        tensor.fake_device = CPU
    try:
        result = function(first, *arguments, **named)
    finally:
        for tensor, there in away:
            tensor.fake_device = there
    for leaf in pytree.tree_leaves(result):
        if isinstance(leaf, FakeTensor):
            leaf.fake_device = device
    return result
