"""A placed PyTorch step that runs on new inputs each time, on parameters and buffers that others change between steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import getitem

import torch
from torch import Tensor, nn

from gnnplace.execution.torch.held import Held
from gnnplace.execution.torch.lanes import lanes
from gnnplace.execution.torch.live import LiveTensors, beside, check_values, fill, shared, synchronize
from gnnplace.execution.torch.values import Node, is_random
from gnnplace.execution.torch.workload import check_plan, started
from gnnplace.execution.workload import Plan
from gnnplace.frontends.torch.training import TracedStep


class LiveStep:
    """`run` computes the value of each node of `results` (tensors give the layout of each) from the step's inputs.

    Raises ValueError for a module without values, MeasurementError where devices are missing here, or the step can't be placed so.
    """

    def __init__(self, traced: TracedStep, plan: Plan, module: nn.Module, results: Mapping[Node, Tensor], draws: int) -> None:
        check_plan(traced.graph, plan)
        check_values(module)
        self._traced, self._plan, self._module = traced, plan, module
        kinds = [device.kind for device in plan.devices]
        self._devices = [lane.device for lane in lanes(kinds)]
        self._gpus = {device for device, kind in zip(self._devices, kinds, strict=True) if kind == "gpu"}
        inputs = [node for node, argument in zip(self._placeholders(), traced.trace.arguments, strict=True) if argument.role == "input"]
        self._changed = [index for index, node in enumerate(inputs) if (traced.op_of[node], 0) in traced.written]  # in place, the caller's
        self._draws = any(map(is_random, traced.trace.graph.nodes))
        held = self._held(results, draws)
        self._step = started(traced, plan, held)
        self._open = True

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Runs a step and returns the results, each a copy on its device.

        Raises ValueError where the module's tensors are others than those placed, MeasurementError where a device fails: then it is closed.
        """
        if not self._open:
            raise ValueError("placed: was closed; call gp.placed again")
        self._tensors.settle()
        for place, value in zip(self._inputs, inputs, strict=True):
            fill(place, value)
        synchronize(self._gpus)
        try:
            with self._own_draws():
                self._step.run(1)
        except BaseException:
            self.close()
            raise
        for index in self._changed:
            with torch.no_grad():
                inputs[index].copy_(self._inputs[index])
        return [place.clone() for place in self._results]

    def close(self) -> None:
        """Ends the processes or threads; parameters and buffers stay where they are."""
        if self._open:
            self._open = False
            self._step.close()

    def _held(self, results: Mapping[Node, Tensor], draws: int) -> Held:
        """What the step starts from: the module's own tensors, moved; places for inputs and results; constants."""
        trace, nodes = self._traced.trace, self._placeholders()
        found = dict(zip(nodes, self._made([(node, node.meta["val"]) for node in nodes]), strict=True))
        roles = list(zip(nodes, trace.arguments, strict=True))
        self._inputs = [found[node] for node, argument in roles if argument.role == "input"]
        self._tensors = LiveTensors(self._module, {argument.name: found[node] for node, argument in roles if argument.role != "input"})
        self._results = self._made(list(results.items()))
        constants = {node: trace.constants[node.target] for node in trace.graph.nodes if node.op == "get_attr"}
        return Held(found | constants, {}, None, dict(zip(results, self._results, strict=True)), draws)

    def _placeholders(self) -> list[Node]:
        return [node for node in self._traced.trace.graph.nodes if node.op == "placeholder"]

    def _made(self, likes: Sequence[tuple[Node, Tensor]]) -> list[Tensor]:
        if not self._gpus:
            return shared([like for _, like in likes])
        where = [self._devices[self._plan.device[_made_by(self._traced, node)[0]]] for node, _ in likes]
        return beside([like for _, like in likes], where)

    @contextmanager
    def _own_draws(self) -> Iterator[None]:
        """Threads seed the generators of this process for their ops: afterwards these are as they were."""
        if self._gpus and self._draws:
            with torch.random.fork_rng([device.index for device in self._gpus]):
                yield
        else:
            yield


def _made_by(traced: TracedStep, node: Node) -> tuple[int, int]:
    """The op of a node, and which of its outputs the node is."""
    if node.target is getitem:
        source, output = node.args
        assert isinstance(source, Node) and isinstance(output, int)
        return traced.op_of[source], output
    return traced.op_of[node], 0
