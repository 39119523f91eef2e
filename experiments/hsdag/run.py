"""HSDAG (Duan et al., NeurIPS 2024) on its three networks as OpenVINO graphs, beside what needs no learning, at equal evaluations.

    python -m experiments.hsdag.run [--seeds 3] [--columns random hsdag-published ...] [--show] [--json]

The cluster is the paper's machine by its data sheets, simulated, ops in the order of the critical path for all. Every search, sampler and
policy has `EVALUATIONS` placements of each graph; a policy's cell is the best of its own samples and greedy decodings. Resumable: finished
cells are kept.
"""

from __future__ import annotations

import statistics
import time
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from experiments import cells, output, results, training
from experiments.cells import Cell, Job
from experiments.problems import heuristics_ns, problem_of, time_ns
from gnnplace.baselines.annealing import hill_climb
from gnnplace.baselines.random_units import draw
from gnnplace.baselines.searching.budget import Budget
from gnnplace.baselines.single import fastest, single_cpu, single_gpu
from gnnplace.bounds.bounds import lower_bound
from gnnplace.placement import Placement
from gnnplace.policies import registry
from gnnplace.policies.hsdag.parsing import co_located
from gnnplace.policies.tape import Tape
from gnnplace.policies.unit_placer.policy import UnitPlacerConfig
from gnnplace.simulator.simulator import simulate
from gnnplace.training.update import rollout
from gnnplace.units.units import allowed, expand, unit_edges, units

HERE = Path(__file__).resolve().parent
PATH = HERE / "results" / "hsdag.json"
GRAPHS, CLUSTER = ("inception-v3-openvino", "resnet-50-openvino", "bert-base-openvino"), "flex170-1"
EVALUATIONS, BATCH = 2000, 50  # the paper's 100 episodes of 20 steps


class Learned(NamedTuple):
    """A column of a policy: its settings, and what differs from them."""

    settings: str
    overrides: tuple[str, ...] = ()


LEARNED = {
    "hsdag-published": Learned("published", ("--policy.schedule=critical-path",)),
    "hsdag-code": Learned(
        "published",
        (
            "--policy.schedule=critical-path",
            "--policy.coarsening=code",
            "--policy.features=code",
            "--training.credit.returns=episode",
            "--training.optimizer.lr=0.001",
        ),
    ),
    "hsdag-tuned": Learned("tuned"),
}
UNLEARNED = ("random", "hill-climb", "unit-placer")
PAPER: dict[str, dict[str, float | None]] = {  # table 2: seconds (None: out of memory), on the machine itself
    "inception-v3-openvino": {"CPU": 0.0128, "GPU": 0.0120, "OpenVINO-CPU": 0.0128, "OpenVINO-GPU": 0.0138, "Placeto": 0.0116,
                              "RNN-based": 0.0128, "HSDAG": 0.0105},
    "resnet-50-openvino": {"CPU": 0.0160, "GPU": 0.00781, "OpenVINO-CPU": 0.0234, "OpenVINO-GPU": 0.00876, "Placeto": 0.00932,
                           "RNN-based": 0.00875, "HSDAG": 0.00766},
    "bert-base-openvino": {"CPU": 0.00638, "GPU": 0.00277, "OpenVINO-CPU": 0.00657, "OpenVINO-GPU": 0.00284, "Placeto": 0.00651,
                           "RNN-based": None, "HSDAG": 0.00267},
}  # fmt: skip


def fixed(graph: str) -> Cell:
    """What draws nothing: both devices alone, every heuristic, the bound; and the sizes of the graph by both rules of coarsening."""
    problem = problem_of(graph, CLUSTER)
    of_ops = units(problem.graph, "ops")
    sizes = {"ops": [problem.num_ops, problem.graph.num_edges]}
    for rule in ("paper", "code"):
        nodes = co_located(problem, of_ops, rule)
        sizes[rule] = [nodes.num_units, len(unit_edges(problem.graph, nodes).src)]
    return {
        "cpu_ns": time_ns(problem, single_cpu(problem, simulate)),
        "gpu_ns": time_ns(problem, single_gpu(problem, simulate)),
        "heuristics": heuristics_ns(problem),
        "bound_ns": int(lower_bound(problem)),
        "sizes": sizes,
    }


def random(graph: str, seed: int, evaluations: int) -> Cell:
    """Co-location sets, each on either device with equal chances."""
    problem, generator = problem_of(graph, CLUSTER), np.random.default_rng(seed)
    nodes = co_located(problem, units(problem.graph, "ops"), "paper")
    drawn = expand(nodes, draw(allowed(problem, nodes), evaluations, generator))
    results = simulate(problem, [Placement(device, "critical-path") for device in drawn])
    return _samples([result.feasible_ns for result in results])


def climb(graph: str, seed: int, evaluations: int) -> Cell:
    """Hill climbing from the faster of both devices alone."""
    problem = problem_of(graph, CLUSTER)
    start = fastest(problem, [single_cpu(problem, simulate), single_gpu(problem, simulate)], simulate)
    found = hill_climb(problem, simulate, np.random.default_rng(seed), start=start, budget=Budget(evaluations=evaluations))
    return {"best_ns": time_ns(problem, found)}


def unit_placer(graph: str, seed: int, evaluations: int) -> Cell:
    """Samples of a unit placer that has learned nothing."""
    torch.set_num_threads(1)
    problem, config = problem_of(graph, CLUSTER), UnitPlacerConfig()
    policy, generator = registry.build(config, config.shape([problem]), 1, seed), torch.Generator().manual_seed(seed)
    drawn = [pair for _ in range(evaluations // BATCH) for pair in rollout.sampled(policy, problem, BATCH, simulate, generator)]
    return _samples([result.feasible_ns for _, result in drawn])


def _samples(times: list[int | None]) -> Cell:
    known = [each for each in times if each is not None]
    return {"best_ns": min(known, default=None), "median_ns": int(statistics.median(known)) if known else None}


def policy(graph: str, column: str, seed: int, evaluations: int) -> Cell:
    """One training run, as many updates as the evaluations allow; and how many groups the greedy decoding makes in its steps."""
    problem, (settings, overrides) = problem_of(graph, CLUSTER), LEARNED[column]
    updates = evaluations // evaluations_each(column)
    config = training.config_of("hsdag", settings, (f"--seed={seed}", f"--training.updates={updates}", *overrides))
    began = time.perf_counter()
    learner, curve = training.train(config, [problem], [None])
    seconds, tape = time.perf_counter() - began, Tape("argmax", 1)
    rollout.rollout(learner.policy, problem, tape, simulate)
    groups = [int(step["device"].choice().shape[1]) for step in tape.steps]
    curves = {name: curve.of(name) for name in ("/mean_ns", "/best_ns", "/greedy_ns", "/ops on gpu:0")}
    return training.outcome(learner) | {"groups": groups, "seconds": seconds, "curve": curves}


def evaluations_each(column: str) -> int:
    """Placements that an update of a column evaluates."""
    settings, overrides = LEARNED[column]
    config = training.config_of("hsdag", settings, overrides)
    return config.training.samples * config.policy.steps


def jobs(seeds: int) -> dict[str, Job]:
    """Everything to be computed, by the name of its cell."""
    unlearned = {"random": random, "hill-climb": climb, "unit-placer": unit_placer}
    made: dict[str, Job] = {f"{graph}/fixed": (fixed, (graph,)) for graph in GRAPHS}
    for seed, graph in product(range(seeds), GRAPHS):
        made |= {f"{graph}/{name}/{seed}": (function, (graph, seed, EVALUATIONS)) for name, function in unlearned.items()}
        made |= {f"{graph}/{column}/{seed}": (policy, (graph, column, seed, EVALUATIONS)) for column in LEARNED}
    return made


HEADER = ["graph", "CPU", "GPU", "best heuristic", "random, median", "best of 2,000 random", "unit placer untrained, best of 2,000",
          "hill climbing", "HSDAG, published", "HSDAG, as its code", "HSDAG, tuned", "greedy: published", "as its code", "tuned",
          "bound"]  # fmt: skip


def rows(found: dict[str, Cell]) -> list[list[str]]:
    """One row a graph, in ms; medians [least - most] over seeds."""
    return [_row(graph, found) for graph in GRAPHS]


def _row(graph: str, found: dict[str, Cell]) -> list[str]:
    of = found[f"{graph}/fixed"]
    heuristics = {name: each for name, each in of["heuristics"].items() if each is not None}
    least = min(heuristics, key=lambda name: heuristics[name])

    def over_seeds(column: str, figure: str = "best_ns") -> str:
        start = f"{graph}/{column}/"
        return spread([cell[figure] for name, cell in sorted(found.items()) if name.startswith(start)])

    return [
        graph, ms(of["cpu_ns"]), ms(of["gpu_ns"]), f"{ms(heuristics[least])} ({least})", over_seeds("random", "median_ns"),
        over_seeds("random"), over_seeds("unit-placer"), over_seeds("hill-climb"), *(over_seeds(column) for column in LEARNED),
        *(over_seeds(column, "greedy_ns") for column in LEARNED), ms(of["bound_ns"]),
    ]  # fmt: skip


PAPER_HEADER = ["graph", "", "CPU", "GPU", "OpenVINO-CPU", "OpenVINO-GPU", "Placeto", "RNN-based", "HSDAG", "HSDAG over the faster device"]


def paper_rows(found: dict[str, Cell]) -> list[list[str]]:
    """The paper's seconds, measured on the machine, in ms, and what ours has of the same columns under it."""
    lines = []
    for graph, paper in PAPER.items():
        times = ["out of memory" if seconds is None else f"{1000 * seconds:.4g}" for seconds in paper.values()]
        lines.append([graph, "paper, measured", *times, ratio(paper["HSDAG"], paper["CPU"], paper["GPU"])])
        of = found[f"{graph}/fixed"]
        ours = [cell["best_ns"] for name, cell in found.items() if name.startswith(f"{graph}/hsdag-published/")]
        best = int(statistics.median(ours)) if ours else None
        lines.append(
            ["", "here, simulated", ms(of["cpu_ns"]), ms(of["gpu_ns"]), *["-"] * 4, ms(best), ratio(best, of["cpu_ns"], of["gpu_ns"])]
        )
    return lines


def ratio(time: float | None, *alone: float | None) -> str:
    """A time over that of the faster device alone."""
    known = [each for each in alone if each is not None]
    return "-" if time is None or not known else f"{time / min(known):.3f}"


def ms(time_ns: int | None) -> str:
    return "-" if time_ns is None else f"{time_ns / 1e6:.3f}"


def spread(times: list[int | None]) -> str:
    """The median, and the range where there are several."""
    known = [each for each in times if each is not None]
    if not known:
        return "-"
    median = ms(int(statistics.median(known)))
    return median if min(known) == max(known) else f"{median} [{ms(min(known))} - {ms(max(known))}]"


def main() -> None:
    parser = output.parser(__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--columns", nargs="*", help="only cells of these columns: fixed, random, hill-climb, unit-placer, hsdag-...")
    parser.add_argument("--show", action="store_true", help="only tables of the cells that are there")
    chosen = parser.parse_args()
    asked = {name: job for name, job in jobs(chosen.seeds).items() if not chosen.columns or name.split("/")[1] in chosen.columns}
    found = results.load(PATH)["cells"] if chosen.show else cells.compute(PATH, asked, {"evaluations": EVALUATIONS, "cluster": CLUSTER})
    table = results.markdown_table(HEADER, rows(found)) + "\n" + results.markdown_table(PAPER_HEADER, paper_rows(found))
    output.show(table, {"header": HEADER, "rows": rows(found)}, chosen, PATH.with_suffix(".md"))


if __name__ == "__main__":
    main()
