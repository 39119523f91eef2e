"""A placed PyTorch step under `torchrun`: each rank is one device, and ranks communicate by `torch.distributed`.

    torchrun --nproc-per-node 2 -m gnnplace measure WORKLOAD --cluster CLUSTER --placement PLACEMENT

Every rank runs the same command: it loads the workload, makes the same plan, and runs the program of the device with
its number. Rank 0 prints. Step times decide how long ranks measure; ranks agree on them after each run, so all decide
alike. CPU devices use gloo, GPUs NCCL. Rank k of a host is on its k-th core or GPU, counted round.

Not supported: CPU devices beside GPUs, several devices on a rank, aligned clocks of hosts (op times count from each
device's own start), and measured links. A rank that fails ends the others through `torchrun`, or by the time limit.
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
from gnnplace.execution.torch.program import DeviceProgram, Message, Signal, programs
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
    """A `RunningStep` with one device on each rank. All ranks call each method, which returns the same on all of them.

    Raises MeasurementError(unsupported) if the numbers of ranks and devices differ, or if devices are of two kinds.
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
        device_programs, rank = programs(step, plan), dist.get_rank()
        self._received = received_bytes(device_programs[rank])
        transport = Ranks(rank, device_programs, self._lane)
        self._device: TorchDevice | None = TorchDevice(
            device_programs[rank], held, self._lane, transport, transport.meet, self._num_ops, Lock()
        )

    def run(self, steps: int) -> list[int]:
        """Runs steps. Returns the ns of each on the slowest rank, from the meeting of all ranks."""
        starts, ends = self._rank_device.run(steps)
        longest = torch.tensor(ends) - torch.tensor(starts)
        dist.all_reduce(longest, dist.ReduceOp.MAX)
        return longest.tolist()

    def outputs(self) -> Outputs:
        """The losses so far and the variables now."""
        return joined(_gathered(self._rank_device.outputs()))

    def op_times(self, steps: int) -> list[OpTimes]:
        """Runs steps and times every op, from the start of its own device."""
        parts = _gathered([times._replace(began=0) for times in self._rank_device.op_times(steps)])
        return [merged([part[step] for part in parts], self._num_ops) for step in range(steps)]

    def peak_memory_bytes(self) -> list[int]:
        """Runs a step and returns the peak memory of each device."""
        if not self._gpu:
            return _gathered(self._rank_device.peak_memory(self._received))
        (grown,) = gpu_growth([self._lane.device.index], lambda: self.run(1))
        return _gathered(grown + self._rank_device.held_bytes())

    def described(self) -> list[str]:
        """The rank, host and hardware of each device."""
        return _gathered(self._described)

    def close(self) -> None:
        """Frees the memory. The process group stays for the next placement."""
        self._device = None

    @property
    def _rank_device(self) -> TorchDevice:
        assert self._device is not None
        return self._device


class Ranks:
    """A `Transport` between ranks.

    NCCL matches sends and receipts of two ranks by their order, so both ranks post them in the order of the messages'
    numbers, in which the plan sends them. Before a rank sends a message or waits for one, it posts the receipts of all
    smaller numbers, into its own buffers. No message waits for one with a larger number, so there is no deadlock. A
    signal is a message of one byte.
    """

    def __init__(self, rank: int, programs: Sequence[DeviceProgram], lane: Lane) -> None:
        self._lane = lane
        incoming = [what for program in programs for what in program.sent if what.dst == rank]
        self._incoming = sorted(incoming, key=lambda what: what.number)
        self._buffers = {what.number: self._buffer(what) for what in self._incoming}
        self._next = 0
        self._receiving: dict[int, Any] = {}
        self._sending: list[tuple[Any, Tensor]] = []  # keeps a value until it is sent
        self._byte = torch.zeros(1, dtype=torch.uint8, device=lane.device)

    def meet(self, step: int) -> None:
        """Returns when all ranks have called it and earlier messages have arrived."""
        for work, _ in self._sending:
            work.wait()
        self._lane.synchronize()
        self._sending.clear()
        self._next = 0
        dist.all_reduce(torch.zeros(1))  # meets on the hosts; `barrier` would meet on the GPUs

    def sender(self, message: Message) -> Callable[[Tensor], None]:
        """A function that posts a value in its sent layout."""
        index = once(message.tensor)
        like = message.tensor[index]

        def send(value: Tensor) -> None:
            self._post_below(message.number)
            copy = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=value.device)
            self._send(copy.copy_(value[index]), message.dst)

        return send

    def receiver(self, message: Message) -> Callable[[], Tensor]:
        """A function that waits for a value and returns it."""
        like = message.tensor

        def receive() -> Tensor:
            return self._received(message.number).as_strided(like.shape, like.stride())

        return receive

    def raiser(self, signal: Signal) -> Callable[[], None]:
        """A function that posts a signal."""

        def announce() -> None:
            self._post_below(signal.number)
            self._send(self._byte, signal.dst)

        return announce

    def waiter(self, signal: Signal) -> Callable[[], None]:
        """A function that waits for a signal."""

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
        """Posts the receipts of all smaller numbers."""
        while self._next < len(self._incoming) and self._incoming[self._next].number < number:
            what = self._incoming[self._next]
            self._receiving[what.number] = dist.irecv(self._buffers[what.number], what.src)
            self._next += 1

    def _buffer(self, what: Message | Signal) -> Tensor:
        if isinstance(what, Signal):
            return torch.empty(1, dtype=torch.uint8, device=self._lane.device)
        return torch.empty(what.tensor[once(what.tensor)].numel(), dtype=what.tensor.dtype, device=self._lane.device)


def _lane(gpu: bool) -> tuple[Lane, str]:
    """The lane of this rank, and its hardware in words."""
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
