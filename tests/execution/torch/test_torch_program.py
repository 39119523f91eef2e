"""Programs of a placed step, without running them: everything is sent once, in an order that keeps every edge and ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from support.happens_before import HappensBefore
from support.torch_steps import STEPS, planned, problem, random_placement, traced
from torch import Tensor, nn

from gnnplace.execution.torch.program import DeviceProgram, Message, OpRun, Receive, Send, programs
from gnnplace.frontends.torch.buffers import shares
from gnnplace.frontends.torch.step import TorchStep
from gnnplace.graph import CONTROL
from gnnplace.placement import Placement

CASES = [(name, devices, seed) for name in STEPS for devices, seed in ((2, 0), (4, 2))]


@pytest.mark.parametrize(("name", "devices", "seed"), CASES)
def test_every_op_is_called_once_where_it_stands(name: str, devices: int, seed: int) -> None:
    step = traced(name)
    cluster = problem(step.graph, devices)
    placement = random_placement(cluster, seed)
    found = programs(step, planned(cluster, placement)[0])
    calls = [(line.op, program.device) for program in found for line in program.instructions if isinstance(line, OpRun)]
    expected = {op for node, op in step.op_of.items() if node.op == "call_function"}
    assert sorted(calls) == [(op, placement.device[op]) for op in sorted(expected)]


@pytest.mark.parametrize(("name", "devices", "seed"), CASES)
def test_every_output_is_sent_once_to_each_device_that_consumes_it(name: str, devices: int, seed: int) -> None:
    step = traced(name)
    graph, cluster = step.graph, problem(step.graph, devices)
    placement = random_placement(cluster, seed)
    plan, simulated = planned(cluster, placement)
    found = programs(step, plan)
    device = placement.device
    cut = {
        (s, k, int(device[d]))
        for s, k, d in zip(graph.edge_src.tolist(), graph.edge_output.tolist(), graph.edge_dst.tolist(), strict=True)
        if k != CONTROL and device[s] != device[d]
    }
    sent = _messages(found, Send)
    assert len(sent) == len(cut) == simulated.transfers
    assert Counter((message.src, message.dst) for message in sent) == Counter((int(device[s]), there) for s, _, there in cut)
    assert len({(message.node, message.dst) for message in sent}) == len(sent)
    assert {message.number for message in sent} == {message.number for message in _messages(found, Receive)}
    assert sum(message.bytes for message in sent) == simulated.transferred_bytes


@pytest.mark.parametrize(("name", "devices", "seed"), CASES)
def test_every_edge_is_kept_and_every_program_ends(name: str, devices: int, seed: int) -> None:
    step = traced(name)
    graph, cluster = step.graph, problem(step.graph, devices)
    plan, _ = planned(cluster, random_placement(cluster, seed, "fifo"))
    order = HappensBefore(programs(step, plan))
    called = order.calls
    edges = [(s, d) for s, d in zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), strict=True) if s in called and d in called]
    assert edges
    assert not [(graph.op_names[s], graph.op_names[d]) for s, d in edges if not order(called[s], called[d])]


@pytest.mark.parametrize(("name", "devices", "seed"), CASES)
def test_no_signal_says_what_is_known(name: str, devices: int, seed: int) -> None:
    """Each signal that is sent is awaited, and there are no more of them than control edges that cross devices."""
    step = traced(name)
    graph, cluster = step.graph, problem(step.graph, devices)
    plan, _ = planned(cluster, random_placement(cluster, seed))
    found = programs(step, plan)
    crossing = (graph.edge_output == CONTROL) & (plan.device[graph.edge_src] != plan.device[graph.edge_dst])
    pairs = {(s, int(plan.device[d])) for s, d in zip(graph.edge_src[crossing].tolist(), graph.edge_dst[crossing].tolist(), strict=True)}
    lines = [line for program in found for line in program.instructions if not isinstance(line, OpRun)]
    sent, received = (sorted(line.what.number for line in lines if isinstance(line, kind)) for kind in (Send, Receive))
    assert sent == received
    assert len(set(sent)) == len(sent)
    assert sum(not isinstance(line.what, Message) for line in lines if isinstance(line, Send)) <= len(pairs)


class _Stale(nn.Module):
    """A view of a buffer is taken, the buffer is changed in place, the view is used: it then shows the change."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("count", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        part = self.count[:3]
        self.count.add_(x)
        return (part * self.weight).sum()


def test_a_view_that_is_used_after_a_write_is_taken_anew_and_sent_after_it() -> None:
    """The buffer as it is after the write stands where the buffer lies, the view of it anywhere; nothing is sent before the write."""
    step = TorchStep(_Stale(), lambda module, x: module(x), (torch.rand(6),)).traced("stale")
    graph, cluster = step.graph, problem(step.graph, 2)
    called = {node.name: op for node, op in step.op_of.items() if node.op == "call_function"}
    group = graph.colocation.index
    assert group[called["alias"]] == group[called["add_"]] == group[graph.op_names.index("count/read")] != group[called["slice_2"]]
    assert "slice_1" not in called
    for away in (["aten.mul"], ["aten.mul", "aten.slice"]):
        plan, _ = planned(cluster, Placement(graph.kind.among(away).astype(np.int32)))
        found = programs(step, plan)
        order = HappensBefore(found)
        assert order(order.calls[called["add_"]], order.calls[called["alias"]])
        assert {message.node.name for message in _messages(found, Send)} & {"alias", "slice_2"}
        assert "arg1_1" not in {message.node.name for message in _messages(found, Send)}


class _Counted(nn.Module):
    """A buffer is read, changed in place, and read again."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(6))
        self.register_buffer("count", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        before = self.weight - self.count
        self.count.add_(x)
        return (before + (self.weight - self.count)).sum()


def test_what_a_writer_has_changed_in_between_goes_to_a_place_of_its_own() -> None:
    """The second message may come while the first is still being read."""
    step = TorchStep(_Counted(), lambda module, x: module(x), (torch.rand(6),)).traced("counted")
    cluster = problem(step.graph, 2)
    plan, _ = planned(cluster, Placement(step.graph.kind.among(["aten.sub"]).astype(np.int32)))
    before, after = (message for message in _messages(programs(step, plan), Send) if message.node.name.endswith(("arg1_1", "add_")))
    assert shares(before.node.meta["val"], after.node.meta["val"])
    assert before.buffer != after.buffer


def _messages(found: Sequence[DeviceProgram], kind: type[Send] | type[Receive]) -> list[Message]:
    lines = [line for program in found for line in program.instructions if isinstance(line, kind)]
    return [line.what for line in lines if isinstance(line.what, Message)]
