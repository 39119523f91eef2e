"""What a step allocates: on the CPU as PyTorch's own memory profiler reports it, on GPUs as its allocator counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic_ns, time_ns

import torch
from torch.profiler import ProfilerActivity, profile

from gnnplace.execution.allocations import Allocation


def allocations(run: Callable[[], object]) -> list[Allocation]:
    """What this thread allocated and freed while `run()` ran."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        run()
    since = time_ns() - monotonic_ns()
    events = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
    return [(event.start_ns() - since, event.nbytes()) for event in events]


def gpu_growth(gpus: Sequence[int], run: Callable[[], object]) -> list[int]:
    """The most bytes that were allocated at once on each GPU beyond what was before `run()`, which ends with the GPUs synchronised.

    Bytes are free for this count when their last use has been queued, in the order of the program.
    """
    before = [torch.cuda.memory_allocated(gpu) for gpu in gpus]
    for gpu in gpus:
        torch.cuda.reset_peak_memory_stats(gpu)
    run()
    return [torch.cuda.max_memory_allocated(gpu) - bytes_before for gpu, bytes_before in zip(gpus, before, strict=True)]
