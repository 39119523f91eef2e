"""What a step allocates on the CPU, as PyTorch's own memory profiler reports it."""

from __future__ import annotations

from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile


def peak_bytes(run: Callable[[], object]) -> int:
    """The most bytes that were allocated at once, beyond what was before, while `run()` ran in this thread."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        run()
    now = most = 0
    events = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most
