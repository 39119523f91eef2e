"""Does a step run that is called feasible, and one fail that is called infeasible? Real steps on two pinned cores with little memory.

    python -m experiments.memory.real        # measures, then shows results/real.md

A workload's step is planned for two cores that have shares of what it needs on one core, down to where nothing fits. `best` says what fits;
the planners' placements that hold over a tenth more than a core has are called infeasible. All of these are run under limits that the
operating system keeps (a process has 32 MB and 16 KB for each op besides, docs/measuring.md).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

import gnnplace as gp
from experiments import output, results
from gnnplace.cluster import Cluster
from gnnplace.execution.host import Host
from gnnplace.execution.measure import Placed, measured_step
from gnnplace.execution.timing import PROTOCOLS
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.sources import graphs as sources
from gnnplace.sources.workload import LOADER

HERE = Path(__file__).resolve().parent / "results"
SHARES = (0.9, 0.7, 0.55)  # of what one core holds, for each of two
SECONDS, LIMIT_S, OVER = 10.0, 600.0, 1.1
PLANNERS = ("cpu", "heft", "metis")


def layers() -> gp.TorchStep:
    """Ten layers of width 3,072 with Adam: state is most of what they hold."""
    module = nn.Sequential(*(layer for _ in range(10) for layer in (nn.Linear(3072, 3072), nn.ReLU())))
    batch = torch.randn(32, 3072)
    return gp.TorchStep(module, lambda net, rows: (net(rows) ** 2).mean(), (batch,))


def attention() -> gp.TorchStep:
    """Six layers of a Transformer on long sequences: what the backward pass reads is most of what they hold."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
    module = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
    return gp.TorchStep(module, lambda net, rows: net(rows).square().mean(), (torch.randn(32, 256, 256),), "sgd")


WORKLOADS = {"layers": layers, "attention": attention}


def cores_with(memory_bytes: int) -> Cluster:
    """Two cores with so much memory each."""
    cluster = sources.cluster("cpu-2")
    return replace(cluster, devices=tuple(replace(device, memory_bytes=memory_bytes) for device in cluster.devices))


def outcome(host: Host, problem: Problem, placement: Placement) -> str:
    """How the real step ends: `ok`, or why not."""
    try:
        measured_step(host, Placed(problem, placement), None, PROTOCOLS["paper"], LIMIT_S)
    except gp.MeasurementError as error:
        return error.outcome
    return "ok"


def rows(workload: str) -> list[dict[str, object]]:
    """What is said of each placement, and what happens."""
    found = []
    with Host(LOADER, f"{Path(__file__).resolve()}:{workload}", 0, limit_s=LIMIT_S) as host:
        needs = peak(gp.problem(host.graph, cores_with(2**40)), "cpu")
        for share in SHARES:
            problem = gp.problem(host.graph, cores_with(int(share * needs)))
            has = problem.cluster.devices[0].memory_bytes
            placements = {name: gp.place(problem, name) for name in PLANNERS} | {"best": gp.place(problem, seconds=SECONDS)}
            for name, placement in placements.items():
                result = gp.simulate(problem, placement)
                most = int(result.peak_memory_bytes.max())
                said = "fits" if result.infeasible is None else "fits not" if most > OVER * has else "close"
                row = {"workload": workload, "share": share, "planner": name, "needs": most, "has": has, "said": said}
                found.append(row | {"outcome": outcome(host, problem, placement)})
                print(found[-1], flush=True)
    return found


def peak(problem: Problem, planner: str) -> int:
    """The most that a device holds."""
    return int(gp.simulate(problem, gp.place(problem, planner)).peak_memory_bytes.max())


def table(found: list[dict[str, object]]) -> str:
    """Every placement, and how often what was said happened."""
    lines = [[str(each[key]) for key in ("workload", "share", "planner", "said", "outcome")] for each in found]
    of = {said: [each["outcome"] for each in found if each["said"] == said] for said in ("fits", "fits not", "close")}
    counts = [[said, str(len(outcomes)), str(outcomes.count("ok")), str(outcomes.count("out_of_memory"))] for said, outcomes in of.items()]
    summary = results.markdown_table(["said", "placements", "ran", "out of memory"], counts)
    return f"{summary}\n\n{results.markdown_table(['workload', 'share', 'planner', 'said', 'outcome'], lines)}\n"


def main() -> None:
    chosen = output.parser(__doc__).parse_args()
    document = {"provenance": results.provenance(HERE.parent), "rows": [row for name in WORKLOADS for row in rows(name)]}
    results.save(HERE / "real.json", document)
    output.show(table(document["rows"]), document, chosen, HERE / "real.md")


if __name__ == "__main__":
    main()
