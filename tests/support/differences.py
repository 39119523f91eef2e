"""What the simulator and the plain one say otherwise of a case."""

from __future__ import annotations

from support import plain_fusion
from support.random_problems import Case

from gnnplace.formats.graphs import graph_of
from gnnplace.result import StepResult


def differences(case: Case, result: StepResult) -> list[str]:
    """What the simulator says otherwise than the plain one."""
    plain = plain_fusion.simulator(case.graph, case.cluster, case.device, case.schedule, case.priority, case.fusion).run()
    pairs = {
        "step time": (result.step_time_ns, plain.step_time_ns),
        "feasible": (result.infeasible is None, bool(plain.legal and plain.memory_fits)),
        "peak": (None if result.peak_memory_bytes is None else result.peak_memory_bytes.tolist(), plain.peak_memory_bytes),
        "busy": (result.busy_ns.tolist(), plain.busy_ns),
        "bytes": (result.transferred_bytes, plain.transferred_bytes),
        "transfers": (result.transfers, len(plain.transfers)),
    }
    if result.timeline is not None:
        graph, timeline = graph_of(case.graph), result.timeline
        numbers = {(int(graph.output_op[k]), k - int(graph.output_ptr[graph.output_op[k]])): k for k in range(len(graph.output_bytes))}
        received = {t: (-1, -1) if t.received is None else (t.received_from, t.received) for t in plain.transfers}
        moved = [(t.start, numbers[t.source], t.there, t.here, t.leaves, *received[t]) for t in plain.transfers]
        columns = (timeline.transfer_start_ns, timeline.transfer_output, timeline.transfer_dst, timeline.transfer_src)
        ends = (timeline.transfer_end_ns, timeline.receive_start_ns, timeline.receive_end_ns)
        ours = list(zip(*(column.tolist() for column in (*columns, *ends)), strict=True))
        pairs |= {"starts": (timeline.start_ns.tolist(), plain.start_ns), "timeline": (ours, sorted(moved))}
    return [f"{what}: {ours} is not {theirs}" for what, (ours, theirs) in pairs.items() if ours != theirs]
