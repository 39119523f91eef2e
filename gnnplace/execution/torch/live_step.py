"""A placed PyTorch step that runs on new inputs each time, on parameters and buffers that others change between steps.

Its module and its devices have values in common: an optimiser changes parameters where devices read them. For CPU
devices they lie in memory that processes share. It is anonymous, made before the processes are forked, and lives as
long as a tensor in it: it takes nothing of /dev/shm, and no descriptors. For GPUs they lie on the device of their op.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from operator import getitem

import torch
from torch import Tensor, nn

from gnnplace.execution.torch.lanes import lanes
from gnnplace.execution.torch.shared_memory import extent_bytes, shaped
from gnnplace.execution.torch.values import Held, Node, is_random, once
from gnnplace.execution.torch.workload import check_plan, started
from gnnplace.execution.workload import ExecutionPlan
from gnnplace.frontends.torch.builder import TracedStep

ALIGNMENT_BYTES = 64  # a cache line


class LiveStep:
    """`run` computes the value of each node of `results` (tensors give the layout of each) from the step's inputs.

    Raises ValueError for a module without values, MeasurementError where devices are missing here, or the step can't be
    placed so.
    """

    def __init__(
        self, traced: TracedStep, plan: ExecutionPlan, module: nn.Module, results: Mapping[Node, Tensor], draws: int
    ) -> None:
        check_plan(traced.graph, plan)
        check_values(module)
        self._traced, self._plan, self._module = traced, plan, module
        kinds = [device.kind for device in plan.devices]
        self._devices = [lane.device for lane in lanes(kinds)]
        self._gpus = {device for device, kind in zip(self._devices, kinds, strict=True) if kind == "gpu"}
        inputs = [
            node
            for node, argument in zip(self._placeholders(), traced.trace.arguments, strict=True)
            if argument.role == "input"
        ]
        # in place, the caller's
        self._changed = [index for index, node in enumerate(inputs) if (traced.op_of[node], 0) in traced.written]
        self._draws = any(map(is_random, traced.trace.graph.nodes))
        held = self._held(results, draws)
        self._step = started(traced, plan, held)
        self._open = True

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Runs a step and returns the results, each a copy on its device.

        Raises ValueError where the module's tensors are others than those placed, MeasurementError where a device
        fails: then it is closed.
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
        tensors = dict(zip(nodes, self._made([(node, node.meta["val"]) for node in nodes]), strict=True))
        roles = list(zip(nodes, trace.arguments, strict=True))
        self._inputs = [tensors[node] for node, argument in roles if argument.role == "input"]
        self._tensors = LiveTensors(
            self._module, {argument.name: tensors[node] for node, argument in roles if argument.role != "input"}
        )
        self._results = self._made(list(results.items()))
        constants = {node: trace.constants[node.target] for node in trace.graph.nodes if node.op == "get_attr"}
        return Held(tensors | constants, {}, None, dict(zip(results, self._results, strict=True)), draws)

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


def shared(likes: Sequence[Tensor]) -> list[Tensor]:
    """A tensor of the layout of each, zeros, in memory that this process
    has in common with those that it forks from now on.
    """
    sizes = [-(-extent_bytes(like) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES for like in likes]
    memory, start, tensors = mmap.mmap(-1, max(sum(sizes), mmap.PAGESIZE)), 0, []
    for like, size in zip(likes, sizes, strict=True):
        arena = (
            torch.frombuffer(memory, dtype=torch.uint8, count=extent_bytes(like), offset=start)
            if size
            else torch.empty(0)
        )
        tensors.append(shaped(arena, like))  # with a storage of its own, for who saves it
        start += size
    return tensors


def beside(likes: Sequence[Tensor], devices: Sequence[torch.device]) -> list[Tensor]:
    """A tensor of the layout of each on its device, with undefined values."""
    pairs = zip(likes, devices, strict=True)
    return [torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=device) for like, device in pairs]


def fill(place: Tensor, value: Tensor) -> None:
    """Copies a value to its place."""
    index = once(place)
    place[index].copy_(value.detach()[index])


class LiveTensors:
    """The parameters and buffers of a module at the places where devices
    have them, by name; the tensors stay the same objects.
    """

    def __init__(self, module: nn.Module, places: Mapping[str, Tensor]) -> None:
        self._module, self._tensors, self._places = module, named_tensors(module), places
        for name, place in places.items():
            fill(place, self._tensors[name])
            self._tensors[name].data = place

    def settle(self) -> None:
        """Brings back to its place what has got other memory since (`parameter.data = ...`).

        Raises ValueError for tensors that were added, removed or replaced since, and for another shape, type or device.
        """
        now = named_tensors(self._module)
        for name in (*now, *self._tensors):
            if now.get(name) is not self._tensors.get(name):
                what = "replaced" if name in now and name in self._tensors else "added" if name in now else "removed"
                raise ValueError(f"module: {name}: was {what} after the step was placed; place it anew")
        for name, place in self._places.items():
            tensor = now[name]
            if tensor.data_ptr() != place.data_ptr() or tensor.stride() != place.stride():
                if described(tensor) != described(place):
                    raise ValueError(
                        f"module: {name}: is {described(tensor)}, and was placed as {described(place)}; place it anew"
                    )
                fill(place, tensor)
                tensor.data = place


def named_tensors(module: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers of a module by name."""
    return dict(module.named_parameters()) | dict(module.named_buffers())


def check_values(module: nn.Module) -> None:
    """Raises ValueError for a tensor without values, and for two of which one lies in the other's memory."""
    spans = []
    for name, tensor in named_tensors(module).items():
        if tensor.is_meta:
            raise ValueError(f"module: {name}: lies on the meta device; a step that runs needs values")
        if tensor.numel():
            spans.append((str(tensor.device), tensor.data_ptr(), tensor.data_ptr() + extent_bytes(tensor), name))
    for (device, _, end, name), (other, start, _, second) in pairwise(sorted(spans)):
        if device == other and start < end:
            raise ValueError(f"module: {second}: lies in the memory of {name}; make them one parameter, or two")


def described(tensor: Tensor) -> str:
    """A tensor's type, shape and device in words."""
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)} on {tensor.device}"


def synchronize(devices: Iterable[torch.device]) -> None:
    """Waits until these GPUs have done what this thread gave them."""
    for device in devices:
        torch.cuda.current_stream(device).synchronize()
