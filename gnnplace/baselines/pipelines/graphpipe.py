"""GraphPipe (Jeon et al., ASPLOS 2025, arXiv 2406.17145): a graph of stages, so that branches run side by side.

A stage waits only for the stages that it reads from. Before its first backward pass it runs as many forward passes as
the longest path of stages behind it is long: fewer than there are stages where a network has branches. So warm-up is
shorter, and less memory is held. Stages are those of the dynamic programme over the series-parallel decomposition of
the network, for each number of devices, and the runs of a row as for the other schedules, in a row and as a graph. The
fastest is taken, so it is never slower than 1F1B.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from jaxtyping import Int64

from gnnplace.baselines.data_parallel.forms import copies_of
from gnnplace.baselines.pipelines.actions import Reads, Table, checked
from gnnplace.baselines.pipelines.one_f_one_b import one_f_one_b
from gnnplace.baselines.pipelines.orders import passes, placed
from gnnplace.baselines.pipelines.pipelined import proposals
from gnnplace.baselines.pipelines.program_order import program_order
from gnnplace.baselines.pipelines.rows import StepPasses, passes_over
from gnnplace.baselines.pipelines.series_parallel import Edges, NodeLoads, Programme, decomposed, without_ends
from gnnplace.baselines.pipelines.stage_times import row_times
from gnnplace.baselines.single import fastest
from gnnplace.graph import CONTROL, NONE
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import Evaluator


def graphpipe(problem: Problem, evaluate: Evaluator) -> Placement:
    """The fastest placement of several partitions, each in the order of 1F1B over its graph of stages.

    The graph is a step of several micro-batches (`several`).
    """

    def as_graph(stage: Int64[np.ndarray, " ops"], devices: Int64[np.ndarray, " stages"], table: Table) -> Placement:
        return in_branches(problem, stage, devices)

    rows = proposals(problem, one_f_one_b, partial(placed, problem), as_graph)
    devices = problem.cluster.accelerators
    branched = [in_branches(problem, stage, devices[: stage.max() + 1]) for stage in branched_stages(problem)]
    return fastest(problem, [*rows, *branched], evaluate)


def in_branches(problem: Problem, stage: Int64[np.ndarray, " ops"], devices: Int64[np.ndarray, " stages"]) -> Placement:
    """Stages on devices in the order of 1F1B over their graph."""
    reads = stage_graph(problem, stage, len(devices))
    return placed(problem, stage, devices, graph_1f1b(reads, copies_of(problem.graph).micro_batches), reads)


def branched_stages(problem: Problem) -> Iterator[Int64[np.ndarray, " ops"]]:
    """The stage of each op, for each number of devices, if anything in the network lies side by side."""
    copies, devices, passes = copies_of(problem.graph), problem.cluster.accelerators, passes_over(problem)
    place = program_order(passes.one.graph, passes.number, passes.repeated)
    work_ns = _loads(passes, place).work_ns
    place = np.unique(without_ends(work_ns, _edges(passes, place)), return_inverse=True)[1][place]
    series = decomposed(np.arange(int(place.max()) + 1), _edges(passes, place))
    if series.branches:
        room = float(problem.cluster.memory_bytes[devices].min())
        programme = Programme(_loads(passes, place), room, copies.micro_batches)
        for partition in programme.of_series(series, len(devices), 0):
            if partition is not None and len(partition.stages) > 1:
                stage = np.empty(int(place.max()) + 1, dtype=np.int64)
                for number, nodes in enumerate(partition.stages):
                    stage[nodes] = number
                yield stage[place][copies.source]


def _loads(passes: StepPasses, place: Int64[np.ndarray, " ops_of_a_micro_batch"]) -> NodeLoads:
    """The work and the memory of each place, on the mean accelerator."""
    times = row_times(passes, place)
    work_ns = times.work_ns.sum(axis=0)[:, passes.one.cluster.accelerators].mean(axis=1)
    return NodeLoads(*(np.diff(each) for each in (work_ns, times.held, times.saved)))


def _edges(passes: StepPasses, place: Int64[np.ndarray, " ops_of_a_micro_batch"]) -> Edges:
    """The tensors that a forward op sends to a forward op of another place, on the mean link."""
    one, number, repeated = passes
    graph = one.graph
    forward = repeated & (number == 0) & (np.diff(graph.in_ptr) > 0)
    data = forward[graph.edge_src] & forward[graph.edge_dst] & (graph.edge_output != CONTROL)
    edge = np.flatnonzero(data & (place[graph.edge_src] < place[graph.edge_dst]))
    sent_ns = one.transfer_ns[graph.edge_data[edge]].astype(np.float64)
    src, dst = place[graph.edge_src[edge]], place[graph.edge_dst[edge]]
    return Edges(src, dst, sent_ns.mean(axis=1) if sent_ns.shape[1] else np.zeros(len(edge)))


def graph_1f1b(reads: Reads, micro_batches: int) -> Table:
    """The actions of each device, which has one stage; stage s reads from the stages `reads[s]`, all below s.

    >>> print(*graph_1f1b([[], [], [0, 1]], 2)[0])
    0F0 0F1 0BW0 0BW1
    """
    behind = [0] * len(reads)  # the stages on the longest path behind each
    for stage in range(len(reads) - 1, -1, -1):
        for before in reads[stage]:
            behind[before] = max(behind[before], behind[stage] + 1)
    rows = [one_f_one_b(1 + ahead, micro_batches)[0] for ahead in behind]
    return checked([[action._replace(stage=stage) for action in row] for stage, row in enumerate(rows)], reads)


def stage_graph(problem: Problem, stage: Int64[np.ndarray, " ops"], stages: int) -> list[list[int]]:
    """The earlier stages from which the forward pass of each stage reads something else than an input."""
    graph, copies = problem.graph, copies_of(problem.graph)
    forward = (passes(copies) == 0) & (copies.micro_batch != NONE)
    computed = forward & (np.diff(graph.in_ptr) > 0)
    edges = np.flatnonzero(computed[graph.edge_src] & forward[graph.edge_dst])
    src, dst = stage[graph.edge_src[edges]], stage[graph.edge_dst[edges]]
    return [np.unique(src[(dst == reader) & (src < reader)]).tolist() for reader in range(stages)]
