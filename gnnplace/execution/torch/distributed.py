"""A placed PyTorch step beyond one process tree: under `torchrun` each rank is one device, and they meet in
`torch.distributed`.

    torchrun --nproc-per-node 2 -m gnnplace measure WORKLOAD --cluster CLUSTER --placement PLACEMENT

Every rank runs the same command: it loads the workload, makes the same plan, and runs the program of the device of its
number, rank 0 prints. What decides how long they measure (step times) is agreed on after each run, so all ranks decide
alike. CPU devices go over gloo, GPUs over NCCL, rank k of a host on its k-th core or GPU, counted round.

What this does not do: mix CPU devices and GPUs, give a rank several devices, align the clocks of hosts (times of ops
count from each device's own start), or measure links. A rank that fails ends the others through `torchrun`, or by the
time limit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gnnplace.execution.torch.device import TorchDevice, gpu_growth, joined, merged, received_bytes
from gnnplace.execution.torch.lanes import ComputeStream, Lane, NoStream
from gnnplace.execution.torch.program import DeviceProgram, Message, Send, Signal, programs
from gnnplace.execution.torch.values import Held, once
from gnnplace.execution.workload import ExecutionPlan, OpTimes, Outputs
from gnnplace.frontends.torch.builder import TracedStep
from gnnplace.isolation.linux import keep_freed_memory
from gnnplace.isolation.outcome import MeasurementError
from gnnplace.isolation.worker import usable_cores

BACKENDS = {"cpu": "cpu:gloo", "gpu": "cpu:gloo,cuda:nccl"}


def launched() -> bool:
    """Whether this process is one of several ranks."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


class TorchDistributed:
    """A `PlacedStep` of which each rank runs one device; every method is called on all ranks and returns the same on
    all.

    Raises MeasurementError(unsupported) where there are not as many ranks as devices, or devices of two kinds.
    """

    def __init__(self, step: TracedStep, plan: ExecutionPlan, held: Held) -> None:
        kinds, ranks = {device.kind for device in plan.devices}, int(os.environ["WORLD_SIZE"])
        if len(kinds) > 1 or len(plan.devices) != ranks:
            reason = (
                f"{len(plan.devices)} devices of kinds {', '.join(sorted(kinds))} on {ranks} ranks: a rank runs "
                "one, all of one kind"
            )
            raise MeasurementError("unsupported", reason)
        self._gpu, self._num_ops = kinds == {"gpu"}, step.graph.num_ops
        if not dist.is_initialized():
            dist.init_process_group(BACKENDS[kinds.pop()])
        self._lane, self._described = _lane(self._gpu)
        self._lane.enter()
        written = programs(step, plan)
        self._received = received_bytes(written[dist.get_rank()])
        transport = Ranks(dist.get_rank(), written, self._lane)
        self._device: TorchDevice | None = TorchDevice(
            written[dist.get_rank()], held, self._lane, transport, transport.meet, self._num_ops, Lock()
        )

    def run(self, steps: int) -> list[int]:
        """Runs steps; the nanoseconds of each, on the rank that took longest from where all met."""
        starts, ends = self._own.run(steps)
        longest = torch.tensor(ends) - torch.tensor(starts)
        dist.all_reduce(longest, dist.ReduceOp.MAX)
        return longest.tolist()

    def outputs(self) -> Outputs:
        """The losses so far and the variables now."""
        return joined(_gathered(self._own.outputs()))

    def op_times(self, steps: int) -> list[OpTimes]:
        """Runs steps and times every op, each since its own device began."""
        parts = _gathered([times._replace(began=0) for times in self._own.op_times(steps)])
        return [merged([part[step] for part in parts], self._num_ops) for step in range(steps)]

    def peak_memory_bytes(self) -> list[int]:
        """Runs a step and returns the most that each device held in it."""
        if not self._gpu:
            return _gathered(self._own.peak_memory(self._received))
        (grown,) = gpu_growth([self._lane.device.index], lambda: self.run(1))
        return _gathered(grown + self._own.held_bytes())

    def described(self) -> list[str]:
        """What each device is."""
        return _gathered(self._described)

    def close(self) -> None:
        """Frees the memory; the ranks stay together for the next placement."""
        self._device = None

    @property
    def _own(self) -> TorchDevice:
        assert self._device is not None
        return self._device


class Ranks:
    """A `Transport` between ranks. NCCL matches what goes between two ranks by its order, so both ends post it in one
    order.

    That order is the messages' numbers, in which the plan's order sends them: before a rank sends one, and before it
    waits for one, it posts what it receives with smaller numbers, into buffers of its own. No message waits for one
    with a larger number, so none waits for ever. A signal is a message of one byte.
    """

    def __init__(self, rank: int, written: Sequence[DeviceProgram], lane: Lane) -> None:
        self._lane = lane
        sends = [line.what for program in written for line in program.instructions if isinstance(line, Send)]
        self._incoming = sorted((what for what in sends if what.dst == rank), key=lambda what: what.number)
        self._buffers = {what.number: self._buffer(what) for what in self._incoming}
        self._next = 0
        self._receiving: dict[int, Any] = {}
        self._sending: list[tuple[Any, Tensor]] = []  # a value stays until it has gone
        self._byte = torch.zeros(1, dtype=torch.uint8, device=lane.device)

    def meet(self, step: int) -> None:
        """Returns when all ranks have come here; what they sent before has arrived."""
        for work, _ in self._sending:
            work.wait()
        self._lane.synchronize()
        self._sending.clear()
        self._next = 0
        dist.all_reduce(torch.zeros(1))  # on the hosts; `barrier` would be one of the GPUs

    def sender(self, message: Message) -> Callable[[Tensor], None]:
        """What posts a value, as it is sent."""
        index = once(message.tensor)
        like = message.tensor[index]

        def send(value: Tensor) -> None:
            self._post_below(message.number)
            copy = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=value.device)
            self._send(copy.copy_(value[index]), message.dst)

        return send

    def receiver(self, message: Message) -> Callable[[], Tensor]:
        """What waits for a value and returns it."""
        like = message.tensor

        def receive() -> Tensor:
            return self._received(message.number).as_strided(like.shape, like.stride())

        return receive

    def raiser(self, signal: Signal) -> Callable[[], None]:
        """What posts a signal."""

        def announce() -> None:
            self._post_below(signal.number)
            self._send(self._byte, signal.dst)

        return announce

    def waiter(self, signal: Signal) -> Callable[[], None]:
        """What waits for a signal."""

        def wait() -> None:
            self._received(signal.number)

        return wait

    def _send(self, value: Tensor, rank: int) -> None:
        flat = value.as_strided((value.numel(),), (1,))
        self._sending.append((dist.isend(flat, rank), value))

    def _received(self, number: int) -> Tensor:
        self._post_below(number + 1)
        self._receiving.pop(number).wait()
        return self._buffers[number]

    def _post_below(self, number: int) -> None:
        while self._next < len(self._incoming) and self._incoming[self._next].number < number:
            what = self._incoming[self._next]
            self._receiving[what.number] = dist.irecv(self._buffers[what.number], what.src)
            self._next += 1

    def _buffer(self, what: Message | Signal) -> Tensor:
        if isinstance(what, Signal):
            return torch.empty(1, dtype=torch.uint8, device=self._lane.device)
        return torch.empty(what.tensor[once(what.tensor)].numel(), dtype=what.tensor.dtype, device=self._lane.device)


def _lane(gpu: bool) -> tuple[Lane, str]:
    """The device of this rank, and what it is in words."""
    place, host = int(os.environ["LOCAL_RANK"]), f"rank {dist.get_rank()} on {os.uname().nodename}"
    if gpu:
        lane = ComputeStream(place % torch.cuda.device_count())
        return lane, f"{host}, {lane.device}, {torch.cuda.get_device_name(lane.device)}"
    cores = usable_cores()
    core = cores[place % len(cores)]
    os.sched_setaffinity(0, {core})
    keep_freed_memory()
    return NoStream(), f"{host}, core {core}"


def _gathered(value: Any) -> list[Any]:
    """The values of all ranks, by rank."""
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values
