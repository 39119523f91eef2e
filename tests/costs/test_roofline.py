"""What an op without a kernel takes: sources and aliases 1 ns, what an executor handles the dispatch of its device."""

import torch
from torch import nn

import gnnplace as gp
from gnnplace.cluster import Cluster, Device
from gnnplace.costs import roofline
from gnnplace.graph import CONTROL, ComputationGraph, Op, Output

DEVICE = Device("gpu:0", "gpu", 10**12, 10**12, 10**12, launch_ns=5000, dispatch_ns=300)


def idle(name, *outputs, **columns):
    return Op(name, "Op", outputs, kernel=False, **columns)


def times(ops, edges):
    return dict(
        zip((op.name for op in ops), roofline.modelled_ns(ComputationGraph.from_ops("g", ops, edges), DEVICE).tolist(), strict=True)
    )


def test_sources_and_aliases_take_a_nanosecond_and_what_is_dispatched_its_dispatch():
    ops = [
        idle("variable", Output(8), persistent_bytes=8), idle("view", Output(8, alias_of=(0, 0))),
        idle("parts", Output(4, alias_of=(1, 0)), Output(4, alias_of=(1, 0))),
        idle("shape", Output(4)), idle("half", Output(4, alias_of=(1, 0)), Output(4)),
        idle("noop"), idle("waiting constant", Output(4)), idle("nothing"),
    ]  # fmt: skip
    edges = [(0, 0, 1), (1, 0, 2), (1, 0, 3), (1, 0, 4), (2, CONTROL, 5), (5, CONTROL, 6)]
    free, dispatched = ("variable", "view", "parts", "nothing"), ("shape", "half", "noop", "waiting constant")
    assert times(ops, edges) == dict.fromkeys(free, 1) | dict.fromkeys(dispatched, 300)


def test_a_launch_stays_a_launch_even_of_an_alias():
    """An update in place is an alias with a kernel."""
    ops = [idle("variable", Output(8), persistent_bytes=8), Op("update", "Op", (Output(8, alias_of=(0, 0)),))]
    assert times(ops, [(0, 0, 1)]) == {"variable": 1, "update": 5001}


def test_given_times_are_taken_as_they_are():
    graph = ComputationGraph.from_ops("g", [idle("view", Output(8), time_ns={"gpu": 700}), idle("other", Output(8))], [])
    assert roofline.time_ns(graph, Cluster("one", (DEVICE,), ())).T.tolist() == [[700, 1]]


def test_the_reads_and_views_of_a_network_of_pytorch_take_a_nanosecond_each():
    """PyTorch makes none of them on a device: only the product and the activation are launched."""
    problem = gp.problem(
        gp.TorchInference(nn.Sequential(nn.Linear(4, 6), nn.GELU()), (torch.randn(2, 4),)), cluster=Cluster("one", (DEVICE,), ())
    )
    graph, time_ns = problem.graph, problem.time_ns[:, 0]
    assert {"parameter", "read", "aten.t", "input"} == {graph.kind[op] for op in range(graph.num_ops) if time_ns[op] == 1}
    assert (time_ns[graph.kernel] > DEVICE.launch_ns).all() and 300 not in time_ns
