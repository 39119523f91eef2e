"""A placed PyTorch step that runs on new inputs each time, and whose parameters and buffers change between steps.

The module and the devices share tensors: an optimiser changes parameters in the memory that devices read. For CPU
devices this is memory that processes share. It is anonymous, mapped before the processes are forked, and lives as long
as a tensor in it; it uses neither /dev/shm nor descriptors. For GPUs it is memory of the op's device.
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
from gnnplace.execution.torch.values import Held, Node, once, random_nodes
from gnnplace.execution.torch.workload import check_plan, started
from gnnplace.execution.workload import ExecutionPlan
from gnnplace.frontends.torch.builder import TracedStep

ALIGNMENT_BYTES = 64  # a cache line


class LiveStep:
    """`run` computes the value of each node in `results` from the step's inputs; `results` holds tensors of its layout.

    Raises ValueError for a module without values, MeasurementError if this machine lacks devices or the step can't be
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
        self._draws = bool(random_nodes(traced.trace.graph))
        held = self._held(results, draws)
        self._step = started(traced, plan, held)
        self._open = True

    def run(self, inputs: Mapping[str, Tensor]) -> list[Tensor]:
        """Runs a step on inputs of all micro-batches by name and returns the results, each a copy on its device.

        Raises ValueError if the module's tensors are not those that were placed, MeasurementError if a device fails:
        then the step is closed.
        """
        if not self._open:
            raise ValueError("placed: was closed; call gp.placed again")
        self._tensors.settle()
        for tensor, first in self._of_replicas:
            fill(tensor, first)
        for name, tensor in self._inputs.items():
            fill(tensor, inputs[name])
        synchronize(self._gpus)
        try:
            with self._kept_generators():
                self._step.run(1)
        except BaseException:
            self.close()
            raise
        for name in self._changed:
            with torch.no_grad():
                inputs[name].copy_(self._inputs[name])
        return [result.clone() for result in self._results]

    def close(self) -> None:
        """Ends the processes or threads. Parameters and buffers stay in their memory."""
        if self._open:
            self._open = False
            self._step.close()

    def _held(self, results: Mapping[Node, Tensor], draws: int) -> Held:
        """The values before a step: the module's tensors, moved; tensors for inputs and results; constants.

        Replicas on CPU devices share the parameters, which no op of the step changes.
        """
        trace = self._traced.trace
        roles = dict(zip(self._placeholders(), trace.arguments, strict=True))
        first = {argument.name: node for node, argument in roles.items() if not argument.copy}
        shares = {
            node: first[argument.name]
            for node, argument in roles.items()
            if argument.role == "parameter" and argument.copy and not self._gpus
        }
        apart = [(node, node.meta["val"]) for node in roles if node not in shares]
        tensors = dict(zip((node for node, _ in apart), self._allocated(apart), strict=True))
        tensors |= {node: tensors[theirs] for node, theirs in shares.items()}
        of_inputs = {argument.of_step: node for node, argument in roles.items() if argument.role == "input"}
        self._inputs = {name: tensors[node] for name, node in of_inputs.items()}
        # inputs that the step changes in place
        written = self._traced.written
        self._changed = [name for name, node in of_inputs.items() if (self._traced.op_of[node], 0) in written]
        of_module = {node: argument for node, argument in roles.items() if argument.role != "input"}
        self._tensors = LiveTensors(
            self._module, {argument.name: tensors[node] for node, argument in of_module.items() if not argument.copy}
        )
        self._of_replicas = [
            (tensors[node], tensors[first[argument.name]])
            for node, argument in of_module.items()
            if argument.copy and node not in shares
        ]
        self._results = self._allocated(list(results.items()))
        constants = {node: trace.constants[node.target] for node in trace.graph.nodes if node.op == "get_attr"}
        return Held(tensors | constants, {}, (), dict(zip(results, self._results, strict=True)), draws)

    def _placeholders(self) -> list[Node]:
        return [node for node in self._traced.trace.graph.nodes if node.op == "placeholder"]

    def _allocated(self, likes: Sequence[tuple[Node, Tensor]]) -> list[Tensor]:
        """A tensor of each layout, shared by processes or on the device of its node's op."""
        if not self._gpus:
            return shared([like for _, like in likes])
        devices = [self._devices[self._plan.device[_op_of(self._traced, node)]] for node, _ in likes]
        return on_devices([like for _, like in likes], devices)

    @contextmanager
    def _kept_generators(self) -> Iterator[None]:
        """A context that restores the generators of this process, which threads seed for their random ops."""
        if self._gpus and self._draws:
            with torch.random.fork_rng([device.index for device in self._gpus]):
                yield
        else:
            yield


def _op_of(traced: TracedStep, node: Node) -> int:
    """The op that computes a node, which may be one of its outputs."""
    source = node.args[0] if node.target is getitem else node
    assert isinstance(source, Node)
    return traced.op_of[source]


def shared(likes: Sequence[Tensor]) -> list[Tensor]:
    """A tensor of zeros of each layout, in memory that this process shares with those that it forks from now on."""
    sizes = [-(-extent_bytes(like) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES for like in likes]
    memory, start, tensors = mmap.mmap(-1, max(sum(sizes), mmap.PAGESIZE)), 0, []
    for like, size in zip(likes, sizes, strict=True):
        arena = (
            torch.frombuffer(memory, dtype=torch.uint8, count=extent_bytes(like), offset=start)
            if size
            else torch.empty(0)
        )
        tensors.append(shaped(arena, like))  # a storage for each, so that it can be saved
        start += size
    return tensors


def on_devices(likes: Sequence[Tensor], devices: Sequence[torch.device]) -> list[Tensor]:
    """A tensor of each layout on its device, with undefined values."""
    pairs = zip(likes, devices, strict=True)
    return [torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=device) for like, device in pairs]


def fill(target: Tensor, value: Tensor) -> None:
    """Copies a value into a tensor of its shape, expanded elements once."""
    index = once(target)
    target[index].copy_(value.detach()[index])


class LiveTensors:
    """The parameters and buffers of a module, moved to the memory that devices read. They stay the same objects.

    `shared` are tensors in this memory, by the names of the module's tensors.
    """

    def __init__(self, module: nn.Module, shared: Mapping[str, Tensor]) -> None:
        self._module, self._tensors, self._shared = module, named_tensors(module), shared
        for name, tensor in shared.items():
            fill(tensor, self._tensors[name])
            self._tensors[name].data = tensor

    def settle(self) -> None:
        """Moves tensors back to the shared memory after an assignment (`parameter.data = ...`).

        Raises ValueError for tensors that were added, removed or replaced, and for another shape, type or device.
        """
        now = named_tensors(self._module)
        for name in (*now, *self._tensors):
            if now.get(name) is not self._tensors.get(name):
                what = "replaced" if name in now and name in self._tensors else "added" if name in now else "removed"
                raise ValueError(f"module: {name}: was {what} after the step was placed; place it anew")
        for name, shared in self._shared.items():
            tensor = now[name]
            if tensor.data_ptr() != shared.data_ptr() or tensor.stride() != shared.stride():
                if described(tensor) != described(shared):
                    raise ValueError(
                        f"module: {name}: is {described(tensor)}, and was placed as {described(shared)}; place it anew"
                    )
                fill(shared, tensor)
                tensor.data = shared


def named_tensors(module: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers of a module by name."""
    return dict(module.named_parameters()) | dict(module.named_buffers())


def check_values(module: nn.Module) -> None:
    """Raises ValueError for a tensor without values, and for two tensors whose memory overlaps."""
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
    """Waits for the work that this thread has queued on these GPUs."""
    for device in devices:
        torch.cuda.current_stream(device).synchronize()
