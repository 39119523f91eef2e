"""The scope of each op of a traced step: its module, its phase and its time step.

Autograd numbers its functions in the order of their creation in the forward pass; these numbers map each backward
function to its module. A module that unrolls over time marks its time steps itself: `with time_step(3): ...`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from gnnplace.frontends.origin import LOSS_LAYER, ROOT_LAYER
from gnnplace.frontends.torch.inputs import as_written

_SCOPE = "gnnplace scope"


@dataclass(frozen=True, slots=True)
class Scope:
    """The layer, phase and time step of a traced op.

    The builder later splits `backward` into data and weight gradients.
    """

    layer: str
    phase: Literal["forward", "backward", "update"]
    time_step: int | None = None


@contextmanager
def time_step(number: int) -> Iterator[None]:
    """Marks the ops within the context, and their gradients, with the time step `number` of an unrolled recurrence.

    Has no effect outside a trace.
    """
    scopes = _ACTIVE.get()
    if scopes is None:
        yield
        return
    scopes.push(time_step=number)
    try:
        yield
    finally:
        scopes.pop()


def scope_of(node: torch.fx.Node) -> Scope:
    """The scope of a traced node."""
    scope: Scope = node.meta[_SCOPE]
    return scope


class Scopes:
    """Tags every traced node with its scope, following the step through modules, autograd functions and updates."""

    def __init__(self) -> None:
        self._now = Scope(LOSS_LAYER, "forward")
        self._stack = [self._now]
        self._starts = [(0, self._now)]  # autograd's sequence number at each change of scope

    def enter(self, scope: Scope) -> None:
        """Makes `scope` the scope of all nodes traced from here on."""
        self.close()
        self._now = scope

    def close(self) -> None:
        """Tags the nodes traced since the last change of scope with the current scope."""
        mode = get_proxy_mode()
        assert mode is not None, "scopes are followed while tracing"
        for node in reversed(mode.tracer.graph.nodes):
            if _SCOPE in node.meta:
                return
            node.meta[_SCOPE] = self._now

    def follow_forward(self, module: nn.Module, hooks: ExitStack) -> None:
        """Until `hooks` closes, nodes get the scope of the submodule whose forward pass they belong to."""
        hooks.callback(_ACTIVE.reset, _ACTIVE.set(self))
        self._stack = [Scope(LOSS_LAYER, "forward")]
        self._change()
        for name, part in module.named_modules():
            enter, leave = self._hooks(as_written(name) or ROOT_LAYER)
            hooks.enter_context(part.register_forward_pre_hook(enter, prepend=True))
            hooks.enter_context(part.register_forward_hook(leave, always_call=True))

    def follow_backward(self, loss: Tensor, owners: Mapping[int, str]) -> None:
        """Follows the backward pass of a loss: nodes get the layer whose forward pass created the autograd function.

        What accumulates the gradient of a leaf gets the layer of the leaf, which `owners` gives by its id.
        """
        self.enter(Scope(LOSS_LAYER, "backward"))
        starts = [start for start, _ in self._starts]
        for function in functions_of(loss):
            if function.next_functions:
                _, scope = self._starts[bisect_right(starts, function._sequence_nr()) - 1]
                function.register_prehook(self._backward_hook(replace(scope, phase="backward")))
            elif (layer := owners.get(id(getattr(function, "variable", None)))) is not None:
                function.register_prehook(self._backward_hook(Scope(layer, "backward")))

    def push(self, **changes: Any) -> None:
        """Changes the scope of the forward pass until the matching `pop`."""
        self._stack.append(replace(self._stack[-1], **changes))
        self._change()

    def pop(self) -> None:
        """Restores the scope before the last `push`."""
        self._stack.pop()
        self._change()

    def _hooks(self, layer: str) -> tuple[Callable[..., None], Callable[..., None]]:
        def enter(*_: object) -> None:
            self.push(layer=layer)

        def leave(*_: object) -> None:
            self.pop()

        return enter, leave

    def _change(self) -> None:
        scope = self._stack[-1]
        self._starts.append((torch._C._autograd._get_sequence_nr(), scope))
        self.enter(scope)

    def _backward_hook(self, scope: Scope) -> Callable[[object], None]:
        def enter(_: object) -> None:
            self._stack = [scope]  # for modules that a checkpoint calls again
            self.enter(scope)

        return enter


def functions_of(loss: Tensor) -> Iterator[Any]:
    """The autograd functions of a loss, each once; those with a `variable` accumulate the gradient of a leaf."""
    seen: set[Any] = {None}
    waiting = [loss.grad_fn]
    while waiting:
        function = waiting.pop()
        if function not in seen:
            assert function is not None
            seen.add(function)
            waiting += [next_function for next_function, _ in function.next_functions]
            yield function


_ACTIVE: ContextVar[Scopes | None] = ContextVar("the scopes of the step that is traced", default=None)
