"""Chains of sessions of ONNX Runtime beside the step "as exported": does the chain take what was said?

    python -m experiments.fidelity.onnx_chains [--rounds 60] [--json]

Three networks, ten placements each on two CPU devices, exported as a chain and run with one thread a session on one pinned core. Ops take
what ONNX Runtime's own profile of the whole model says, measured in the same rounds; a hand-over takes what an empty session does.
"""

from __future__ import annotations

import importlib.util
import json
import os
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from experiments import output, results
from gnnplace.cluster import Cluster, Device, Link
from gnnplace.costs import measured
from gnnplace.costs.measured import NOT_MEASURED, LinkSample, MeasuredCosts
from gnnplace.exports.onnx_segments import node_ops
from gnnplace.exports.targets import Model, export
from gnnplace.frontends.onnx.read import read_model, read_onnx
from gnnplace.graph import ComputationGraph
from gnnplace.placement import Placement
from gnnplace.runtimes.runtime import executed
from gnnplace.simulator.simulator import simulate

HERE = Path(__file__).resolve().parent
PLACEMENTS, MOST_CUTS, LAYERS, WARM = 10, 6, 6, 5


class Attention(nn.Module):
    """A transformer's encoder, without the fused kernels that PyTorch's own has."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.qkv, self.out, self.up, self.down = (nn.Linear(width, size) for size in (3 * width, width, 4 * width, width))
        self.back = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        x = x + self.out(torch.softmax(q @ k.transpose(1, 2) / 16, dim=-1) @ v)
        return x + self.back(torch.relu(self.up(x)))


def convolutions() -> nn.Module:
    """Convolutions, each followed by a rectifier."""
    sizes = [3, *[48] * LAYERS]
    return nn.Sequential(*(part for a, b in pairwise(sizes) for part in (nn.Conv2d(a, b, 3, padding=1), nn.ReLU())))


def perceptron() -> nn.Module:
    """Wide linear layers."""
    return nn.Sequential(*(part for _ in range(LAYERS) for part in (nn.Linear(1024, 1024), nn.ReLU())))


NETWORKS: Mapping[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "convolutions": (convolutions, (4, 3, 64, 64)),
    "perceptron": (perceptron, (64, 1024)),
    "attention": (lambda: nn.Sequential(*(Attention() for _ in range(LAYERS))), (4, 64, 256)),
}


class Times(NamedTuple):
    """Nanoseconds: of each node by its name, of each chain in every round, and of an empty session."""

    nodes: dict[str, int]
    chains: list[list[int]]
    empty: list[int]


def options() -> Any:
    """Sessions of one thread that run nodes as they are."""
    import onnxruntime

    chosen = onnxruntime.SessionOptions()
    chosen.intra_op_num_threads = chosen.inter_op_num_threads = 1
    chosen.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return chosen


def chain_of(folder: Path) -> Any:
    """The chain of an exported folder, with its own program."""
    spec = importlib.util.spec_from_file_location("chain", folder / "chain.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Chain(provider="CPUExecutionProvider", options=options())


def cuts(graph: ComputationGraph, seed: int) -> Placement:
    """Runs of ops on two devices in turns, cut at random places of the program."""
    generator = np.random.default_rng(seed)
    at = np.sort(generator.choice(np.arange(1, graph.num_ops), size=1 + seed % MOST_CUTS, replace=False))
    device = np.searchsorted(at, np.arange(graph.num_ops), side="right") % 2
    return Placement(device.astype(np.int32))


def profiling(file: Path, folder: Path) -> Any:
    """A session of the whole model that keeps the time of each node in every run."""
    import onnxruntime

    chosen = options()
    chosen.enable_profiling, chosen.profile_file_prefix = True, str(folder / "profile")
    return onnxruntime.InferenceSession(file, chosen, providers=["CPUExecutionProvider"])


def node_ns(session: Any) -> dict[str, int]:
    """The median time of each node over all runs of a session that kept them, without the first ones."""
    taken = defaultdict[str, list[int]](list)
    for event in json.loads(Path(session.end_profiling()).read_text()):
        if event["name"].endswith("_kernel_time"):
            taken[event["name"].removesuffix("_kernel_time")].append(1000 * event["dur"])
    return {name: int(median(each[WARM:])) for name, each in taken.items()}


def empty_session(folder: Path) -> Callable[[], Any]:
    """A run of a session that does nothing."""
    import onnxruntime

    torch.onnx.export(nn.Identity(), (torch.zeros(1),), folder / "empty.onnx", dynamo=False, input_names=["x"])
    session = onnxruntime.InferenceSession(folder / "empty.onnx", options(), providers=["CPUExecutionProvider"])
    nothing = {"x": np.zeros(1, dtype=np.float32)}
    return lambda: session.run(None, nothing)


def timed(run: Callable[[], Any]) -> int:
    """The median time of a few runs in ns, as many as a profile has: weights lie in the caches."""
    times = []
    for _ in range(WARM):
        began = perf_counter_ns()
        run()
        times.append(perf_counter_ns() - began)
    return int(median(times))


def measured_of(name: str, rounds: int) -> dict[str, Any]:
    """Chains of one network, measured in turns with its profile, beside their simulated steps."""
    build, shape = NETWORKS[name]
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        file, x = folder / "net.onnx", torch.randn(shape)
        torch.onnx.export(build().eval(), (x,), file, dynamo=False, input_names=["x"])
        graph, feeds = read_onnx(str(file), {}), {"x": x.numpy()}
        placements = [cuts(graph, seed) for seed in range(PLACEMENTS)]
        chains = []
        for number, placement in enumerate(placements):
            export(_problem(graph, None), placement, "onnxruntime", folder / str(number), Model(str(file)), lambda line: None)
            chains.append(chain_of(folder / str(number)))
        chained: list[list[int]] = [[] for _ in chains]
        whole, nothing, empty = profiling(file, folder), empty_session(folder), list[int]()
        for _ in range(rounds):
            timed(lambda: whole.run(None, feeds))
            empty.append(timed(nothing))
            for chain, each in zip(chains, chained, strict=True):
                each.append(timed(lambda chain=chain: chain.run(feeds)))
        return _compared(str(file), graph, placements, chains, Times(node_ns(whole), chained, empty))


def _compared(file: str, graph: ComputationGraph, placements: list[Placement], chains: list[Any], times: Times) -> dict[str, Any]:
    network = read_model(file, {})
    op_ns = np.full(graph.num_ops, 1, dtype=np.int64)
    for node, op in zip(network.nodes, node_ops(graph, network), strict=True):
        op_ns[op] = max(1, times.nodes.get(node.name, 1))
    empty_ns = round(median(times.empty))
    sample = (LinkSample(1, empty_ns, empty_ns), LinkSample(2**20, empty_ns, empty_ns))
    costs = MeasuredCosts(graph.name, graph.sha256, graph.op_names, {"cpu": np.maximum(op_ns, NOT_MEASURED)}, {("cpu", "cpu"): sample})
    results_ = simulate(_problem(graph, costs), placements)
    rows = []
    for chain, each, result in zip(chains, times.chains, results_, strict=True):
        assert result.step_time_ns is not None
        said, took = result.step_time_ns, round(median(each))
        rows.append({"segments": len(chain.sessions), "simulated_ns": said, "measured_ns": took, "error": said / took - 1})
    return {"rows": rows, "empty_ns": empty_ns, "ops": graph.num_ops, "whole_ns": int(op_ns.sum())}


def _problem(graph: ComputationGraph, costs: MeasuredCosts | None) -> Any:
    """The step as ONNX Runtime executes it on two CPU devices."""
    from gnnplace.costs import roofline

    devices = tuple(Device(f"cpu:{number}", "cpu", 2**33, 10**11, 10**10) for number in range(2))
    links = tuple(Link(a.name, b.name, 10**10) for a in devices for b in devices if a is not b)
    machine = Cluster("two sessions", devices, links)
    ruled = executed(graph, machine, "onnxruntime")
    if costs is None:
        return roofline.problem(ruled, machine)
    from gnnplace.costs import links as link_costs

    return measured.problem(ruled, link_costs.measured(machine, [costs]), costs)


def table(found: Mapping[str, Any]) -> str:
    """A row for each network."""
    rows = []
    for name, each in found.items():
        errors = [abs(row["error"]) for row in each["rows"]]
        segments = [row["segments"] for row in each["rows"]]
        took = [row["measured_ns"] / 1e6 for row in each["rows"]]
        rows.append([name, f"{min(segments)} to {max(segments)}", f"{min(took):.2f} to {max(took):.2f}", f"{each['empty_ns'] / 1e3:.0f}",
                     f"{100 * median(errors):.1f} %", f"{100 * max(errors):.1f} %"])  # fmt: skip
    header = ["network", "segments", "chain, ms", "an empty session, us", "median error of ten", "largest"]
    return results.markdown_table(header, rows)


def main() -> None:
    parser = output.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    found = {name: measured_of(name, arguments.rounds) for name in NETWORKS}
    path = HERE / "results" / "onnx_chains.json"
    results.save(path, {"provenance": results.provenance(HERE), "rounds": arguments.rounds, "networks": found})
    text = table(found)
    output.show(text, {"table": text}, arguments, path.with_suffix(".md"))


if __name__ == "__main__":
    main()
