"""The trial of a device_map: accelerate dispatches the step's module to pretended accelerators, and the step calls it.

Tensors are fake ones on `cuda` devices that this machine need not have. Of accelerate only the function that moves a
weight is replaced, because it can't move a fake one.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import Any

from torch import nn

from gnnplace.exports.lent import lent, pretended
from gnnplace.frontends.torch.inference import evaluating
from gnnplace.frontends.torch.inputs import ExampleInputs, as_written
from gnnplace.frontends.torch.recurrences import Recurrences
from gnnplace.frontends.torch.step import TorchInference, TorchStep
from gnnplace.runtimes.homes import Device, Divided, Homes, main_device, outermost
from gnnplace.runtimes.refusal import Fault, TrialResult, error_line

TWO_DEVICES = re.compile("same device|different device|two devices|expected device|but is on")  # in PyTorch's errors


def try_homes(step: TorchStep | TorchInference, homes: Homes) -> tuple[Divided, TrialResult]:
    """The map of the step's module for these homes, and the result of its trial."""
    names = {as_written(path): path for path, _ in step.module.named_modules(remove_duplicate=False)}
    divided = outermost(homes, _further_names(step.module), names)
    return divided, TrialResult() if divided.torn else try_map(step, divided.map | divided.bare)


def _further_names(module: nn.Module) -> dict[str, str]:
    """The further names of tensors, each with the tensor's first name."""
    first: dict[int, str] = {}
    parameters, buffers = (names(remove_duplicate=False) for names in (module.named_parameters, module.named_buffers))
    named = [(name, first.setdefault(id(tensor), name)) for name, tensor in (*parameters, *buffers)]
    return {name: first_name for name, first_name in named if name != first_name}


def try_map(step: TorchStep | TorchInference, device_map: Mapping[str, Device]) -> TrialResult:
    """Dispatches the step's module by a map and calls it as the step does. The module is restored afterwards.

    If it fails on one accelerator, too, and not because two devices meet, the trial says nothing about the map.
    """
    if find_spec("accelerate") is None:
        return TrialResult(untried='for accelerate is not installed (pip install "gnnplace[accelerate]")')
    main = main_device(device_map)
    # hooks move inputs, and a map of one device adds none
    inputs: tuple[Device, ...] = (main, "cpu") if len(set(device_map.values())) > 1 else (main,)
    if (fault := _first_fault(step, device_map, inputs)) is None:
        return TrialResult()
    alone = _first_fault(step, {"": 0}, (0, "cpu"))
    if alone is None:
        return TrialResult(fault)
    if TWO_DEVICES.search(alone.what):
        return TrialResult(alone._replace(always=True))
    return TrialResult(untried=f"for the module can't be run on a pretended accelerator ({alone.what})")


def _first_fault(
    step: TorchStep | TorchInference, device_map: Mapping[str, Device], inputs: Sequence[Device]
) -> Fault | None:
    """The fault with inputs on the first device; None if the step runs with inputs on any of the devices."""
    faults = list[Fault]()
    for device in inputs:
        if (fault := _fault(step, device_map, device)) is None:
            return None
        faults.append(fault)
    return faults[0]


def _fault(step: TorchStep | TorchInference, device_map: Mapping[str, Device], inputs_on: Device) -> Fault | None:
    """The fault of one dispatched call, with inputs on a device."""
    from accelerate import dispatch_model

    module, main = step.module, _named(main_device(device_map))
    called: list[str] = []
    with ExitStack() as held:
        inputs = held.enter_context(lent(step, fallbacks=False))
        held.enter_context(_moving_fakes())
        held.enter_context(Recurrences())
        held.enter_context(pretended())
        try:
            dispatch_model(
                module,
                {name: _named(device) for name, device in device_map.items()},
                main_device=main,
                force_hooks=True,
            )
            _follow(module, called, held)
            arguments = [tensor.to(_named(inputs_on)) for tensor in inputs]
            if isinstance(step, TorchStep):
                step.loss_of(module, arguments)
            else:
                held.enter_context(evaluating(module))
                positional, named = ExampleInputs(step.inputs).call(arguments)
                module(*positional, **named)
        except Exception as error:  # the module's code, or accelerate's
            return Fault(error_line(error), called[-1] if called else "")
    return None


def _named(device: Device) -> str:
    return device if isinstance(device, str) else f"cuda:{device}"


def _follow(module: nn.Module, called: list[str], held: ExitStack) -> None:
    """Keeps in `called` the paths of the modules under way, outermost first; a fault leaves them there."""

    def enter(path: str) -> Callable[..., None]:
        return lambda *_: called.append(path)

    for path, part in module.named_modules():
        held.enter_context(part.register_forward_pre_hook(enter(as_written(path)), prepend=True))
        held.enter_context(part.register_forward_hook(lambda *_: (called.pop(), None)[1]))


@contextmanager
def _moving_fakes() -> Iterator[None]:
    """Within this context accelerate moves fake weights: it makes a fake one on the other device."""
    from accelerate import hooks

    def move(module: nn.Module, name: str, device: str, **more: object) -> None:
        path, _, name = name.rpartition(".")
        owner = module.get_submodule(path)
        held: dict[str, Any] = owner._parameters if name in owner._parameters else owner._buffers
        old = held[name]
        new = old.to(device)
        held[name] = nn.Parameter(new, requires_grad=False) if isinstance(old, nn.Parameter) else new

    real = hooks.set_module_tensor_to_device
    hooks.set_module_tensor_to_device = move
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        hooks.set_module_tensor_to_device = real
