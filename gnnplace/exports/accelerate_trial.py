"""A device_map tried before it is written: accelerate's own check and hooks, on pretended accelerators, with the step's
own forward pass.

Tensors are fake ones on `cuda` devices that nobody has to have. accelerate is as it is, but for the function that moves
a weight, which can't move a fake one.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from gnnplace.exports.homes import Device, Divided, Homes, main_device, outermost
from gnnplace.exports.lent import lent, pretended
from gnnplace.exports.refusal import MOST_CHARACTERS, Fault, Tried
from gnnplace.frontends.torch.inference import evaluating
from gnnplace.frontends.torch.inputs import ExampleInputs, as_written
from gnnplace.frontends.torch.step import TorchInference, TorchStep
from gnnplace.frontends.torch.trace import fake

TWO_DEVICES = re.compile("same device|different device|two devices|expected device|but is on")  # as PyTorch says it


def accelerated(step: TorchStep | TorchInference, homes: Homes) -> tuple[Divided, Tried]:
    """The map of the step's module for these homes, and what came of its trial."""
    module = step.module
    first: dict[int, str] = {}
    also: dict[str, str] = {}
    for name, tensor in (
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ):
        if (known := first.setdefault(id(tensor), name)) != name:
            also[name] = known
    divided = outermost(
        homes, also, {as_written(path): path for path, _ in module.named_modules(remove_duplicate=False)}
    )
    made = divided.map | divided.bare
    return divided, Tried() if divided.torn else tried(step, made)


def tried(step: TorchStep | TorchInference, device_map: Mapping[str, Device]) -> Tried:
    """Dispatches the step's module by a map, and calls it as the step does. The module is left as it was.

    Where it fails on one accelerator, too, and not because two devices meet, the trial says nothing of the map.
    """
    if find_spec("accelerate") is None:
        return Tried(untried='for accelerate is not installed (pip install "gnnplace[accelerate]")')
    main = main_device(device_map)
    # where inputs may be: on one device there are no hooks
    hooked = (main, "cpu") if len(set(device_map.values())) > 1 else (main,)
    if (fault := _faults(step, device_map, hooked)) is None:
        return Tried()
    alone = _faults(step, {"": 0}, (0, "cpu"))
    if alone is None:
        return Tried(fault)
    if TWO_DEVICES.search(alone.what):
        return Tried(alone._replace(always=True))
    return Tried(untried=f"for the module can't be run on a pretended accelerator ({alone.what})")


def _faults(
    step: TorchStep | TorchInference, device_map: Mapping[str, Device], inputs: Sequence[Device]
) -> Fault | None:
    """The fault with inputs on the first device; None where there is none with inputs on some."""
    found = None
    for device in inputs:
        if (fault := _fault(step, device_map, device)) is None:
            return None
        found = found or fault
    return found


def _fault(step: TorchStep | TorchInference, device_map: Mapping[str, Device], inputs_on: Device) -> Fault | None:
    from accelerate import dispatch_model

    module, main = step.module, _named(main_device(device_map))
    inputs = ExampleInputs(step.inputs)
    inside: list[str] = []
    with ExitStack() as held:
        held.enter_context(lent(module, fallbacks=False))
        held.enter_context(_moving_fakes())
        held.enter_context(pretended())
        try:
            dispatch_model(
                module,
                {name: _named(device) for name, device in device_map.items()},
                main_device=main,
                force_hooks=True,
            )
            _follow(module, inside, held)
            arguments = [fake(tensor).to(_named(inputs_on)) for tensor in inputs.tensors]
            if isinstance(step, TorchStep):
                step.loss_of(module, arguments)
            else:
                held.enter_context(evaluating(module))
                positional, named = inputs.call(arguments)
                module(*positional, **named)
        except Exception as error:  # of the module's code, or accelerate's
            return Fault(
                " ".join(f"{type(error).__name__}: {error}".split())[:MOST_CHARACTERS], inside[-1] if inside else ""
            )
    return None


def _named(device: Device) -> str:
    return device if isinstance(device, str) else f"cuda:{device}"


def _follow(module: nn.Module, inside: list[str], held: ExitStack) -> None:
    """Keeps in `inside` the paths of the modules that are being called; after a fault those that were."""

    def enter(path: str) -> Callable[..., None]:
        return lambda *_: inside.append(path)

    for path, part in module.named_modules():
        held.enter_context(part.register_forward_pre_hook(enter(as_written(path)), prepend=True))
        held.enter_context(part.register_forward_hook(lambda *_: (inside.pop(), None)[1]))


@contextmanager
def _moving_fakes() -> Iterator[None]:
    """Within, accelerate moves fake weights: each becomes another fake one on the device."""
    from accelerate import hooks

    def move(module: nn.Module, name: str, device: str, **more: object) -> None:
        path, _, name = name.rpartition(".")
        owner = module.get_submodule(path)
        held: dict[str, Any] = owner._parameters if name in owner._parameters else owner._buffers
        old = held[name]
        new = torch.empty_strided(old.size(), old.stride(), dtype=old.dtype, device=device)
        held[name] = nn.Parameter(new, requires_grad=False) if isinstance(old, nn.Parameter) else new

    real = hooks.set_module_tensor_to_device
    hooks.set_module_tensor_to_device = move
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        hooks.set_module_tensor_to_device = real
